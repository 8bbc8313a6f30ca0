"""Operators that run array by array, on NumPy arrays: ONNX's own tests of them, planned and run by this engine."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict

import numpy as np
import pytest
from onnx import helper
from onnx.backend.test.runner import Runner

from benchmarks.node_tests import load_cases
from pytrtplugins.engines.cuda.operators import OPS
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host

REFUSED = {
    "text": r"strnormalizer|string|regex|label_encoder|tfidf",
    "sequences, optional tensors and maps": r"^sequence_|^split_to_sequence|optional|_opt$|_sequence$|^if_seq|^loop13_seq|^loop16|map",
    "random numbers, and training": r"training|random|bernoulli|multinomial|^dropout_default_mask_ratio|adagrad|adam|momentum|gradient",
    "scans of opset 8, which have batches": r"^scan_sum$",
    "images in files": r"image_decoder",
    "operators for trees and tables": r"^ai_onnx_ml",
}
"""What this engine is not for → the tests of it."""


def by_operator():
    found = defaultdict(list)
    for case in load_cases():
        name = case.name.removesuffix("_expanded")
        if not (case.operator.startswith("ai.") or re.search("|".join(REFUSED.values()), name)):
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
    assert set(OPS) - set(CASES) <= {"GeluTanh", "GlobalLpPool", "Mish", "Swish"}


def test_what_is_computed_in_the_run_is_read_anew_in_each():
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "scales"], ["y"], "resize", mode="linear")],
        "scaled",
        [helper.make_tensor_value_info("x", 1, [1, 1, 1, 4]), helper.make_tensor_value_info("scales", 1, [4])],
        [helper.make_tensor_value_info("y", 1, [1, 1, 1, 8])],
    )
    model = prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    given = [np.float32([1, 1, 1, scale]) for scale in (2, 2.2)]
    _, execution = run_on_host(model, {"x": x, "scales": given[0]})
    assert [step.captured for step, _ in execution.launches if step.op == "Resize"] == [False]
    for scales in given:
        execution.input("scales")[...] = scales
        execution.queue(None)
        fresh, _ = run_on_host(model, {"x": x, "scales": scales})
        np.testing.assert_array_equal(execution.output("y"), fresh["y"])
