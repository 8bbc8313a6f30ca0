"""Arrays in shared memory."""

import numpy as np
import pytest

from pytrtplugins import DType
from pytrtplugins.errors import FormatError
from pytrtplugins.serving.shared.packing import pack, packed_bytes, unpack
from tests.randomness import generator

ARRAYS = {
    "x": np.arange(6, dtype=np.float32).reshape(2, 3),
    "ä": np.array(7, np.int64),
    "": np.empty((0, 5), np.uint8),
    "turned": np.arange(12, dtype=np.int16).reshape(3, 4).T,
}


def packed(arrays):
    memory = bytearray(packed_bytes(arrays))
    assert pack(arrays, memoryview(memory)) == len(memory)
    return memory


def test_arrays_survive_with_names_types_and_dims():
    found = unpack(memoryview(packed(ARRAYS)))
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("dtype", DType)
def test_every_type_survives(dtype):
    array = np.array([[0, 1, 1]]).astype(dtype.numpy)
    found = unpack(memoryview(packed({"x": array})))["x"]
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


def test_strings_survive():
    strings = np.array([[b"ab", b""], [b"\xff\0", "ä".encode()]], object)
    found = unpack(memoryview(packed({"x": ARRAYS["x"], "s": strings, "none": strings[:0]})))
    assert found["s"].tolist() == strings.tolist()
    assert found["none"].shape == (0, 2)
    np.testing.assert_array_equal(found["x"], ARRAYS["x"])


def test_nothing_is_copied_when_arrays_are_read():
    memory = packed(ARRAYS)
    found = unpack(memoryview(memory))["x"]
    memory[:] = bytes(len(memory))
    assert not found.any()


def test_damaged_bytes_are_our_error_or_arrays_within_the_memory():
    memory, random = packed(ARRAYS), generator(0)
    for at in range(160):  # the head
        damaged = bytearray(memory)
        damaged[at] ^= 1 << int(random.integers(8))
        try:
            found = unpack(memoryview(damaged))
        except FormatError:
            continue
        assert all(array.nbytes <= len(memory) for array in found.values())
    for end in range(len(memory)):
        try:
            unpack(memoryview(memory)[:end])
        except FormatError:
            continue
        assert end >= len(memory) - 64  # what is cut off was padding


def test_heads_that_are_looked_up_are_those_of_the_arrays_at_hand():
    for rows in (1, 2, 1, 300, 2):  # the same names and types, other dims, then the first again
        array = np.full((rows, 2), rows, np.float32)
        np.testing.assert_array_equal(unpack(memoryview(packed({"x": array})))["x"], array)
    for name in map(str, range(600)):  # more than are kept
        assert list(unpack(memoryview(packed({name: np.zeros(1, np.uint8)})))) == [name]


def test_a_head_that_is_known_is_checked_against_each_memory():
    memory = packed({"x": np.zeros(100, np.float32)})
    assert unpack(memoryview(memory))["x"].shape == (100,)
    with pytest.raises(FormatError, match="expected 512 bytes, found 128"):
        unpack(memoryview(memory)[:128])


def test_no_arrays_at_all_are_a_form_too():
    assert unpack(memoryview(packed({}))) == {}
