"""Arrays between guard pages, in this process: what was written around them is told with its place."""

import ctypes

import numpy as np
import pytest

from pytrtplugins.check.guard import Memory
from pytrtplugins.errors import PluginError


def bytes_around(region, first, size):
    """Memory from a place on, counted from the array's first byte."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(region.data + first))


def test_arrays_are_zeros_and_known_in_their_order():
    with Memory(at_end=True) as memory:
        arrays = [memory.array("x", (3, 2), "float32"), memory.array("y", (), "int8", read_only=True)]
        assert [(region.name, region.dims, region.dtype, region.read_only) for region in memory.regions] == [
            ("x", (3, 2), np.float32, False),
            ("y", (), np.int8, True),
        ]
        assert [region.data for region in memory.regions] == [array.ctypes.data for array in arrays]
        assert not any(array.any() for array in arrays)
        assert memory.damage() == ""


@pytest.mark.parametrize(
    ("at_end", "first", "words"),
    [
        (True, -1, "out-of-bounds write, off by one: element -1 of x (float32[3], elements 0 to 2) was written"),
        (True, -9, "out-of-bounds write: element -3 of x (float32[3], elements 0 to 2) was written"),
        (True, 12, "out-of-bounds write, off by one: element 3 of x (float32[3], elements 0 to 2) was written"),
        (False, 20, "out-of-bounds write: element 5 of x (float32[3], elements 0 to 2) was written"),
    ],
)
def test_what_is_written_around_an_array_is_told_with_its_place(at_end, first, words):
    def write():
        with Memory(at_end=at_end) as memory:
            memory.array("x", (3,), "float32")
            bytes_around(memory.regions[0], first, 1)[0] = 1
            assert memory.damage() == words

    with pytest.raises(PluginError) as caught:
        write()
    assert str(caught.value) == words


@pytest.mark.parametrize("at_end", [True, False])
def test_accesses_up_to_16_mib_from_an_array_are_caught(at_end):
    with Memory(at_end=at_end) as memory:
        memory.array("x", (1000,), "float32")
        (region,) = memory.regions
        assert region.data - region.low >= 16 << 20
        assert region.high - (region.data + 4000) >= 16 << 20
        assert (region.data + 4000 + (16 << 20) == region.high) == at_end
        assert (region.data - (16 << 20) == region.low) == (not at_end)
