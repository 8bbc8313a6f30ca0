"""Views, against NumPy's."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.engines.cuda.device.layout import linear
from pytrtplugins.engines.cuda.device.moves import Expanded, Reshaped, Sliced, Source, Transposed
from pytrtplugins.engines.cuda.device.strided import Strided, contiguous
from pytrtplugins.engines.cuda.plan.moves import strided
from pytrtplugins.tensor import DType

SIZES = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)


def places(view):
    """The number of each value of a view in memory, as its parts say."""
    found = np.array(view.offset)
    for axis in view.axes:
        own = np.zeros(1, int)
        for size, stride in axis:
            own = np.add.outer(own, np.arange(size) * stride).ravel()
        found = np.add.outer(found, own)
    return found


def parted(draw, count):
    """Dims of so many values."""
    dims = []
    while count > 1 and draw(st.booleans()):
        size = draw(st.sampled_from([size for size in range(1, count + 1) if count % size == 0]))
        dims.append(size)
        count //= size
    return [*dims, count]


@given(SIZES, st.data())
def test_any_way_of_moving_values_gives_what_numpy_gives(dims, data):
    view, array = contiguous(dims), np.arange(np.prod(dims)).reshape(dims)
    for _ in range(data.draw(st.integers(1, 6))):
        move = data.draw(st.sampled_from(["transpose", "reshape", "select", "slice", "expand"]))
        if move == "transpose":
            axes = data.draw(st.permutations(range(array.ndim)))
            view, array = view.transposed(axes), array.transpose(axes)
        elif move == "reshape":
            wanted = parted(data.draw, array.size)
            moved, array = view.reshaped(wanted), array.reshape(wanted)
            if moved is None:
                return
            view = moved
        elif move == "select" and array.ndim > 1:
            axis = data.draw(st.integers(0, array.ndim - 1))
            index = data.draw(st.integers(-array.shape[axis], array.shape[axis] - 1))
            view, array = view.selected(axis, index), np.take(array, index, axis)
        elif move == "slice":
            axis = data.draw(st.integers(0, array.ndim - 1))
            first, step = data.draw(st.integers(0, array.shape[axis] - 1)), data.draw(st.sampled_from([1, 2, -1]))
            taken = range(array.shape[axis])[first::step]
            moved = view.sliced(axis, first, len(taken), step)
            if moved is None:
                return
            view, array = moved, np.take(array, list(taken), axis)
        elif move == "expand" and array.size < 500:
            wanted = [2, *(3 if size == 1 else size for size in array.shape)]
            view, array = view.expanded(wanted), np.broadcast_to(array, wanted)
        assert view.dims == array.shape
        np.testing.assert_array_equal(places(view), array)
        if view.strides is not None:
            assert all(len(axis) <= 1 for axis in view.axes)


@given(st.data())
def test_a_chain_of_moves_is_the_view_that_numpy_gives_or_none(data):
    dims = tuple(data.draw(SIZES))
    move: Any = Source(dims, "x")
    array = np.arange(np.prod(dims)).reshape(dims)
    for kind in data.draw(
        st.lists(st.sampled_from(["transposed", "reshaped", "sliced", "expanded"]), min_size=1, max_size=5)
    ):
        if kind == "transposed":
            perm = tuple(data.draw(st.permutations(range(array.ndim))))
            array = array.transpose(perm)
            move = Transposed(array.shape, move, perm)
        elif kind == "reshaped":
            array = array.reshape(parted(data.draw, array.size))
            move = Reshaped(array.shape, move)
        elif kind == "expanded":
            array = np.broadcast_to(array, [2, *(3 if size == 1 else size for size in array.shape)])
            move = Expanded(array.shape, move)
        else:
            first: list[int] = []
            steps: list[int] = []
            for axis, size in enumerate(array.shape):
                begin, step = data.draw(st.integers(0, size - 1)), data.draw(st.sampled_from([1, 2, -1]))
                array = array.take(range(begin, size if step > 0 else -1, step), axis)
                first, steps = [*first, begin], [*steps, step]
            move = Sliced(array.shape, move, tuple(first), tuple(steps))
    view = strided(move, linear(dims, DType.FLOAT32))
    if view is not None:
        assert view.dims == array.shape
        np.testing.assert_array_equal(places(view), array)


def test_axes_that_were_joined_come_apart_again():
    view = contiguous((5, 2, 3, 12, 4)).selected(2, 1).reshaped((5, 24, 4))
    assert view is not None
    assert view.strides is None
    apart = view.transposed((1, 0, 2)).reshaped((2, 12, 5, 4))
    assert apart == Strided((((2, 144),), ((12, 4),), ((5, 288),), ((4, 1),)), 48)
    assert apart.strides == (144, 4, 288, 1)


def test_a_part_of_a_run_that_is_no_whole_number_of_values_is_none():
    assert contiguous((4, 6)).transposed((1, 0)).reshaped((8, 3)) is None


def test_a_slice_of_an_axis_of_two_parts_is_none_whatever_else_is_sliced():
    joined = Reshaped((6, 4), Transposed((3, 2, 4), Source((2, 3, 4), "x"), (1, 0, 2)))
    form = linear((2, 3, 4), DType.FLOAT32)
    assert strided(Sliced((5, 2), joined, (1, 1), (1, 1)), form) is None
    assert strided(Sliced((6, 2), joined, (0, 1), (1, 1)), form) == Strided((((3, 4), (2, 12)), ((2, 1),)), 1)


def test_what_is_contiguous_stays_so_with_other_dims():
    for wanted in ((6, 4), (2, 12), (24,), (1, 24, 1), (2, 3, 2, 2)):
        view = contiguous((2, 3, 4)).reshaped(wanted)
        assert view.strides == contiguous(wanted).strides, wanted
