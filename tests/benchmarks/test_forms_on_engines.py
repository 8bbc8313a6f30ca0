"""Forms of operators on every engine and through every rewrite: right, or refused by name. `make test` takes a few of each version,
`make test-slow` all of them; ``python -m benchmarks.forms`` says more about one that fails."""

import logging
from functools import lru_cache
from importlib import import_module

import onnx
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from benchmarks.forms.families import BUILDERS
from benchmarks.forms.form import draw_forms
from benchmarks.forms.runners import INT8, RUNNERS
from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.engines import selection
from tests.benchmarks.drawn_forms import REPEATED, faults, few

QUICK = ("onnxruntime", "cpu", "reference", "cuda", "repair", "passes of cpu", *INT8)
"""Of the rewrites those that contain the others."""
prepare = import_module("pytrtplugins.passes.prepare")  # a function of the package has this name
PARTS = 16
"""Each has every sixteenth operator."""


def once_for_each_model(change):
    """A function of a model that remembers what it returned for the last ones, as bytes."""

    @lru_cache(maxsize=64)
    def changed(data, *arguments, **options):
        return change(onnx.load_model_from_string(data), *arguments, **options).SerializeToString()

    return lambda model, *arguments, **options: onnx.load_model_from_string(
        changed(model.SerializeToString(), *arguments, **options)
    )


@pytest.fixture(autouse=True, scope="module")
def work_that_runners_share():
    """Each model is converted to each opset once, and goes through the passes in front of all engines once, not once for each runner."""
    with pytest.MonkeyPatch.context() as patch:
        convert = once_for_each_model(onnx.version_converter.convert_version)
        patch.setattr(onnx.version_converter, "convert_version", convert)
        prepare_loaded = once_for_each_model(prepare.prepare_loaded)
        for module in (prepare, selection):
            patch.setattr(module, "prepare_loaded", prepare_loaded)
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
