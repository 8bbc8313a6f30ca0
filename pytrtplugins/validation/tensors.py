"""Check that a constant's bytes match its type and dims, and are in the model."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ModelError
from ..utils.optional import onnx
from .limits import MAX_RANK, MAX_TENSOR_BYTES, size_text

__all__ = [
    "LARGEST_SMALL",
    "bits",
    "check_dims",
    "check_sparse_tensor",
    "check_tensor",
    "dims_text",
    "is_external",
    "packed_bytes",
]

_TYPED_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_BITS_OF = {"FLOAT": 32, "DOUBLE": 64, "COMPLEX64": 64, "COMPLEX128": 128, "BFLOAT16": 16, "BOOL": 8}
_NUMBERED = re.compile(r"(?:FLOAT|U?INT)(\d+)")  # the others say their bits: FLOAT16, UINT4, FLOAT8E4M3FN
LARGEST_SMALL = 64
"""Elements of a constant that may be a shape: `pytrtplugins.model.proto` leaves out what is larger, before shapes are inferred."""
_STRING_BITS = 64  # a pointer, at least


@dataclass(frozen=True)
class _ElementType:
    """An element type: name, bits per element (of a string: those of a pointer), field that holds values outside ``raw_data``."""

    name: str
    bits: int
    field: str

    def entries(self, count: int) -> int:
        """Entries of the field for ``count`` elements: two of a complex number, one of two or four small integers."""
        if self.name.startswith("COMPLEX"):
            return 2 * count
        return -(-count * self.bits // 8) if self.bits in (2, 4) else count


@functools.cache
def _kinds() -> dict[int, _ElementType]:
    kinds = {}
    for name, value in onnx.TensorProto.DataType.items():
        if name == "UNDEFINED":
            continue
        numbered = _NUMBERED.match(name)
        width = _BITS_OF.get(name) or (int(numbered[1]) if numbered else _STRING_BITS)
        kinds[value] = _ElementType(name, width, onnx.helper.tensor_dtype_to_field(value))
    return kinds


def bits(data_type: int) -> int:
    """Bits per element; 0 for a type that the installed onnx does not know."""
    kind = _kinds().get(data_type)
    return 0 if kind is None else kind.bits


def packed_bytes(count: int, data_type: int) -> int:
    """Bytes of ``count`` elements; 4-bit and smaller integers are packed."""
    return -(-count * bits(data_type) // 8)


def is_external(tensor: onnx.TensorProto) -> bool:
    """Whether the tensor's data lie in another file."""
    return bool(tensor.data_location == 1 or tensor.external_data)


def check_dims(dims: tuple[int, ...], data_type: int, what: str) -> int:
    """Check the dims of a tensor, and return its number of elements.

    Raises:
        ModelError: the element type is unknown, there are too many dims, one is negative, or they claim too many bytes.
    """
    if not bits(data_type):
        raise ModelError(f"{what} has the element type {data_type}, which ONNX does not have", found=data_type)
    if len(dims) > MAX_RANK:
        raise ModelError(f"{what} has {len(dims):,} dims; the limit is {MAX_RANK}", found=len(dims))
    if min(dims, default=0) < 0:
        raise ModelError(f"{what} has a negative size in its dims {dims_text(dims)}", found=dims)
    count = math.prod(dims)
    if packed_bytes(count, data_type) > MAX_TENSOR_BYTES:
        raise ModelError(
            f"{what} has the dims {dims_text(dims)}: {size_text(packed_bytes(count, data_type))}; the limit of one tensor is "
            f"{size_text(MAX_TENSOR_BYTES)}",
            found=packed_bytes(count, data_type),
            limit=MAX_TENSOR_BYTES,
        )
    return count


def check_tensor(
    tensor: onnx.TensorProto, where: str, weights_location: str | None = None, *, large: bool = True
) -> None:
    """Check that a constant has the bytes that its type and dims need, in the model itself.

    Args:
        tensor: The constant.
        where: The owner of the tensor, for messages: ``initializer 'w'``, ``node 'c' (Constant): attribute 'value'``.
        weights_location: The location that stands in the place of weights that were left out on purpose, and that nobody reads.
        large: Count the bytes of a large constant too.

    Raises:
        ModelError: its data lie in another file; or its type, dims and bytes do not fit together.
    """
    if is_external(tensor):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if weights_location is not None and entries == {"location": weights_location}:
            check_dims(tuple(tensor.dims), tensor.data_type, where)
            return
        raise ModelError(
            f"{where}: its data lie in another file ({entries.get('location', '')[:200]!r}), which is read only where the folder "
            "of the model is known.\nDo: pytrtplugins.load_onnx(PATH), or onnx.load(PATH), which read a model with its data",
            tensor=tensor.name,
            location=entries.get("location", ""),
        )
    count = check_dims(tuple(tensor.dims), tensor.data_type, where)
    if tensor.HasField("segment"):
        raise ModelError(f"{where}: it is a segment of a tensor, which nothing supports", tensor=tensor.name)
    if not large and count > LARGEST_SMALL:
        return
    kind = _kinds()[tensor.data_type]
    used = [name for name in _TYPED_FIELDS if getattr(tensor, name)]
    raw = tensor.HasField("raw_data")
    if raw and (used or kind.name == "STRING"):
        raise ModelError(
            f"{where}: {kind.name} data in raw_data{''.join(f' and {name}' for name in used)}", tensor=tensor.name
        )
    if used and used != [kind.field]:
        raise ModelError(
            f"{where}: {kind.name} data belong into {kind.field}, found {', '.join(used)}", tensor=tensor.name
        )
    unit, expected = ("bytes", packed_bytes(count, tensor.data_type)) if raw else ("values", kind.entries(count))
    found = len(tensor.raw_data) if raw else len(getattr(tensor, kind.field))
    if found != expected:
        raise ModelError(
            f"{where}: {kind.name} of dims {dims_text(tuple(tensor.dims))} needs {expected:,} {unit}, found {found:,}",
            tensor=tensor.name,
            expected=expected,
            found=found,
        )


def check_sparse_tensor(tensor: onnx.SparseTensorProto, where: str) -> None:
    """Check that values and indices of a sparse constant match its dims."""
    check_tensor(tensor.values, f"{where}, its values")
    check_tensor(tensor.indices, f"{where}, its indices")
    dims, count = tuple(tensor.dims), math.prod(tensor.values.dims)
    check_dims(dims, tensor.values.data_type, where)
    fits = tuple(tensor.indices.dims) in ((count,), (count, len(dims)))
    if not fits or len(tensor.values.dims) != 1 or tensor.indices.data_type != 7:
        raise ModelError(
            f"{where}: {count} values need INT64 indices of dims ({count}) or ({count}, {len(dims)}), found "
            f"{dims_text(tuple(tensor.indices.dims))}",
            tensor=tensor.values.name,
        )


def dims_text(dims: Sequence[int | str]) -> str:
    """Dims for messages, of which only the first are shown."""
    shown = [str(dim) for dim in dims[:8]]
    return f"({', '.join([*shown, '…'] if len(dims) > len(shown) else shown)})"
