"""TopK, ArgMax and ArgMin as one kernel in the graph, against NumPy's stable sort, and onnxruntime."""

import numpy as np
import pytest
from onnx import helper

from pytrtplugins.engines.cuda.device.indexed import top_k as top_k_module
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import host_execution, run_on_host
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.engines.cuda.plan.test_moves import Movements
from tests.engines.operators import ints, literal, model_of
from tests.randomness import generator

RNG = generator(5)


def top_k(graph, x, k, *names, axis=-1):
    graph.nodes.append(helper.make_node("TopK", [x, graph.constant(ints(k))], names, "top", axis=axis))


def best(x, k, axis, largest):
    """The first of equal values first; NaN is the largest."""
    values = np.moveaxis(x, axis, -1)
    if largest:
        order = values.shape[-1] - 1 - np.flip(np.argsort(np.flip(values, -1), axis=-1, kind="stable"), -1)
    else:
        order = np.argsort(values, axis=-1, kind="stable")
    order = order[..., :k]
    return [np.moveaxis(each, -1, axis) for each in (np.take_along_axis(values, order, -1), order)]


def found(x, k, opset=11, **attributes):
    model = model_of("TopK", [x, ints(k)], attributes, 2, opset)
    outputs, execution = run_on_host(prepare(model), {"x0": x})
    assert [(step.kind, step.capturable) for step in execution.plan.steps] == [("indexed", True)]
    return list(outputs.values())


def assert_best(x, k, axis=-1, largest=1):
    values, places = found(x, k, axis=axis, largest=largest)
    wanted = best(x, k, axis, largest)
    np.testing.assert_array_equal(places, wanted[1])
    np.testing.assert_array_equal(values, wanted[0])


@pytest.mark.parametrize(
    ("kind", "largest"),
    [
        ("f4", 1),
        ("f4", 0),
        ("f2", 1),
        ("f2", 0),
        ("f8", 0),
        ("i1", 1),
        ("i1", 0),
        ("i4", 0),
        ("i8", 1),
        ("u1", 0),
        ("u8", 1),
    ],
)
def test_ties_and_extremes_of_each_type(kind, largest):
    dtype = np.dtype(kind)
    x = RNG.integers(0 if dtype.kind == "u" else -3, 4, (3, 90)).astype(dtype)
    if dtype.kind == "f":
        x[0, ::7], x[1, 4::9], x[1, 3::11], x[2, 5::8] = -0.0, np.inf, -np.inf, np.nan
    else:
        x[0, ::7], x[1, 4::9] = np.iinfo(dtype).min, np.iinfo(dtype).max
    for k in (20, 90) if kind == "f4" else (20,):
        assert_best(x, k, -1, largest)


@pytest.mark.parametrize(
    ("dims", "axis", "k"), [((2, 5, 3), 1, 4), ((70, 2), 0, 5), ((1, 1), 0, 1), ((2, 3, 2, 4), -2, 1)]
)
def test_any_axis(dims, axis, k):
    assert_best(random(*dims), k, axis)


@pytest.mark.parametrize(
    ("length", "k"), [(8400, 300), (3000, 5), (5000, 4999), (9000, 8000), (40000, 6000), (50000, 70)]
)
def test_long_rows(length, k):
    """Those with many results are sorted in memory, where shared memory does not suffice; blocks share the longest ones."""
    assert_best(np.round(random(2, length), 2), k)


def test_many_equal_values_are_told_apart_by_their_places():
    x = np.zeros((1, 70000), np.float32)
    x[0, 69000:] = 1
    assert_best(x, 1300)
    assert_best(x.astype(np.float16), 1300, largest=0)


def test_it_gives_what_onnxruntime_gives():
    x = random(2, 700)
    wanted = literal(model_of("TopK", [x, ints(50)], {}, 2, 11), {"x0": x})
    for one, other in zip(found(x, 50), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_moved_values_are_read_in_place():
    graph = Movements(x=random(4, 3, 30))
    top_k(graph, graph.turn(graph.slice("x", 2, 5), 1, 0, 2), 7, "values", "places")
    assert graph.check("values", "places", rtol=0, atol=0) == ["indexed"]


def test_images_are_read_and_written_as_they_lie():
    graph = Graph(x=random(1, 5, 4, 6))
    weights = graph.constant(random(5, 5, 1, 1, seed=2))
    pixels = graph.add("Conv", "x", weights)
    top_k(graph, pixels, 3, "values", "places")
    last = graph.add("Conv", "values", weights)
    kinds = graph.check(last, "places", graph.add("ArgMax", pixels, axis=1), rtol=1e-4, atol=1e-4)
    assert "generic" not in kinds
    assert kinds.count("zero") == 1


@pytest.mark.parametrize(
    ("op", "last", "kind", "axis", "keep"),
    [("ArgMax", 0, "f4", 1, 0), ("ArgMax", 1, "i4", 1, 1), ("ArgMin", 1, "f2", -1, 1), ("ArgMin", 0, "u1", 0, 0)],
)
def test_the_place_of_the_best(op, last, kind, axis, keep):
    x = RNG.integers(0, 9, (3, 40, 5)).astype(kind)
    model = model_of(op, [x], {"axis": axis, "keepdims": keep, "select_last_index": last}, opset=13)
    outputs, execution = run_on_host(prepare(model), {"x0": x})
    assert [(step.kind, step.capturable) for step in execution.plan.steps] == [("indexed", True)]
    values = np.flip(x, axis) if last else x
    wanted = (values.argmax if op == "ArgMax" else values.argmin)(axis=axis, keepdims=bool(keep))
    np.testing.assert_array_equal(outputs["y0"], x.shape[axis] - 1 - wanted if last else wanted)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_many_short_rows_and_few_long_ones_and_what_is_no_number(op):
    for dims, axis in (((2, 3, 20000), 1), ((2, 20000), 1)):
        x = random(*dims)
        x[0, ..., 7] = np.nan
        outputs = run_on_host(prepare(model_of(op, [x], {"axis": axis})), {"x0": x})[0]
        wanted = (x.argmax if op == "ArgMax" else x.argmin)(axis=axis, keepdims=True)
        np.testing.assert_array_equal(outputs["y0"], wanted)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("kind", [np.float16, np.int64])
def test_blocks_that_share_a_row_find_the_first_or_the_last_in_each_run(last, kind):
    x = RNG.integers(-9, 9, (3, 50257)).astype(kind)
    model = model_of("ArgMax", [x], {"axis": 1, "select_last_index": last}, opset=13)
    outputs, execution = run_on_host(prepare(model), {"x0": x})
    wanted = 50256 - x[:, ::-1].argmax(1, keepdims=True) if last else x.argmax(1, keepdims=True)
    np.testing.assert_array_equal(outputs["y0"], wanted)
    execution.input("x0")[...] = x = np.roll(x, 777, 1)
    execution.queue(None)
    wanted = 50256 - x[:, ::-1].argmax(1, keepdims=True) if last else x.argmax(1, keepdims=True)
    np.testing.assert_array_equal(execution.output("y0"), wanted)


@pytest.mark.parametrize(
    ("op", "dims", "facts"),
    [
        ("ArgMax", (1, 32), {"THREADS": 1, "SPLITS": 1}),
        ("ArgMax", (1, 33), {"THREADS": 32, "SPLITS": 1}),
        ("ArgMax", (32767, 40), {"THREADS": 32, "SPLITS": 1}),
        ("ArgMax", (32768, 40), {"THREADS": 1, "SPLITS": 1}),
        ("ArgMax", (1, 2047), {"THREADS": 256, "SPLITS": 1}),
        ("ArgMax", (1, 2048), {"THREADS": 256, "SPLITS": 2}),
        ("ArgMax", (1, 1 << 17), {"SPLITS": 32}),
        ("ArgMax", (64, 1 << 17), {"SPLITS": 4}),
        ("ArgMax", (256, 4096), {"SPLITS": 1}),
        ("TopK", (1, 16383), {"SPLITS": 1}),
        ("TopK", (1, 16384), {"SPLITS": 4}),
        ("TopK", (1, 1 << 18), {"SPLITS": 16}),
        ("TopK", (64, 1 << 17), {"SPLITS": 4}),
        ("TopK", (300, 16384), {"SPLITS": 1}),
        ("TopK", (2, 100), {"SELECT": 1, "SIZE": 4, "NEAR": 4}),
    ],
)
def test_how_many_threads_and_blocks_share_a_row(monkeypatch, op, dims, facts):
    """One thread of short or many rows; several blocks of few long ones, each with a part that is worth it."""
    constants = []
    real = top_k_module.row_kernel_text
    monkeypatch.setattr(
        top_k_module, "row_kernel_text", lambda *given, **more: constants.append(given[3]) or real(*given, **more)
    )
    x = np.zeros(dims, np.float32)
    inputs, outputs = ([x, ints(3)], 2) if op == "TopK" else ([x], 1)
    host_execution(prepare(model_of(op, inputs, {"axis": -1}, outputs, 11)), {"x0": x})
    assert {name: constants[0][name] for name in facts} == facts
