"""Forms of operators on every engine and through every rewrite: right, or refused by name. `make test` takes a few of each version,
`make test-slow` all of them; ``python -m benchmarks.forms`` says more about one that fails."""

from __future__ import annotations

import itertools
import logging
from collections import Counter

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from benchmarks.forms.families import BUILDERS
from benchmarks.forms.form import draw_forms
from benchmarks.forms.oracles import ENDED, ask, judge
from benchmarks.forms.runners import DOCUMENTED, INT8, RUNNERS, run_form, takes
from benchmarks.node_tests import PASSED, REFUSED, Outcome, run_cases
from pytrtplugins.cuda.backends import host as host_backend

FEW, OLD_FEW = 3, 2
"""Forms of the newest version of an operator, and of each older one: 1,500 in all."""
QUICK = ("onnxruntime", "cpu", "reference", "cuda", "repair", "passes of cpu", *INT8)
"""Of the rewrites those that contain the others."""
PARTS = 16
"""Each has every sixteenth operator."""


def few(operators):
    drawn = list(draw_forms(0, operators, most=FEW))
    newest = {form.operator: form.version for form in drawn}  # versions come in order
    counts: Counter[tuple[str, int]] = Counter()
    for form in drawn:
        counts[form.operator, form.version] += 1
        if counts[form.operator, form.version] <= (FEW if form.version == newest[form.operator] else OLD_FEW):
            yield form


def judged(forms):
    """Forms with what is right. Oracles are asked in a process of its own, which a form may end."""
    forms = list(forms)
    for form, outcome in run_cases(forms, asked, 1, start="forkserver"):
        form.expected, form.source = judge(form, *(outcome.values or ({}, ENDED)))
        form.notes += [] if outcome.values else [ENDED]
    return forms


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


def asked(form):
    return Outcome(PASSED, "", ask(form))


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
