"""Forms of operators for tests, with what is right."""

from __future__ import annotations

import itertools
from collections import Counter

from benchmarks.forms.form import draw_forms
from benchmarks.forms.oracles import ENDED, ask, judge
from benchmarks.forms.runners import DOCUMENTED, run_form, takes
from benchmarks.node_tests import PASSED, REFUSED, Outcome, run_cases

FEW, OLD_FEW = 3, 2
"""Forms of the newest version of an operator, and of each older one: 1,500 in all."""
REPEATED = "repeated"


def few(operators):
    """The first forms of each version; the tag "repeated" is on all but the first one of each version that is not the newest."""
    drawn = list(draw_forms(0, operators, most=FEW))
    newest = {form.operator: form.version for form in drawn}  # versions come in order
    counts: Counter[tuple[str, int]] = Counter()
    for form in drawn:
        counts[form.operator, form.version] += 1
        is_newest = form.version == newest[form.operator]
        if counts[form.operator, form.version] <= (FEW if is_newest else OLD_FEW):
            form.tags += () if is_newest or counts[form.operator, form.version] == 1 else (REPEATED,)
            yield form


def judged(forms):
    """Forms with what is right. Oracles are asked in a process of its own, which a form may end."""
    forms = list(forms)
    for form, outcome in run_cases(forms, asked, 1, start="forkserver"):
        form.expected, form.source = judge(form, *(outcome.values or ({}, ENDED)))
        form.notes += [] if outcome.values else [ENDED]
    return forms


def asked(form):
    return Outcome(PASSED, "", ask(form))


def faults(forms, runners, skip=lambda form, runner: False):
    """What is neither right nor refused by name. Engines run in this process: they must survive each form.

    Args:
        forms: The forms.
        runners: Names of what runs them.
        skip: Whether a runner leaves out a form.
    """
    for form, runner in itertools.product(judged(forms), runners):
        if takes(runner, form) and not skip(form, runner):
            outcome = run_form(form, runner)
            named = outcome.kind == REFUSED and outcome.values != "unnamed"
            if outcome.kind not in (PASSED, DOCUMENTED) and not named:
                yield f"{form.name} on {runner}: {outcome.kind}: {outcome.reason}"
