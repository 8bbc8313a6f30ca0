"""ONNX's own tests of its operators: an engine passes what the library below it passes, or says by name why not."""

import os
from functools import partial

import pytest

pytest.importorskip("onnxruntime")

from benchmarks.node_tests import LIBRARIES, PASSED, REFUSED, WRONG, load_cases, run_case, run_cases

NOT_NUMBERS = ("is of the kind", "is of the element type")  # sequences, text
EVERY = 121  # of the tests run by `make test`


@pytest.fixture(scope="module")
def cases():
    return load_cases()


def refusals(found, alone):
    """What the engine does not pass and the library does, with what came of it."""
    return {name: outcome for name, outcome in found.items() if outcome.kind != PASSED and alone[name].kind == PASSED}


def check_onnxruntime(found, alone):
    lost = refusals(found, alone)
    assert all(outcome.kind == REFUSED for outcome in lost.values()), lost
    assert {name for name, outcome in lost.items() if not any(text in outcome.reason for text in NOT_NUMBERS)} == set()


def check_cpu(found, alone):
    wrong = {
        name: outcome.reason for name, outcome in found.items() if outcome.kind == WRONG and alone[name].kind == PASSED
    }
    assert not wrong
    assert {name: outcome for name, outcome in refusals(found, alone).items() if outcome.kind != REFUSED} == {}


@pytest.mark.parametrize(("engine", "check"), [("onnxruntime", check_onnxruntime), ("cpu", check_cpu)])
def test_some_of_them(cases, engine, check):
    chosen = cases[::EVERY]
    found, alone = ({case.name: run_case(case, runner) for case in chosen} for runner in (engine, LIBRARIES[engine]))
    assert sum(outcome.kind == PASSED for outcome in found.values()) > len(chosen) // 2
    check(found, alone)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("engine", "check"), [("onnxruntime", check_onnxruntime), ("cpu", check_cpu)])
def test_all_of_them(cases, engine, check):
    processes = os.cpu_count() or 1
    found, alone = (
        {
            case.name: outcome
            for case, outcome in run_cases(cases, partial(run_case, runner=runner), processes, start="forkserver")
        }
        for runner in (engine, LIBRARIES[engine])
    )
    check(found, alone)
