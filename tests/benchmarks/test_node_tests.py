"""Running the tests that ONNX ships: none is lost, and one that ends its process does not end the others."""

import os
import time
from functools import partial

import pytest

from benchmarks import node_tests
from benchmarks.node_tests import CRASHED, FAILED, HUNG, LIBRARIES, PASSED, REFUSED, WRONG, run_case, run_cases
from benchmarks.operators import operator_table, summary

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def cases():
    return node_tests.load_cases("relu identity_opt add_int8 sequence_insert_at_back")


def test_cases_are_named_after_their_operators(cases):
    operators = {case.name: case.operator for case in cases}
    assert operators["relu"] == operators["relu_expanded_ver18"] == "Relu"
    assert operators["sequence_insert_at_back"] == "SequenceInsert"
    assert [case.name for case in cases] == sorted(operators)


def _cycle():
    x = onnx.helper.make_tensor_value_info("x", 1, [2])
    y = onnx.helper.make_tensor_value_info("y", 1, [2])
    nodes = [onnx.helper.make_node("Relu", ["b"], ["y"]), onnx.helper.make_node("Relu", ["y"], ["b"])]
    return onnx.helper.make_graph(nodes, "cycle", [x], [y])


def test_outcomes_are_told_apart(cases):
    relu = next(case for case in cases if case.name == "relu")
    twice = node_tests.Case("twice", "Relu", relu.model, ((relu.data[0][0], [relu.data[0][1][0] * 2]),), 1e-3, 1e-7)
    broken = node_tests.Case("broken", "Relu", onnx.helper.make_model(_cycle()), relu.data, 1e-3, 1e-7)
    plain = LIBRARIES["onnxruntime"]
    assert run_case(relu, plain).kind == run_case(relu, "onnxruntime").kind == PASSED
    assert run_case(twice, plain).kind == run_case(twice, "onnxruntime").kind == WRONG
    assert run_case(broken, plain).kind == FAILED


@pytest.fixture
def fragile(monkeypatch):
    def run(model, name, stack):
        if "identity" in model.graph.name:
            os._exit(3)
        if "add" in model.graph.name:
            time.sleep(60)
        return lambda inputs: [inputs]

    monkeypatch.setitem(node_tests._RUNNERS, "fragile", run)


@pytest.mark.usefixtures("fragile")
def test_a_test_that_ends_its_process_or_hangs_is_noted_and_the_others_run(cases):
    found = {
        case.name: outcome
        for case, outcome in run_cases(cases, partial(run_case, runner="fragile"), processes=2, seconds=1.0)
    }
    assert found.keys() == {case.name for case in cases}
    crashed = {name for name, outcome in found.items() if outcome.kind == CRASHED}
    assert crashed == {name for name in found if "identity_opt" in name}
    assert found["add_int8"].kind == HUNG
    assert found["relu"].kind == WRONG


def test_tables_count_what_was_found(cases):
    outcome = node_tests.Outcome
    engine = {case.name: outcome(WRONG if case.name == "relu" else REFUSED) for case in cases}
    library = {case.name: outcome(PASSED) for case in cases}
    found = {"cpu": engine, LIBRARIES["cpu"]: library}
    assert f"| cpu | 0 | {len(cases) - 1} | 1 | 0 | 0 | 0 |" in summary(found)
    row = next(line for line in operator_table(cases, found).splitlines() if line.startswith("| Relu "))
    assert "1 wrong" in row
    assert row.endswith("| all |")
