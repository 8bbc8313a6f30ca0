"""Forms of operators on every engine and through every rewrite: right, or refused by name. `make test` takes a few of each version,
`make test-slow` all of them; ``python -m benchmarks.forms`` says more about one that fails."""

from __future__ import annotations

import itertools
import logging

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from benchmarks.forms.families import BUILDERS
from benchmarks.forms.form import draw_forms
from benchmarks.forms.runners import DOCUMENTED, INT8, RUNNERS, run_form, takes
from benchmarks.node_tests import PASSED, REFUSED
from pytrtplugins.cuda.backends import host as host_backend
from tests.benchmarks.drawn_forms import few, judged

QUICK = ("onnxruntime", "cpu", "reference", "cuda", "repair", "passes of cpu", *INT8)
"""Of the rewrites those that contain the others."""
PARTS = 16
"""Each has every sixteenth operator."""


def faults(forms, runners):
    """Engines run in this process: they must survive each form."""
    forms = judged(forms)
    runners = [name for name in runners if "cuda" not in name or host_backend.available()]
    for form, runner in itertools.product(forms, runners):
        if takes(runner, form):
            outcome = run_form(form, runner)
            named = outcome.kind == REFUSED and outcome.values != "unnamed"
            if outcome.kind not in (PASSED, DOCUMENTED) and not named:
                yield f"{form.name} on {runner}: {outcome.kind}: {outcome.reason}"


@pytest.fixture(autouse=True)
def no_messages(caplog):
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_first_forms_of_each_version_are_right_or_refused_by_name(part):
    assert list(faults(few(sorted(BUILDERS)[part::PARTS]), QUICK)) == []


def test_the_first_forms_are_about_1500():
    assert 1_400 < sum(1 for _ in few(())) < 1_700


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_forms_are_right_or_refused_by_name(part):
    assert list(faults(draw_forms(0, sorted(BUILDERS)[part::PARTS]), (*RUNNERS, *INT8))) == []
