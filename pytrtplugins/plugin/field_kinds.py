"""All kinds of fields: bool, int, float, text, tuples of these, and arrays."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import SerializationError
from ..utils.cpp_literals import float_literal, int_literal, text_literal
from ..utils.override import override
from .field_kind import FieldKind, Scalar, TupleKind, UnfitValueError, Values
from .field_values import ARRAY_DTYPES, as_array
from .packing import Reader, pack_text

__all__ = ["KINDS", "SCALARS", "kind_like", "kind_of"]

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_INT32 = np.iinfo(np.int32)
_PLUGIN_FIELDS = {"float32": "FLOAT32", "float64": "FLOAT64", "int8": "INT8", "int32": "INT32"}
"""Types of TensorRT's ``PluginField`` that hold arrays, by the type of their elements."""
_LISTS = {"float16": "float32", "uint8": "int32", "int64": "int32", "bool": "int32"}
"""Elements of other arrays, as TensorRT's parser passes them on from an attribute that is a list."""


class _Bool(Scalar):
    """Python's bool."""

    annotation, code, layout = bool, 1, "?"
    onnx, plugin_field, element_dtype = "INT", ("INT32", "int32"), "int8"
    cpp, cpp_empty, expression = "bool", " = {}", "b"
    torch, torch_letter, is_torch_list, caffe = "bool", "b", False, "bool"
    samples, is_varied = (False, True), True

    @override
    def adapt(self, value: Any) -> Any:
        return bool(value) if isinstance(value, int) and value in (0, 1) else value

    @override
    def to_onnx(self, value: Any) -> Any:
        return int(value)

    @override
    def cpp_literal(self, value: Any) -> str:
        return "true" if value else "false"


class _Int(Scalar):
    """Python's int, within 64 bits."""

    annotation, code, layout = int, 2, "q"
    onnx, plugin_field, element_dtype = "INT", ("INT32", "int32"), "int64"
    cpp, cpp_empty, expression = "int64_t", " = {}", "i"
    torch, torch_letter, caffe = "int", "i", "int64"
    samples, is_varied = (1, 2, 3, 4), True

    @override
    def check(self, value: Any) -> Any:
        if not -(2**63) <= value < 2**63:
            raise UnfitValueError(value, f"{value} does not fit into 64 bits")
        return value

    @override
    def fits_plugin_field(self, value: Any) -> bool:
        return bool(_INT32.min <= value <= _INT32.max)

    @override
    def cpp_literal(self, value: Any) -> str:
        return int_literal(value)


class _Float(Scalar):
    """Python's float, rounded to float32, the type in ONNX, TensorRT and caffe, so that every form has the same value."""

    annotation, code, layout = float, 3, "f"
    onnx, plugin_field, element_dtype, zero = "FLOAT", ("FLOAT32", "float32"), "float64", 0.0
    cpp, cpp_empty, expression = "float", " = {}", "f"
    torch, torch_letter, caffe = "float", "f", "float"
    samples = (1.0, 0.5)

    @override
    def adapt(self, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return float(value) if abs(value) <= _FLOAT32_MAX else (1e300 if value > 0 else -1e300)
        return value

    @override
    def check(self, value: Any) -> Any:
        rounded = float(np.float32(value)) if abs(value) <= _FLOAT32_MAX or not math.isfinite(value) else math.inf
        if math.isinf(rounded) and not math.isinf(value):
            raise UnfitValueError(value, f"{value} does not fit into float32")
        return rounded

    @override
    def shown(self, value: Any) -> str:
        """The fewest digits that give the same float32."""
        if 1e-4 <= abs(value) < 1e16:
            return np.format_float_positional(np.float32(value), unique=True, trim="0")
        return str(np.float32(value))

    @override
    def cpp_literal(self, value: Any) -> str:
        return float_literal(value, "f")


class _Text(Scalar):
    """Python's str."""

    annotation, code = str, 4
    onnx, plugin_field, element_dtype, zero = "STRING", ("CHAR", "int8"), "", ""
    cpp, expression = "std::string", "s"
    torch, torch_letter, is_torch_list, caffe = "str", "s", False, "string"
    quotes, samples = '"', ("a",)

    @override
    def pack_items(self, values: Sequence[Any]) -> bytes:
        return b"".join(map(pack_text, values))

    @override
    def unpack_items(self, reader: Reader, count: int) -> tuple[Any, ...]:
        return tuple(reader.text() for _ in range(count))

    @override
    def to_plugin_field(self, value: Any) -> tuple[str, Values] | None:
        return ("CHAR", np.frombuffer(value.encode(), np.int8)) if value and "\0" not in value else None

    @override
    def from_quick(self, *attributes: Any) -> Any:
        return attributes[0]

    @override
    def cpp_literal(self, value: Any) -> str:
        return text_literal(value)

    @override
    def torch_literal(self, value: Any) -> str | None:
        return None


class _Array(FieldKind):
    """NumPy arrays of one element type, or of any that a field may have if ``dtype`` is empty."""

    annotation, source, code, onnx = np.ndarray, "np.ndarray", 33, "TENSOR"
    cpp, expression = "Array", "array"
    file_ending, example = ".npy", "@{}.npy"

    def __init__(self, dtype: str = "") -> None:
        self.dtype = dtype
        self.type_name = f"numpy.ndarray of {dtype}" if dtype else "numpy.ndarray"
        self.cpp_empty = f"{{{text_literal(dtype)}, {{0}}, {{}}}}" if dtype else ""

    @override
    def convert(self, value: Any) -> Any:
        try:
            array = as_array(value, self.dtype)
        except (ValueError, TypeError) as error:
            if not (hasattr(value, "dtype") or isinstance(value, (list, tuple, int, float))):
                raise UnfitValueError(value) from error
            expected = self.dtype or ", ".join(ARRAY_DTYPES)
            raise UnfitValueError(value, f"expected an array of {expected}, found {error}") from error
        array.flags.writeable = False
        return array

    @override
    def from_array(self, array: Values) -> Any:
        return array

    @override
    def pack(self, value: Any) -> bytes:
        sizes = struct.pack(f"<I{value.ndim}Q", value.ndim, *value.shape)
        elements: bytes = value.astype(value.dtype.newbyteorder("<")).tobytes()
        return pack_text(value.dtype.name) + sizes + elements

    @override
    def unpack(self, reader: Reader, where: str) -> Any:
        dtype_name, (ndim,) = reader.text(), reader.unpack("<I")
        if dtype_name not in ARRAY_DTYPES or ndim > 64:
            raise SerializationError(f"{where}: array of type {dtype_name!r} with {ndim} axes")
        shape = reader.unpack(f"<{ndim}Q")
        dtype = np.dtype(dtype_name).newbyteorder("<")
        data = reader.take(
            math.prod(shape) * dtype.itemsize
        )  # Python ints: no overflow, and nothing is allocated before
        try:
            array = np.frombuffer(data, dtype).reshape(shape).astype(np.dtype(dtype_name))
        except ValueError as error:  # more axes than NumPy has, or no elements, but a length beyond 63 bits
            raise SerializationError(f"{where}: array of shape {shape}: {error}") from error
        array.flags.writeable = False
        return array

    @override
    def to_plugin_field(self, value: Any) -> tuple[str, Values] | None:
        fits = value.ndim == 1 and 0 < value.size <= _INT32.max and value.dtype.name in _PLUGIN_FIELDS
        return (_PLUGIN_FIELDS[value.dtype.name], value) if fits else None

    @override
    def from_plugin_field(self, elements: Values) -> Any:
        return elements

    @override
    def declared_plugin_field(self, default: Any) -> tuple[str, str] | None:
        dtype = self.dtype or ("float32" if default is None else default.dtype.name)
        dtype = _LISTS.get(dtype, dtype)
        return _PLUGIN_FIELDS[dtype], dtype

    @override
    def placeholder(self, default: Any) -> Any:
        declared = self.declared_plugin_field(default)
        return (0.0,) if declared and declared[0].startswith("FLOAT") else (0,)

    @override
    def quick_types(self, numbers: bool) -> dict[str, Any]:
        return {"{}": self.dtype, "{}_dims": "int64"}

    @override
    def to_quick(self, value: Any, numbers: bool) -> tuple[Any, ...]:
        return np.ascontiguousarray(value).reshape(-1), np.array(value.shape, np.int64)

    @override
    def from_quick(self, *attributes: Any) -> Any:
        values, dims = attributes
        return np.reshape(values, tuple(np.reshape(dims, -1).tolist()))

    @override
    def cpp_literal(self, value: Any) -> str:
        data = value.astype(value.dtype.newbyteorder("<")).tobytes()
        return f'Array{{"{value.dtype.name}", {{{", ".join(map(str, value.shape))}}}, {{{", ".join(map(str, data))}}}}}'

    @override
    def cpp_after_visit(self, member: str, label: str) -> list[str]:
        return [f"convert({member}, {label}, {text_literal(self.dtype)});"] if self.dtype else []

    @override
    def cpp_required(self, member: str, label: str) -> list[str]:
        return [f"requireElements({member}, {label});"]


SCALARS: dict[type, Scalar] = {kind.annotation: kind for kind in (_Bool(), _Int(), _Float(), _Text())}
"""Kinds by the types of their values."""
KINDS: tuple[FieldKind, ...] = (*SCALARS.values(), *map(TupleKind, SCALARS.values()), _Array())
"""All kinds."""


@functools.cache
def kind_of(annotation: type, is_tuple: bool = False, dtype: str = "") -> FieldKind:
    """The kind of fields of this type, or of tuples of it; ``dtype`` is the element type of arrays."""
    if annotation is np.ndarray:
        return _Array(dtype)
    return TupleKind(SCALARS[annotation]) if is_tuple else SCALARS[annotation]


def kind_like(value: Any) -> FieldKind | None:
    """The kind of a field that may have this value; None where none may."""
    if isinstance(value, np.ndarray):
        return kind_of(np.ndarray)
    is_tuple = type(value) is tuple and len(set(map(type, value))) == 1
    scalar = SCALARS.get(type(value[0]) if is_tuple else type(value))
    return TupleKind(scalar) if is_tuple and scalar else scalar
