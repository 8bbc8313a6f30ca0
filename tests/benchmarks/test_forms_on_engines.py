"""Forms of operators on every engine and through every rewrite: right, or refused by name. `make test` takes a few of each version,
`make test-slow` all of them; ``python -m benchmarks.forms`` says more about one that fails."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from benchmarks.forms.families import BUILDERS
from benchmarks.forms.form import draw_forms
from benchmarks.forms.oracles import ask, judge
from benchmarks.forms.runners import INT8, RUNNERS, run_form, takes
from benchmarks.node_tests import PASSED, REFUSED
from pytrtplugins.cuda.backends import host as host_backend

FEW = 3
PARTS = 16
"""Each has every sixteenth operator."""


def faults(operators, most=None):
    runners = [name for name in (*RUNNERS, *INT8) if "cuda" not in name or host_backend.available()]
    for form in draw_forms(0, operators, most=most):
        form.expected, form.source = judge(form, *ask(form))
        for runner in runners:
            if takes(runner, form):
                outcome = run_form(form, runner)
                named = outcome.kind == REFUSED and outcome.values != "unnamed"
                if outcome.kind != PASSED and not named:
                    yield f"{form.name} on {runner}: {outcome.kind}: {outcome.reason}"


@pytest.mark.parametrize("part", range(PARTS))
def test_the_first_forms_of_each_version_are_right_or_refused_by_name(part):
    assert list(faults(sorted(BUILDERS)[part::PARTS], FEW)) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_forms_are_right_or_refused_by_name(part):
    assert list(faults(sorted(BUILDERS)[part::PARTS])) == []
