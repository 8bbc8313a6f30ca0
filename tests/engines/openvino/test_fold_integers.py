"""Integer arithmetic on constants has ONNX's results on engine cpu: division towards zero, overflow that wraps."""

import numpy as np
import pytest

from tests.engines.openvino.test_fallback import BY, rows, same


def folded(node, kind, **constants):
    """The engine of a node on constants, and of another one beside it."""
    model = rows(f"y = {node}  z = Neg (x)", f"{kind}[N] y, float[1] z", "float[1] x", **constants)
    return same(model, {"x": np.ones(1, np.float32)})


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_constants_are_divided_towards_zero(dtype):
    built = folded("Div (a, b)", dtype, a=np.array([-6, 5, -5, 7], dtype), b=np.array([4, 2, 3, -2], dtype))
    assert BY not in built.choices


def test_the_least_int8_is_its_own_negative():
    folded("Neg (a)", "int8", a=np.array([-128, 5], np.int8))


def test_a_sum_beyond_32_bits_moves_the_model():
    built = folded("Add (a, a)", "int64", a=np.array([2**31 - 1]))
    assert built.choices["computed by"].startswith("onnxruntime: ")


def test_a_shape_that_is_computed_from_constants_stays_in_openvino():
    nodes = "size = Mul (a, b)  dims = Concat <axis = 0> (free, size)  y = Reshape (x, dims)"
    model = rows(nodes, inputs="float[2,12] x", a=np.array([2]), b=np.array([3]), free=np.array([-1]))
    built = same(model, {"x": np.ones((2, 12), np.float32)})
    assert not built.choices.keys() & {BY, "computed by"}
