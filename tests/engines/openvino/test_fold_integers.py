"""Integer arithmetic on constants has ONNX's results on engine cpu: division towards zero, overflow that wraps."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.engines.model_parts import F, info, model, node
from tests.engines.openvino.test_fallback import BY, same


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_constants_are_divided_towards_zero(dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    constants = {"a": np.array([-6, 5, -5, 7], dtype), "b": np.array([4, 2, 3, -2], dtype)}
    nodes = [node("Div", ["a", "b"], ["y"]), node("Neg", ["x"], ["z"])]
    built = same(
        model(nodes, [info("x", F, [1])], [info("y", kind, [4]), info("z", F, [1])], constants),
        {"x": np.ones(1, np.float32)},
    )
    assert BY not in built.choices


def test_the_least_int8_is_its_own_negative():
    made = model(
        [node("Neg", ["a"], ["y"]), node("Neg", ["x"], ["z"])],
        [info("x", F, [1])],
        [info("y", 3, [2]), info("z", F, [1])],
        {"a": np.array([-128, 5], np.int8)},
    )
    same(made, {"x": np.ones(1, np.float32)})


def test_a_sum_beyond_32_bits_moves_the_model():
    made = model(
        [node("Add", ["a", "a"], ["y"]), node("Neg", ["x"], ["z"])],
        [info("x", F, [1])],
        [info("y", 7, [1]), info("z", F, [1])],
        {"a": np.array([2**31 - 1])},
    )
    assert same(made, {"x": np.ones(1, np.float32)}).choices["computed by"].startswith("onnxruntime: ")


def test_a_shape_that_is_computed_from_constants_stays_in_openvino():
    nodes = [
        node("Mul", ["a", "b"], ["size"]),
        node("Concat", ["free", "size"], ["dims"], axis=0),
        node("Reshape", ["x", "dims"], ["y"]),
    ]
    constants = {"a": np.array([2]), "b": np.array([3]), "free": np.array([-1])}
    built = same(
        model(nodes, [info("x", F, [2, 12])], [info("y", F, None)], constants), {"x": np.ones((2, 12), np.float32)}
    )
    assert BY not in built.choices
    assert "computed by" not in built.choices
