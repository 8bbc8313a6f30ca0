"""Elements of tensors in ONNX files, against onnx's own writer."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from pytrtplugins.errors import ModelError
from pytrtplugins.validation.tensors import _kinds, bits, check_sparse_tensor, check_tensor, is_external, packed_bytes
from tests.onnx_parts import external

TYPES = sorted(name for name, _ in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING"))


@pytest.mark.parametrize("name", TYPES)
def test_five_elements_are_as_many_entries_and_bytes_as_onnx_writes(name):
    kind = TensorProto.DataType.Value(name)
    typed = onnx.helper.make_tensor("x", kind, [5], np.ones(5))
    assert len(getattr(typed, _kinds()[kind].field)) == _kinds()[kind].entries(5)
    raw = onnx.numpy_helper.from_array(np.ones(5, onnx.helper.tensor_dtype_to_np_dtype(kind)))
    assert (len(raw.raw_data), packed_bytes(5, kind)) == (packed_bytes(5, kind), -(-5 * bits(kind) // 8))


@pytest.mark.parametrize("location", [TensorProto.DEFAULT, TensorProto.EXTERNAL])
@pytest.mark.parametrize("keys", [[], ["location"]])
def test_data_are_in_another_file_if_one_of_two_fields_says_so(location, keys):
    tensor = TensorProto(data_location=location, external_data=[onnx.StringStringEntryProto(key=key) for key in keys])
    assert is_external(tensor) == (location == TensorProto.EXTERNAL or keys != [])


def test_weights_that_were_left_out_have_their_dims_checked_and_no_others_are_left_out():
    check_tensor(external("w", "nowhere"), "w", "nowhere")
    for tensor, problem in (
        (external("w", "nowhere", dims=(-1, 4)), r"^w has a negative size in its dims \(-1, 4\)"),
        (external("w", "elsewhere"), "in another file \\('elsewhere'\\)"),
        (external("w", "nowhere", offset=3), "in another file"),
    ):
        with pytest.raises(ModelError, match=problem):
            check_tensor(tensor, "w", "nowhere")


@pytest.mark.parametrize(
    ("dims", "problem"), [([8], None), ([-8], "negative size"), ([1 << 40, 1 << 40], "the limit of one tensor")]
)
def test_dims_of_a_sparse_tensor_are_those_of_a_tensor(dims, problem):
    values = onnx.helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])
    indices = onnx.helper.make_tensor("i", TensorProto.INT64, [1, len(dims)], [0] * len(dims))
    sparse = onnx.helper.make_sparse_tensor(values, indices, dims)
    if problem is None:
        check_sparse_tensor(sparse, "s")
    else:
        with pytest.raises(ModelError, match=f"^s has .*{problem}"):
            check_sparse_tensor(sparse, "s")
