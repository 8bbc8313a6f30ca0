"""The reader of .caffemodel files, on bytes made by hand."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darknet2caffe._onnx_writer import length_delimited
from darknet2caffe.caffemodel import MAX_BLOBS, MAX_LAYERS, read_caffemodel
from pytrtplugins.errors import ModelError

SIX = np.arange(6, dtype="<f4")


def field(number, data):
    return length_delimited(number, len(data)) + data


def varint(number, value):
    return bytes([number << 3]) + length_delimited(0, value)[1:]  # tag and length are written alike


def layer(*blobs, name=b"conv"):
    return field(100, field(1, name) + b"".join(field(7, blob) for blob in blobs))


def read(folder, data):
    (folder / "a.caffemodel").write_bytes(data)
    return read_caffemodel(folder / "a.caffemodel")


SHAPES = {
    "packed": field(7, field(1, b"\x02\x03")),
    "one by one": field(7, varint(1, 2) + varint(1, 3)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_blobs_have_their_shape_and_numbers(tmp_path, shape, dtype):
    data = field(5 if dtype == "<f4" else 8, SIX.astype(dtype).tobytes())
    ((name, (blob,)),) = read(tmp_path, field(1, b"net") + layer(SHAPES[shape] + data)).items()
    assert (name, blob.dtype, blob.flags.writeable) == ("conv", np.float32, False)
    np.testing.assert_array_equal(blob, SIX.reshape(2, 3))


def test_older_files_have_four_dims(tmp_path):
    blob = varint(2, 2) + varint(4, 3) + field(5, SIX.tobytes())
    assert read(tmp_path, layer(blob))["conv"][0].shape == (1, 2, 1, 3)


def test_parts_of_a_blob_are_joined_and_other_fields_passed_over(tmp_path):
    parts = field(5, SIX[:2].tobytes()) + field(6, b"gradients...") + field(5, SIX[2:].tobytes())
    others = varint(9, 300) + b"\x0d1234" + b"\x0912345678" + field(101, b"anything")
    found = read(tmp_path, others[:3] + layer(SHAPES["packed"] + parts) + others[3:] + layer(name=b"relu"))
    np.testing.assert_array_equal(found["conv"][0], SIX.reshape(2, 3))
    assert list(found) == ["conv"]


def test_fields_of_known_numbers_in_another_form_are_passed_over(tmp_path):
    blob = varint(7, 9) + field(2, b"dims") + SHAPES["packed"] + varint(7, 9) + field(5, SIX.tobytes()) + field(4, b"d")
    parts = varint(1, 5) + varint(7, 5) + field(1, b"conv") + field(7, blob) + varint(1, 5) + varint(7, 5)
    tag_of_100 = field(100, b"")[:-1]
    number_100 = bytes([tag_of_100[0] & ~7]) + tag_of_100[1:] + b"\x07"  # as a varint
    ((name, (values,)),) = read(tmp_path, varint(2, 3) + number_100 + field(100, parts) + varint(2, 3)).items()
    assert name == "conv"
    np.testing.assert_array_equal(values, SIX.reshape(2, 3))


def test_an_empty_file_has_no_weights(tmp_path):
    assert read(tmp_path, b"") == {}


def test_a_blob_without_values_is_empty(tmp_path):
    (blob,) = read(tmp_path, layer(field(7, varint(1, 0)) + field(5, b"")))["conv"]
    assert blob.shape == (0,)


WRONG = {
    "ends inside a number": b"\x80",
    "more than 64 bits": b"\xff" * 11,
    "a field of the unknown form 3": b"\x0b",
    "extends 5 bytes beyond its message": field(100, b"\x0a\x06a"),
    "upgrade_net_proto_binary": field(2, b"anything"),
    "the name of a layer is not UTF-8": layer(name=b"\xff"),
    "two layers of the name 'conv'": layer(SHAPES["packed"] + field(5, SIX.tobytes())) * 2,
    r"has the shape \[2, 3\] and 2 values": layer(SHAPES["packed"] + field(5, SIX[:2].tobytes())),
    r"has the shape \[1, 1, 1, 1\] and 6 values": layer(field(5, SIX.tobytes())),
    "7 bytes are not whole numbers": layer(field(5, bytes(7))),
    "one by one instead of packed": layer(b"\x2d" + struct.pack("<f", 1)),
    "NaN, infinity": layer(varint(4, 1) + field(5, struct.pack("<f", float("nan")))),
    "more than float32 can": layer(varint(4, 1) + field(8, struct.pack("<d", 1e300))),
    "a blob of 33 axes": layer(field(7, field(1, b"\x01" * 40)) + field(5, SIX.tobytes())),
    "more than caffe's numbers": layer(field(7, varint(1, 2**31)) + field(5, SIX.tobytes())),
    "a blob of 2 axes, or of more": layer(field(7, varint(1, 2**31) + varint(1, 1)) + field(5, SIX.tobytes())),
    "more than 1,000 blobs": layer(*[b""] * (MAX_BLOBS + 1)),
    "more than 100,000 layers": field(100, b"") * (MAX_LAYERS + 2),
}


@pytest.mark.parametrize("problem", WRONG)
def test_damaged_files_are_refused_with_the_byte(tmp_path, problem):
    with pytest.raises(ModelError, match=problem) as caught:
        read(tmp_path, WRONG[problem])
    assert 0 <= caught.value.offset <= len(WRONG[problem])
    assert caught.value.path == str(tmp_path / "a.caffemodel")


def test_a_blob_may_have_32_axes_and_a_layer_1_000_blobs(tmp_path):
    (blob,) = read(tmp_path, layer(field(7, field(1, b"\x01" * 31 + b"\x06")) + field(5, SIX.tobytes())))["conv"]
    assert blob.shape == (1,) * 31 + (6,)
    empty = field(7, varint(1, 0)) + field(5, b"")
    assert len(read(tmp_path, layer(*[empty] * 1000))["conv"]) == 1000


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ModelError, match="cannot be read"):
        read_caffemodel(tmp_path / "none.caffemodel")


@settings(deadline=10_000)
@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.caffemodel"
    path.write_bytes(data)
    try:
        found = read_caffemodel(path)
    except ModelError as error:
        offset = error.offset
    else:
        offset = 0
        assert all(np.isfinite(blob).all() for blobs in found.values() for blob in blobs)
    assert 0 <= offset <= len(data)
