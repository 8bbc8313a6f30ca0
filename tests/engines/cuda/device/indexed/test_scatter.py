"""ScatterElements and ScatterND: a copy and one kernel, in the order of the indices, against onnxruntime."""

import numpy as np
import pytest

from pytrtplugins.engines.cuda.device.indexed import scatter
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host, run_shuffled
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.engines.cuda.plan.test_moves import Movements
from tests.randomness import generator

RNG = generator(4)
REDUCTIONS = ("none", "add", "mul", "max", "min")


def indices(size, *dims):
    return RNG.integers(-size, size, dims)


def distinct(size, *dims):
    return RNG.permutation(size)[: np.prod(dims)].reshape(dims)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("computed", [True, False])
def test_updates_of_equal_places_are_done_in_their_order(reduction, computed):
    index = indices(5, 2, 40, 3)
    graph = Graph(x=random(2, 5, 4), u=random(*index.shape, seed=1), **({"i": index} if computed else {}))
    last = graph.add(
        "ScatterElements", "x", "i" if computed else graph.constant(index), "u", axis=1, reduction=reduction
    )
    assert graph.check(last, rtol=1e-5, atol=1e-5) == ["pointwise", "indexed"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_slices_of_equal_places(reduction):
    index = np.stack([indices(4, 3, 5), indices(5, 3, 5)], -1)
    graph = Graph(x=random(4, 5, 6), i=index, u=random(3, 5, 6, seed=1))
    last = graph.add("ScatterND", "x", "i", "u", reduction=reduction)
    assert graph.check(last, rtol=1e-5, atol=1e-5) == ["pointwise", "indexed"]


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize(("name", "number"), [("_BLOCKS", 1), ("_SHARED_BYTES", 0)])
def test_blocks_of_several_lines_and_lines_that_fit_into_no_table(reduction, name, number, monkeypatch):
    monkeypatch.setattr(scatter, name, number)
    graph = Graph(
        x=random(3, 7, 9), i=indices(9, 3, 6, 11), j=indices(7, 3, 12, 9), u=random(3, 6, 11), v=random(3, 12, 9)
    )
    first = graph.add("ScatterElements", "x", "i", "u", axis=2, reduction=reduction)
    second = graph.add("ScatterElements", first, "j", "v", axis=1, reduction=reduction)
    assert graph.check(second, rtol=1e-5, atol=1e-5) == ["pointwise", "indexed", "pointwise", "indexed"]
    graph = Graph(x=random(5, 4, 300), i=indices(5, 9, 1), u=random(9, 4, 300))
    last = graph.add("ScatterND", "x", "i", "u", reduction=reduction)
    assert graph.check(last, rtol=1e-5, atol=1e-5) == ["pointwise", "indexed"]


@pytest.mark.parametrize("count", [2, 1000, 1365])
def test_a_table_of_any_number_of_places(count):
    index = np.concatenate([RNG.permutation(4096)[:count]] * 2)[-count - count // 2 :][:1365]
    graph = Graph(x=random(4096), i=index, u=random(len(index), seed=1))
    last = graph.add("ScatterElements", "x", "i", "u", reduction="add")
    assert graph.check(last) == ["pointwise", "indexed"]


def test_constant_places_that_differ_are_not_compared():
    at = {"known": {1: distinct(200, 50, 1)}}
    assert scatter._nd_are_distinct(at, ((200, 3), DType.FLOAT32))
    graph = Graph(x=random(200, 3), u=random(50, 3, seed=1))
    last = graph.add("ScatterND", "x", graph.constant(at["known"][1]), "u", reduction="add")
    assert graph.check(last) == ["pointwise", "indexed"]
    at["known"][1][3] = at["known"][1][4] - 200
    assert not scatter._nd_are_distinct(at, ((200, 3), DType.FLOAT32))
    index = np.array([[0, 1, -1], [2, 1, 0]])
    assert scatter._are_distinct({"known": {1: index}, "axis": 1}, ((2, 3), DType.FLOAT32))
    index[0, 0] = 2
    assert not scatter._are_distinct({"known": {1: index}, "axis": 1}, ((2, 3), DType.FLOAT32))


@pytest.mark.parametrize("dtype", [np.int64, np.float16, bool])
def test_other_types(dtype):
    index = indices(9, 30)
    graph = Graph(x=random(9).astype(dtype), i=index, u=random(30, seed=1).astype(dtype))
    last = graph.add("ScatterElements", "x", "i", "u")
    assert graph.check(last, rtol=0, atol=0) == ["pointwise", "indexed"]


def test_sums_of_float16_are_rounded_once():
    graph = Graph(x=np.full(1, 2048, np.float16), i=np.zeros(8, np.int64), u=np.ones(8, np.float16))
    last = graph.add("ScatterElements", "x", "i", "u", reduction="add")
    assert run_on_host(graph.model(last), graph.inputs)[0][last].tolist() == [2056]


def test_computed_data_is_written_where_updates_are_put():
    """The kernel that computes it writes the copy; moved updates and indices are read in place."""
    graph = Movements(x=random(6, 8), i=indices(6, 8, 4), u=random(8, 5, seed=1))
    data = graph.add("Relu", "x")
    last = graph.add("ScatterElements", data, graph.turn("i", 1, 0), graph.turn(graph.slice("u", 1, 1), 1, 0), axis=0)
    assert graph.check(last) == ["pointwise", "indexed"]
    graph = Movements(x=random(6, 8), i=indices(6, 3, 1), u=random(3, 8, seed=1))
    data = graph.add("Relu", "x")
    assert graph.check(graph.add("ScatterND", data, "i", "u"), data) == ["pointwise", "pointwise", "indexed"]


def test_images_between_convolutions():
    graph = Graph(x=random(1, 5, 4, 6), i=indices(4, 1, 5, 2, 6), u=random(1, 5, 2, 6, seed=1))
    weights = graph.constant(random(5, 5, 1, 1, seed=2))
    last = graph.add("ScatterElements", graph.add("Conv", "x", weights), "i", "u", axis=2)
    assert "generic" not in graph.check(graph.add("Conv", last, weights), rtol=1e-4, atol=1e-4)


def test_the_copy_comes_before_the_updates_in_whatever_order_streams_allow():
    graph = Graph(x=random(6, 8), i=indices(6, 3, 8), u=random(3, 8, seed=1))
    sides = [graph.add("ScatterElements", graph.add(op, "x"), "i", graph.add(op, "u")) for op in ("Sin", "Cos", "Relu")]
    model = graph.model(*sides)
    wanted, execution = run_on_host(model, graph.inputs)
    for seed in range(20):
        found, _ = run_shuffled(execution, graph.inputs, seed)
        for name in sides:
            np.testing.assert_array_equal(found[name], wanted[name])


@pytest.mark.parametrize(("count", "has_table"), [(2, True), (1000, True), (3000, False)])
@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
def test_updates_have_a_table_in_shared_memory_where_48_kib_hold_it(monkeypatch, op, count, has_table):
    made, name = [], {"ScatterElements": "_elements_by_table", "ScatterND": "_slices_by_table"}[op]
    real = getattr(scatter, name)
    monkeypatch.setattr(scatter, name, lambda *given: made.append(given) or real(*given))
    index = indices(5, count) if op == "ScatterElements" else indices(5, count, 1)
    graph = Graph(x=random(5), i=index, u=random(count, seed=1))
    assert graph.check(graph.add(op, "x", "i", "u"), rtol=1e-5, atol=1e-5)[-1] == "indexed"
    assert bool(made) is has_table
