"""Tensors of the Open Inference Protocol."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from pytrtplugins import DType, SymbolicDim, TensorDesc
from pytrtplugins.errors import RequestError
from pytrtplugins.serving.model.tensors import DATATYPES, TensorSpec, as_strings, datatype_of, to_bytes, to_strings

SPEC = TensorSpec("x", "FP32", (-1, 3))


def test_a_tensor_of_an_engine_has_minus_one_for_free_dims():
    assert TensorSpec.of(TensorDesc("x", (SymbolicDim("N"), 3), DType.FLOAT16)) == TensorSpec("x", "FP16", (-1, 3))


@pytest.mark.parametrize("name", DATATYPES)
def test_every_type_survives_bytes(name):
    array = np.array([[0, 1, 1]]).astype(DATATYPES[name].numpy)
    spec = TensorSpec("x", name, (-1, 3))
    assert datatype_of(array) == name
    np.testing.assert_array_equal(spec.from_bytes(memoryview(to_bytes(array)), (1, 3)), array)


@pytest.mark.parametrize("name", DATATYPES)
def test_every_type_is_read_from_a_list(name):
    values = [[True, False, True]] if name == "BOOL" else [[1, 0, 1]]
    found = TensorSpec("x", name, (-1, 3)).from_list(values, (1, 3))
    assert found.dtype == DATATYPES[name].numpy
    assert found.astype(int).tolist() == [[1, 0, 1]]


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5, 6]]])
def test_lists_may_be_flat_or_nested(data):
    assert SPEC.from_list(data, (2, 3)).tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("datatype", "shape", "text"),
    [
        ("FP64", [1, 3], "expected datatype FP32, found 'FP64'"),
        (None, [1, 3], "expected datatype FP32, found None"),
        ("FP32", [1, 4], r"expected shape \[-1, 3\], found \[1, 4\]"),
        ("FP32", [3], "expected shape"),
        ("FP32", [-1, 3], "a list of sizes"),
        ("FP32", [True, 3], "a list of sizes"),
        ("FP32", [1 << 50, 3], "a list of sizes"),
        ("FP32", "1,3", "a list of sizes"),
    ],
)
def test_other_types_and_dims_are_refused(datatype, shape, text):
    with pytest.raises(RequestError, match=text):
        SPEC.check(datatype, shape)


def test_dims_beside_a_zero_are_bounded_too():
    with pytest.raises(RequestError, match="larger than any memory"):
        TensorSpec("x", "FP32", (-1, -1, -1)).check("FP32", [0, 1 << 39, 1 << 39])


def test_bytes_must_be_as_many_as_the_dims_need_before_anything_is_made():
    with pytest.raises(RequestError, match="expected 13,194,139,533,300 bytes"):
        SPEC.from_bytes(memoryview(bytes(12)), ((1 << 40) - 1, 3))


@pytest.mark.parametrize(
    ("datatype", "data", "text"),
    [
        ("FP32", [1, 2], "expected 3 values"),
        ("FP32", ["1", "2", "3"], "expected numbers for FP32"),
        ("FP32", [[1, 2], [3]], "data"),
        ("FP32", [None, 1, 2], "expected numbers"),
        ("FP32", 7, "expected a list"),
        ("UINT8", [1, 2, 256], "outside of UINT8"),
        ("UINT8", [1, 2, -1], "outside of UINT8"),
        ("UINT8", [1, 2, 1.5], "expected whole numbers for UINT8"),
        ("FP16", [1, 2, 70000], "outside of FP16"),
        ("FP16", [1, 2, -70000.5], "outside of FP16"),
        ("BF16", [1, 2, 3.4e38], "outside of BF16"),
        ("FP32", [1, 2, 1e39], "outside of FP32"),
        ("INT32", [1.5, 2, 3], "expected whole numbers for INT32"),
        ("INT64", [1, 2, 1 << 70], "expected whole numbers"),
        ("BOOL", [1, 0, 1], "expected true or false for BOOL"),
        ("INT64", [True, 2, 3], "expected whole numbers for INT64"),
    ],
)
def test_values_that_do_not_fit_are_refused(datatype, data, text):
    with pytest.raises(RequestError, match=text):
        TensorSpec("x", datatype, (3,)).from_list(data, (3,))


def test_strings_have_their_length_before_them():
    assert to_bytes(to_strings(["ab", "ä"], (2,))) == struct.pack("<I2sI2s", 2, b"ab", 2, "ä".encode())
    assert datatype_of(to_strings(["a"], (1,))) == "BYTES"


def test_strings_are_read_from_their_bytes_and_counted_first():
    spec = TensorSpec("s", "BYTES", (-1, 2))
    data = struct.pack("<I2sI", 2, b"ab", 0)
    assert spec.from_bytes(memoryview(data), (1, 2)).tolist() == [[b"ab", b""]]
    for damaged in (data[:-1], data + b"x", struct.pack("<I2sI", 3, b"ab", 0), b"\xff" * 10, b""):
        with pytest.raises(RequestError, match="2 strings"):
            spec.from_bytes(memoryview(damaged), (1, 2))
    with pytest.raises(RequestError, match="262,144 strings"):
        spec.check("BYTES", [1 << 18, 2])


def test_what_is_no_string_is_refused_where_a_model_gives_it():
    found = as_strings(np.array(["a", b"b"], object))
    assert found.tolist() == [b"a", b"b"]
    assert as_strings(np.array(["ä", "bc"])).tolist() == ["ä".encode(), b"bc"]
    with pytest.raises(ValueError, match="expected numbers, bytes or text"):
        as_strings(np.array([None, {}], object))
