"""Operators that run array by array, on NumPy arrays: ONNX's own tests of them, planned and run by this engine."""

from __future__ import annotations

import warnings
from collections import defaultdict

import numpy as np
import pytest
from onnx import helper
from onnx.backend.test.runner import Runner

from benchmarks.node_tests import load_cases
from pytrtplugins.engines.cuda.operators import KNOWN, OPS
from pytrtplugins.errors import BuildError
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host

NOT_YET = {
    "training": "not what inference does",
    "dropout_random": "likewise",
    "center_crop_pad": "a shape that is computed in the run",
    "causal_fp16": "rounds to float16 between the operators of its definition, off by one unit in the last place",
}
"""Part of a test's name → why it is not run."""
TYPES = {
    "float32",
    "float16",
    "float64",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "bool",
}


def by_operator():
    found = defaultdict(list)
    for case in load_cases():
        plain = all(str(getattr(a, "dtype", "")) in TYPES for given, wanted in case.data for a in (*given, *wanted))
        computed = any(
            case.model.graph.node[0].input[index : index + 1] and case.model.graph.node[0].input[index] in names
            for names in [{info.name for info in case.model.graph.input}]
            for index in KNOWN.get(case.operator, ())
        )
        wanted = case.operator in OPS and not computed and not any(word in case.name for word in NOT_YET)
        if wanted and plain and case.data and not case.name.endswith("_expanded"):
            found[case.operator].append(case)
    return dict(found)


CASES = by_operator()


def assert_passes(case):
    model = prepare(case.model)
    for given, wanted in case.data:
        inputs = {info.name: np.asarray(x) for info, x in zip(case.model.graph.input, given, strict=True)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numbers that tests choose: divisions by zero, logarithms of it
            found, _ = run_on_host(model, inputs)
        outputs = [found[info.name] for info in model.graph.output]
        Runner.assert_similar_outputs(wanted, outputs, rtol=case.rtol, atol=case.atol)


@pytest.mark.parametrize("operator", sorted(CASES))
def test_an_operator_passes_onnxs_tests(operator):
    for case in CASES[operator]:
        assert_passes(case)


def test_every_operator_has_tests_of_onnxs():
    assert set(OPS) - set(CASES) <= {"Cast", "Conv", "GlobalLpPool", "Mish", "Swish"} | set(KNOWN)


def test_what_must_be_known_while_the_run_is_planned_is_refused_by_name():
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"], "sums")],
        "sums",
        [helper.make_tensor_value_info("x", 1, [2, 3]), helper.make_tensor_value_info("axes", 7, [1])],
        [helper.make_tensor_value_info("y", 1, [1, 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(BuildError, match=r"ReduceSum with 'axes' computed in the run \(node 'sums'\)"):
        run_on_host(prepare(model), {"x": np.zeros((2, 3), np.float32), "axes": np.int64([0])})
