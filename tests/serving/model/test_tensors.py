"""Tensors of the Open Inference Protocol."""

from __future__ import annotations

import re
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
    np.testing.assert_array_equal(spec.from_bytes(memoryview(to_bytes(array)), (1, 3), "m"), array)


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
        ("FP64", [1, 3], "inference input 'x' data-type is 'FP64', but model 'm' expects 'FP32'"),
        (None, [1, 3], "data-type is None, but model 'm' expects 'FP32'"),
        (
            "FP32",
            [1, 4],
            r"unexpected shape for input 'x' for model 'm'. Expected \[-1,3\], got \[1,4\], where -1 stands for any size",
        ),
        ("FP32", [3], "unexpected shape"),
        ("FP32", [-1, 3], "must be a list of whole numbers from 0 on"),
        (
            "FP32",
            [True, 3],
            "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer: the shape",
        ),
        ("FP32", [1 << 50, 3], "larger than any memory"),
        ("FP32", [1 << 62, 3], "causes total element count to exceed maximum size of 9223372036854775807"),
        (
            "FP32",
            [(1 << 62) // 3, 3],
            r"byte size overflow for input 'x': element count \(\d+\) \* data type size \(4\)",
        ),
        ("FP32", [1 << 10_000, 3], "causes total element count to exceed"),
        ("FP32", [1 << 64] * 100_000, "unexpected shape"),
        ("FP32", "1,3", "the request has '1,3'"),
    ],
)
def test_other_types_and_dims_are_refused(datatype, shape, text):
    with pytest.raises(RequestError, match=text):
        SPEC.check(datatype, shape, "m")


def test_dims_beside_a_zero_are_bounded_too():
    with pytest.raises(RequestError, match="larger than any memory"):
        TensorSpec("x", "FP32", (-1, -1, -1)).check("FP32", [0, 1 << 39, 1 << 39], "m")


def test_bytes_must_be_as_many_as_the_dims_need_before_anything_is_made():
    with pytest.raises(
        RequestError, match=r"mismatch for input 'x' for model 'm'. Expected 13194139533300, got 12: FP32 of shape"
    ):
        SPEC.from_bytes(memoryview(bytes(12)), ((1 << 40) - 1, 3), "m")


@pytest.mark.parametrize(
    ("datatype", "data", "text"),
    [
        (
            "FP32",
            [1, 2],
            r"'data': Shape does not match true shape of 'data' field: input 'x' of shape \[3\] has 3 values; the request has 2",
        ),
        (
            "FP32",
            ["1", "2", "3"],
            r"'data': attempt to access JSON non-number as double: FP32 of input 'x' takes numbers; the request has \['1', '2', '3'\]",
        ),
        ("FP32", [[1, 2], [3]], "lists of different lengths"),
        ("FP32", [None, 1, 2], "FP32 of input 'x' takes numbers"),
        (
            "FP32",
            7,
            "attempt to access JSON non-array as array: the data of input 'x' must be a list; the request has 7",
        ),
        ("UINT8", [1, 2, 256], "a value of input 'x' lies outside of the datatype UINT8"),
        ("UINT8", [1, 2, -1], "a value of input 'x' lies outside of the datatype UINT8"),
        ("UINT8", [1, 2, 1.5], "JSON non-unsigned-integer as unsigned-integer: UINT8 of input 'x' takes whole numbers"),
        ("FP16", [1, 2, 70000], "outside of the datatype FP16"),
        ("FP16", [1, 2, -70000.5], "outside of the datatype FP16"),
        ("BF16", [1, 2, 3.4e38], "outside of the datatype BF16"),
        ("FP32", [1, 2, 1e39], "outside of the datatype FP32"),
        ("INT32", [1.5, 2, 3], "JSON non-signed-integer as signed-integer: INT32 of input 'x' takes whole numbers"),
        ("INT64", [1, 2, 1 << 70], "outside of the datatype INT64"),
        ("UINT64", [1, 2, 1 << 64], "outside of the datatype UINT64"),
        ("BF16", [1, 2, 1 << 70_0], "outside of the datatype BF16"),
        ("FP64", [1, 2, 1 << 2000], "outside of the datatype FP64"),
        ("BOOL", [1, 0, 1], "BOOL of input 'x' takes true and false"),
        ("INT64", [True, 2, 3], "INT64 of input 'x' takes whole numbers"),
    ],
)
def test_values_that_do_not_fit_are_refused(datatype, data, text):
    with pytest.raises(RequestError, match=text):
        TensorSpec("x", datatype, (3,)).from_list(data, (3,))


def test_large_and_small_whole_numbers_may_be_mixed():
    """NumPy makes floats of a list of both."""
    values = [(1 << 64) - 1, 5, 1 << 63]
    assert TensorSpec("x", "UINT64", (3,)).from_list(values, (3,)).tolist() == values
    assert TensorSpec("x", "BF16", (3,)).from_list([1 << 64, 1, 2], (3,)).astype(float).tolist() == [2.0**64, 1, 2]


def test_lists_may_be_nested_a_hundred_times():
    def nested(depth):
        value: object = 7
        for _ in range(depth):
            value = [value]
        return value

    spec = TensorSpec("x", "INT64", (1, 1))
    assert spec.from_list(nested(100), (1, 1)).tolist() == [[7]]
    with pytest.raises(RequestError, match=r"JSON nesting depth exceeds maximum allowed limit \(100\)"):
        spec.from_list(nested(101), (1, 1))


def test_a_tensor_has_at_most_262144_strings():
    spec = TensorSpec("s", "BYTES", (-1,))
    assert spec.check("BYTES", [1 << 18], "m") == (1 << 18,)
    with pytest.raises(RequestError, match="more than 262,144 strings"):
        spec.check("BYTES", [(1 << 18) + 1], "m")


def test_strings_have_their_length_before_them():
    assert to_bytes(to_strings(["ab", "ä"], (2,))) == struct.pack("<I2sI2s", 2, b"ab", 2, "ä".encode())
    assert datatype_of(to_strings(["a"], (1,))) == "BYTES"


def test_strings_are_read_from_their_bytes_and_counted_first():
    spec = TensorSpec("s", "BYTES", (-1, 2))
    data = struct.pack("<I2sI", 2, b"ab", 0)
    assert spec.from_bytes(memoryview(data), (1, 2), "m").tolist() == [[b"ab", b""]]
    about = "for inference input 's' for model 'm'"
    for damaged, text in (
        (data[:-1], f"incomplete string length indicator {about}, expecting 4 bytes but only 3 bytes available"),
        (data + data[:4], f"unexpected number of string elements 3 {about}, expecting 2"),
        (data[:6], f"expected 2 string elements {about}, got 1"),
        (
            struct.pack("<I2s", 3, b"ab"),
            f"expected 2 string elements {about}, got 1: the last one says that it has 3 bytes, and 2",
        ),
        (b"", f"expected 2 string elements {about}, got 0"),
    ):
        with pytest.raises(RequestError, match=re.escape(text)):
            spec.from_bytes(memoryview(damaged), (1, 2), "m")
    with pytest.raises(RequestError, match="more than 262,144 strings"):
        spec.check("BYTES", [1 << 18, 2], "m")


def test_what_is_no_string_is_refused_where_a_model_gives_it():
    found = as_strings(np.array(["a", b"b"], object))
    assert found.tolist() == [b"a", b"b"]
    assert as_strings(np.array(["ä", "bc"])).tolist() == ["ä".encode(), b"bc"]
    with pytest.raises(ValueError, match="expected numbers, bytes or text"):
        as_strings(np.array([None, {}], object))


@pytest.mark.parametrize("name", DATATYPES)
def test_every_type_has_the_name_that_tritons_client_knows(name):
    utils = pytest.importorskip("tritonclient.utils", reason="pip install tritonclient")
    dtype = np.dtype(DATATYPES[name].numpy)
    if name == "BF16":  # which type the client takes for it depends on its version
        assert dtype.itemsize == 2
        return
    assert utils.np_to_triton_dtype(dtype) == name
    assert np.dtype(utils.triton_to_np_dtype(name)) == dtype
