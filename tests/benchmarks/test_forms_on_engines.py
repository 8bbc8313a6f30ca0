"""Forms of operators on every engine and through every rewrite: right, or refused by name. `make test` takes a few of each version,
`make test-slow` all of them; ``python -m benchmarks.forms`` says more about one that fails."""

from __future__ import annotations

import logging
from functools import lru_cache

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from benchmarks.forms.families import BUILDERS
from benchmarks.forms.form import draw_forms
from benchmarks.forms.runners import INT8, RUNNERS
from pytrtplugins.cuda.backends import host as host_backend
from tests.benchmarks.drawn_forms import REPEATED, faults, few

QUICK = ("onnxruntime", "cpu", "reference", "cuda", "repair", "passes of cpu", *INT8)
"""Of the rewrites those that contain the others."""
PARTS = 16
"""Each has every sixteenth operator."""


@pytest.fixture(autouse=True, scope="module")
def conversions():
    """ONNX converts each model to each opset once, not once for each runner."""
    import onnx

    convert = onnx.version_converter.convert_version

    @lru_cache(maxsize=64)
    def convert_bytes(data, opset):
        return convert(onnx.load_model_from_string(data), opset).SerializeToString()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            onnx.version_converter,
            "convert_version",
            lambda model, opset: onnx.load_model_from_string(convert_bytes(model.SerializeToString(), opset)),
        )
        yield


def here(runners):
    """Those that can run: kernels on host arrays need a C++ compiler."""
    return [name for name in runners if "cuda" not in name or host_backend.available()]


def repeats(form, runner):
    """Engine `cpu` runs one form of each older version: OpenVINO takes longer than the others, and runs the converted form."""
    return runner == "cpu" and REPEATED in form.tags


@pytest.fixture(autouse=True)
def no_messages(caplog):
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_first_forms_of_each_version_are_right_or_refused_by_name(part):
    assert list(faults(few(sorted(BUILDERS)[part::PARTS]), here(QUICK), skip=repeats)) == []


def test_the_first_forms_are_about_1500():
    assert 1_400 < sum(1 for _ in few(())) < 1_700


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_forms_are_right_or_refused_by_name(part):
    assert list(faults(draw_forms(0, sorted(BUILDERS)[part::PARTS]), here((*RUNNERS, *INT8)))) == []
