"""Nodes that only move values: which steps they become, and that the network gives the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import assert_close, run_on_host
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.engines.model_parts import info, model
from tests.engines.operators import literal

WHOLE = 2**63 - 1


class Movements(Graph):
    """A graph with shorter names for what moves values."""

    def slice(self, x, axis, start, end=WHOLE, step=1):
        numbers = [self.constant(np.array([number])) for number in (start, end, axis, step)]
        return self.add("Slice", x, *numbers)

    def pixels(self, x, channels):
        """The same values in NHWC: a convolution's output."""
        ones = self.constant(np.ones((channels, 1, 1, 1), np.float32))
        return self.add("Conv", x, ones, group=channels)

    def roll(self, x, axis, first):
        return self.add("Concat", self.slice(x, axis, first), self.slice(x, axis, 0, first), axis=axis)

    def reshape(self, x, *dims):
        return self.add("Reshape", x, self.constant(np.array(dims)))

    def turn(self, x, *perm):
        return self.add("Transpose", x, perm=perm)

    def pad(self, x, pads, value=0.0):
        return self.add("Pad", x, self.constant(np.array(pads)), self.constant(np.float32(value)))

    def windows(self, x, h, w, c, size):
        parts = self.turn(self.reshape(x, 1, h // size, size, w // size, size, c), 0, 1, 3, 2, 4, 5)
        return self.reshape(parts, h * w // size**2, size**2, c)

    def image(self, x, h, w, c, size):
        parts = self.turn(self.reshape(x, 1, h // size, w // size, size, size, c), 0, 1, 3, 2, 4, 5)
        return self.reshape(parts, 1, h, w, c)


def test_shifted_windows_are_one_copy():
    for channels in (8, 3):
        graph = Movements(x=random(1, 6, 9, channels))
        rolled = graph.roll(graph.roll("x", 1, 2), 2, 1)
        assert graph.check(graph.windows(rolled, 6, 9, channels, 3), rtol=0, atol=0) == ["pointwise"]


def test_a_sum_and_a_normalization_read_shifted_windows_where_they_lie():
    graph = Movements(x=random(6, 9, 8), y=random(1, 6, 9, 8))
    moved = graph.roll(graph.roll(graph.image("x", 6, 9, 8, 3), 1, -2), 2, -1)
    total = graph.add("Add", "y", moved)
    factors = graph.factors(8, (1, 2))
    last = graph.add("LayerNormalization", total, *factors, axis=-1)
    assert graph.check(total, last) == ["pointwise"]


def test_a_normalization_writes_shifted_windows_where_they_belong():
    """The last axis is no multiple of 16 bytes in the second case; the sum lies as it is."""
    for channels in (8, 3):
        graph = Movements(x=random(1, 6, 9, channels))
        total = graph.add("Add", "x", graph.constant(random(channels, seed=3)))
        factors = graph.factors(channels, (1, 2))
        normal = graph.add("LayerNormalization", total, *factors, axis=-1)
        moved = graph.windows(graph.roll(graph.roll(normal, 1, 2), 2, 1), 6, 9, channels, 3)
        assert graph.check(moved, total) == ["pointwise"]


def test_elementwise_results_are_written_turned_only_if_nothing_reads_them_as_they_are():
    graph = Movements(x=random(4, 6, 10))
    last = graph.turn(graph.add("Relu", "x"), 2, 0, 1)
    assert graph.check(last) == ["pointwise"]
    graph = Movements(x=random(4, 6, 10))
    total = graph.add("Relu", "x")
    assert graph.check(graph.turn(total, 2, 0, 1), total) == ["pointwise", "pointwise"]


@pytest.mark.parametrize("channels", [16, 6])
def test_a_normalization_of_groups_is_one_kernel_of_rows(channels):
    """Of images in NHWC too, as convolutions give them."""
    groups = 2
    for opset, size in ((21, channels), (18, groups)):
        graph = Movements(x=random(2, channels, 5, 7))
        factors = graph.factors(size, (1, 2))
        last = graph.add("GroupNormalization", "x", *factors, num_groups=groups)
        assert graph.check(last, opset=opset) == ["pointwise"]
    graph = Movements(x=random(2, channels, 5, 7))
    first = graph.pixels("x", channels)
    factors = graph.factors(groups, (1, 2))
    last = graph.add("GroupNormalization", first, *factors, num_groups=groups)
    assert graph.check(last, opset=18) == ["reformat", "conv", "pointwise"]


def test_a_constant_is_joined_in_the_type_of_the_tensor():
    graph = Movements(x=random(1, 4, 6))
    joined = graph.add("Concat", graph.constant(random(1, 1, 6)), graph.add("Relu", "x"), axis=1)
    model = graph.model(graph.add("Add", joined, graph.constant(np.float32(1))))
    found, execution = run_on_host(model, graph.inputs, DType.FLOAT16)
    assert {step.kind for step in execution.plan.steps} == {"pointwise"}
    assert_close(found, run_on_host(model, graph.inputs)[0], 2e-3)


def test_a_normalization_reads_merged_patches_where_they_lie():
    graph = Movements(x=random(1, 6, 8, 8))
    parts = [graph.slice(graph.slice("x", 1, i, step=2), 2, j, step=2) for j in (0, 1) for i in (0, 1)]
    merged = graph.add("Concat", *parts, axis=-1)
    factors = graph.factors(32, (1, 2))
    assert graph.check(graph.add("LayerNormalization", merged, *factors, axis=-1)) == ["pointwise"]


@pytest.mark.parametrize("late", [False, True])
def test_slices_that_begin_and_end_outside_take_what_onnx_says(late):
    """A start outside is the nearest element, also where the slice runs backwards; numbers may be computed in the run."""
    graph, parts = Movements(x=random(3, 4)), list[str]()
    for start, end, step in (
        *((-9, -9, -1), (-5, -6, -2), (-4, -5, -1), (-4, -4, -1)),
        *((9, -9, -3), (9, 9, 1), (-9, 9, 3)),
    ):
        numbers = [graph.constant(np.array([number])) for number in (start, end, -1, step)]
        if late:
            name = f"start{len(parts)}"
            graph.inputs[name], numbers[0] = np.array([start]), name
        parts.append(graph.add("Slice", "x", *numbers))
    model = graph.model(graph.add("Concat", *parts, axis=-1))
    (wanted,) = literal(model, graph.inputs)
    (result,) = run_on_host(model, graph.inputs)[0].values()
    np.testing.assert_array_equal(result, wanted)


def test_what_moves_nothing_costs_nothing():
    graph = Movements(x=random(1, 6, 8, 8))
    same = graph.slice(graph.pad("x", [0] * 8), 1, 0, 6)
    assert graph.check(graph.add("Relu", graph.reshape(same, 48, 8))) == ["pointwise"]


def test_a_number_around_is_written_by_the_kernel_that_reads():
    graph = Movements(x=random(1, 5, 7, 3))
    around = graph.pad("x", [0, 1, 2, 0, 0, 3, -1, 0], -2.5)
    assert graph.check(graph.add("Mul", around, graph.constant(np.float32(2)))) == ["pointwise"]
    inside = graph.pad(around, [0, 0, 0, 1, 0, 0, 0, 1], 4.0)  # another number: the first is copied
    assert graph.check(graph.add("Relu", inside)) == ["pointwise", "pointwise"]


def test_shuffled_channels_of_images_are_one_copy():
    for channels, half in ((16, np.float32), (6, np.float32)):
        graph = Movements(x=random(2, 8, 5, 5))
        weights = [graph.constant(random(channels, 8, 1, 1, seed=seed, kind=half)) for seed in (1, 2)]
        both = graph.add("Concat", *(graph.add("Conv", "x", each) for each in weights), axis=1)
        parts = graph.turn(graph.reshape(both, 2, 2, channels, 5, 5), 0, 2, 1, 3, 4)
        back = graph.reshape(parts, 2, 2 * channels, 5, 5)
        first, second = graph.slice(back, 1, 0, channels), graph.slice(back, 1, channels)
        last = graph.add("Conv", second, graph.constant(random(4, channels, 1, 1, seed=3)))
        kinds = graph.check(last, first, rtol=1e-4, atol=1e-4)
        assert kinds.count("pointwise") == 2
        assert not {"generic", "zero"} & set(kinds)


def test_a_move_that_is_read_again_and_again_is_copied_where_it_grows_long():
    graph = Movements(x=random(1, 4, 6))
    last = "x"
    for seed in range(7):
        last = graph.add("Concat", graph.slice(last, 1, 1, 4), graph.constant(random(1, 1, 6, seed=seed)), axis=1)
    assert graph.check(last, rtol=0, atol=0) == ["pointwise"] * 3


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_every_type_is_moved_as_it_is(dtype):
    """Types that no kernel takes are moved by functions of arrays."""
    code = helper.np_dtype_to_tensor_dtype(dtype.numpy)
    top, dims = 2 if dtype is DType.BOOL else 256, (3, 4, 10 * dtype.itemsize)
    bits = np.random.default_rng(code).integers(0, top, dims, np.uint8)
    array = bits.view(dtype.numpy) if dtype.itemsize > 1 else bits.astype(dtype.numpy)
    nodes = [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0, 2])]
    inputs, outputs = [info("x", code, array.shape)], [info("y", code, (4, 3, array.shape[2]))]
    found, _ = run_on_host(prepare(model(nodes, inputs, outputs, opset=23, ir=11)), {"x": array})
    assert found["y"].tobytes() == np.ascontiguousarray(array.transpose(1, 0, 2)).tobytes()


def divisors(number):
    return [each for each in range(1, number + 1) if number % each == 0]


@st.composite
def movements(draw):
    """A graph of random nodes that move values, and its last tensor."""
    dims = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    graph = Movements(x=random(*dims))
    last = graph.pixels("x", dims[1]) if len(dims) == 4 else "x"
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["slice", "turn", "reshape", "roll", "pad", "join", "tile"]))
        axis = draw(st.integers(0, len(dims) - 1))
        size = dims[axis]
        if kind == "slice":
            step = draw(st.sampled_from((1, 2, 3, -1, -2)))
            start = draw(st.integers(0, size - 1))
            ends = st.integers(start + 1, size + 1) if step > 0 else st.sampled_from((-WHOLE, start - size - 1))
            end = draw(ends)
            last = graph.slice(last, axis, start, end, step)
            dims[axis] = len(range(size)[start : (end if end > -size - 1 else None) : step])
        elif kind == "turn":
            perm = draw(st.permutations(range(len(dims))))
            last, dims = graph.turn(last, *perm), [dims[each] for each in perm]
        elif kind == "reshape":
            total = int(np.prod(dims))
            first = draw(st.sampled_from(divisors(total)))
            second = draw(st.sampled_from(divisors(total // first)))
            dims = [first, second, total // first // second]
            last = graph.reshape(last, *dims)
        elif kind == "roll" and size > 1:
            last = graph.roll(last, axis, draw(st.integers(1, size - 1)))
        elif kind == "pad":
            before, behind = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
            pads = [0] * (2 * len(dims))
            pads[axis], pads[axis + len(dims)] = before, behind
            last, dims[axis] = graph.pad(last, pads, 7.0), size + before + behind
        elif kind == "join":
            other = graph.constant(random(*(2 if each == axis else count for each, count in enumerate(dims)), seed=9))
            last, dims[axis] = graph.add("Concat", last, other, last, axis=axis), 2 * size + 2
        elif kind == "tile":
            counts = [2 if each == axis else 1 for each in range(len(dims))]
            last, dims[axis] = graph.add("Tile", last, graph.constant(np.array(counts))), 2 * size
        if np.prod(dims) > 5000:
            break
    if len(dims) == 4:
        images = [last, graph.pixels(last, dims[1]), graph.add("MaxPool", last, kernel_shape=[1, 1])]
        last = draw(st.sampled_from(images))
    return graph, last


@given(movements(), st.booleans())
def test_random_movements_are_onnxruntimes(case, computes):
    graph, last = case
    one = graph.constant(np.float32(1))
    result = graph.add("Add", last, one) if computes else graph.add("Identity", last, name="y")
    assert not {"generic"} & set(graph.check(result, rtol=0, atol=0))


@pytest.mark.parametrize("places", [[[0, 2], [1, 3], [2, 4]], [1, 3, 5], [[0, -6, 0]], [[[1]], [[3]]]])
def test_places_that_lie_evenly_are_read_where_they_are(places):
    graph = Movements(x=random(3, 6, 8))
    gathered = graph.add("Gather", "x", graph.constant(np.array(places)), axis=1)
    assert graph.check(graph.add("Relu", gathered), rtol=0, atol=0) == ["pointwise"]


def test_other_places_are_gathered():
    for places in ([0, 1, 3], [3, 2], [[0, 1], [1, 3]]):
        graph = Movements(x=random(3, 6, 8))
        gathered = graph.add("Gather", "x", graph.constant(np.array(places)), axis=1)
        assert graph.check(graph.add("Relu", gathered), rtol=0, atol=0) == ["indexed", "pointwise"]
