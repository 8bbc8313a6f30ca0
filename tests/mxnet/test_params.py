"""The .params files of all versions of MXNet are read; damaged ones are refused with the place, before memory is taken."""

import struct

import numpy as np
import pytest

from pytrtplugins.errors import ModelError
from pytrtplugins.mxnet import read_params
from tests.mxnet.files import array_bytes, params_bytes

ARRAYS = {"arg:w": np.arange(6, dtype=np.float32).reshape(2, 3), "aux:v": np.float32([1.5])}


def read(tmp_path, data):
    (tmp_path / "x.params").write_bytes(data)
    return read_params(tmp_path / "x.params")


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_every_version_and_type_gives_the_same_numbers(tmp_path, version, dtype):
    found = read(tmp_path, params_bytes({name: array.astype(dtype) for name, array in ARRAYS.items()}, version))
    assert list(found) == ["w", "v"]
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name[4:]], array)
        assert found[name[4:]].dtype == np.float32


def test_the_bytes_of_a_real_file_are_read(tmp_path):
    """The first array of a file that MXNet 1.0 wrote, cut to two numbers."""
    head = "12010000000000000000000000000000 0100000000000000 c9fa93f9 00000000 01000000 0200000000000000 0100000000000000 00000000"
    rest = "1f322fbe214472bf 0100000000000000 0300000000000000 613a77"
    found = read(tmp_path, bytes.fromhex(head + rest))
    np.testing.assert_array_equal(found["a:w"], np.float32([-0.17108963, -0.94635206]))


def test_a_scalar_has_no_axes(tmp_path):
    found = read(tmp_path, params_bytes({"s": np.array(2.5, np.float32)}, 3))
    assert found["s"].shape == ()


def test_every_cut_is_refused_with_its_place(tmp_path):
    whole = params_bytes(ARRAYS)
    for size in range(0, len(whole), 3):
        with pytest.raises(ModelError, match="\nDo: ") as caught:
            read(tmp_path, whole[:size])
        assert 0 <= caught.value.offset <= size


def claims(array, place, form, value):
    data = bytearray(params_bytes({"w": array}))
    struct.pack_into(form, data, 24 + place, value)
    return bytes(data)


W = ARRAYS["arg:w"]
DAMAGED = {
    "no magic number": (b"PK\x03\x04" + bytes(40), "not a .params file of MXNet: it begins with 50 4b 03 04"),
    "a pickle": (b"\x80\x04\x95" + bytes(40), "not a .params file of MXNet"),
    "many arrays": (struct.pack("<QQQ", 0x112, 0, 2**60), "1,152,921,504,606,846,976 arrays are claimed, and 0 bytes are left"),
    "sparse": (claims(W, 4, "<i", 1), "array 0 is sparse"),
    "many axes": (claims(W, 8, "<i", 65), "array 0 has rank 65"),
    "negative rank": (claims(W, 8, "<i", -2), "array 0 has rank -2"),
    "a negative size": (claims(W, 12, "<q", -2), "expected sizes of at least 1"),
    "a size of 0": (claims(W, 12, "<q", 0), "array 0 has dims (0, 3): expected sizes of at least 1"),
    "a huge size": (claims(W, 12, "<q", 2**62), "array 0 with dims (4611686018427387904, 3) needs 55,340,232,221,128,654,848 bytes"),
    **{
        f"type {name}": (claims(W, 36, "<i", number), f"element type {name}; expected float32")
        for number, name in enumerate(
            ["uint8", "int32", "int8", "int64", "bool", "int16", "uint16", "uint32", "uint64", "bfloat16"], 3
        )
    },
    "an unknown type": (claims(W, 36, "<i", 99), "element type 99"),
    "not a number": (params_bytes({"w": np.float32([1, np.nan])}), "'w' has nan at place 1"),
    "beyond float32": (params_bytes({"w": np.float64([1e300])}), "'w' has 1e+300 at place 0"),
    "two names": (params_bytes({"arg:w": W, "aux:w": W}), "two arrays have the name 'w'"),
    "bytes behind": (params_bytes(ARRAYS) + b"x", "1 bytes are left after the last name"),
    "no names": (struct.pack("<QQQ", 0x112, 0, 1) + array_bytes(W) + bytes(8), "1 arrays and 0 names"),
    "a long name": (params_bytes({"w": W})[:-9] + struct.pack("<Q", 2**63) + b"w", "a name needs 9,223,372,036,854,775,808 bytes"),
    "a name that is no text": (params_bytes({"w": W})[:-1] + b"\xff", "a name is not UTF-8"),
    "never given values": (claims(W, 8, "<i", 0), "array 0 was never given values"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_refused(tmp_path, case):
    data, text = DAMAGED[case]
    with pytest.raises(ModelError, match="\nDo: ") as caught:
        read(tmp_path, data)
    assert text in str(caught.value)
    assert caught.value.path == tmp_path / "x.params"


def test_what_cannot_be_read_says_so(tmp_path):
    with pytest.raises(ModelError, match=r"none\.params: cannot be read: No such file"):
        read_params(tmp_path / "none.params")
    with pytest.raises(ModelError, match="cannot be read: Is a directory"):
        read_params(tmp_path)
