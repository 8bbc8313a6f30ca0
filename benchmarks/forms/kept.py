"""Forms with what the oracles say of them, kept in build/ between runs."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from pytrtplugins.utils.atomic import write_atomic

from ..node_tests import PASSED, Outcome, run_cases
from .form import Form, draw_forms
from .oracles import ENDED, REWRITTEN, ask, judge

__all__ = ["load_forms"]

_HERE = Path(__file__).parent
_LATER = (
    "__main__.py",
    "report.py",
    "runners.py",
    "verdicts.py",
    "formulas.py",
    "contrib_formulas.py",
    "compare.py",
    "kept.py",
)
_BUILD = _HERE.parents[1] / "build"


def load_forms(seed: int = 0, only: Iterable[str] = (), every: int = 1, processes: int = 2) -> list[Form]:
    """Forms of a seed, of some operators or all, every n-th of them, with expected results where oracles agree.

    Drawing takes seconds, the oracles minutes: results are kept for these versions of the libraries and of this package.
    """
    only = sorted(set(only))
    kept = _BUILD / f"forms-{_digest(seed, only, every)}.pickle"
    forms = list(draw_forms(seed, only))[::every]
    try:
        answers = pickle.loads(kept.read_bytes())
    except FileNotFoundError:
        answers = {
            form.name: outcome.values or ({}, f"{ENDED}: {outcome.reason}")
            for form, outcome in run_cases(forms, _asked, processes)
        }
        kept.parent.mkdir(exist_ok=True)
        write_atomic(kept, pickle.dumps(answers))
    for form in forms:
        form.expected, form.source = judge(form, *answers[form.name])
        failures = answers[form.name][1]
        form.notes += [ENDED] * failures.startswith(ENDED) + [REWRITTEN] * (REWRITTEN in failures)
    return forms


def _asked(form: Form) -> Outcome:
    return Outcome(PASSED, "", ask(form))


def _digest(seed: int, only: list[str], every: int) -> str:
    digest = hashlib.sha256(repr((seed, only, every)).encode())
    for name in ("onnx", "onnxruntime", "numpy"):
        digest.update(version(name).encode())
    for path in sorted(_HERE.rglob("*.py")):
        if path.name not in _LATER and not path.name.endswith("formulas.py"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
