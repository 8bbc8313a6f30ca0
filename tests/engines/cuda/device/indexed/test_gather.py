"""Gather, GatherElements and GatherND as one kernel, which also reads moved data in place, against onnxruntime."""

import numpy as np
import pytest
from onnx import helper

from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.engines.cuda.plan.test_moves import Movements
from tests.engines.model_parts import info, model
from tests.randomness import generator

RNG = generator(3)


def indices(size, *dims):
    return RNG.integers(-size, size, dims)


@pytest.mark.parametrize(
    ("op", "dims", "index", "attributes"),
    [
        ("Gather", (5, 6), indices(5, 4), {}),
        ("Gather", (5, 16), indices(5, 2, 3), {"axis": 0}),
        ("Gather", (3, 5, 16), indices(5, 4), {"axis": -2}),
        ("Gather", (3, 5), indices(5), {"axis": 1}),
        ("GatherElements", (2, 30, 8), indices(30, 2, 7, 8), {"axis": 1}),
        ("GatherElements", (5, 4), indices(5, 3, 2), {}),
        ("GatherND", (4, 5, 8), indices(4, 3, 2), {}),
        ("GatherND", (4, 5, 8), indices(4, 6, 1), {}),
        ("GatherND", (2, 5, 6, 4), indices(5, 2, 3, 2), {"batch_dims": 1}),
    ],
)
@pytest.mark.parametrize("computed", [True, False])
def test_values_at_positions(op, dims, index, attributes, computed):
    graph = Graph(x=random(*dims), **({"i": index} if computed else {}))
    last = graph.add(op, "x", "i" if computed else graph.constant(index), **attributes)
    kind = "pointwise" if index.size == 1 and not computed else "indexed"  # one constant position is only a view
    assert graph.check(last, rtol=0, atol=0) == [kind]


def test_what_only_moves_the_data_and_the_positions_is_read_in_place():
    graph = Movements(x=random(3, 8, 10), i=indices(8, 6, 2))
    data, index = graph.turn(graph.slice("x", 2, 2), 1, 2, 0), graph.turn("i", 1, 0)
    rows = graph.add("Gather", graph.reshape(data, 8, 24), index)
    assert graph.check(rows, rtol=0, atol=0) == ["indexed"]
    graph = Movements(x=random(1, 4, 6), i=indices(10, 1, 5))
    wide = graph.add(
        "Expand", graph.add("Unsqueeze", "i", graph.constant(np.array([2]))), graph.constant(np.array([1, 5, 6]))
    )
    joined = graph.add("Concat", "x", graph.pad("x", [0, 1, 0, 0, 1, 0], 7.0), axis=1)
    assert graph.check(graph.add("GatherElements", joined, wide, axis=1), rtol=0, atol=0) == ["indexed"]


def test_float16_and_images():
    graph = Graph(x=random(2, 12, 5, 6), i=indices(5, 3))
    weights = graph.constant(random(12, 12, 1, 1, seed=2))
    pixels = graph.add("Gather", graph.add("Conv", "x", weights), "i", axis=2)
    last = graph.add("Conv", pixels, weights)
    kinds = graph.check(last, float_type=DType.FLOAT16, rtol=0.05, atol=0.05)
    assert "indexed" in kinds
    assert "generic" not in kinds


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16, 17, 19, 21, 22, 23])
def test_any_element_type_is_moved_bit_by_bit(kind):
    """From bool to float4, as onnx.TensorProto numbers them."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    values = RNG.integers(0, 2 if kind == 9 else 4, (5, 3)).astype(dtype)
    node = helper.make_node("Gather", ["x", "i"], ["y"], "rows")
    inputs = [info("x", kind, [5, 3]), info("i", 6, [4])]
    place = np.array([4, -1, 0, 2], np.int32)
    found, execution = run_on_host(
        prepare(model([node], inputs, [info("y", kind, [4, 3])], opset=23, ir=11)), {"x": values, "i": place}
    )
    assert [step.kind for step in execution.plan.steps] == ["indexed"]
    assert found["y"].dtype == dtype
    np.testing.assert_array_equal(found["y"].astype(np.float32), values[place].astype(np.float32))


def test_tensors_without_values_are_left_to_functions_of_arrays():
    graph = Graph(x=random(0, 3), i=np.zeros(0, np.int64))
    assert "indexed" not in graph.check(graph.add("Gather", "x", "i"))
