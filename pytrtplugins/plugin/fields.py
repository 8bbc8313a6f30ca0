"""Typed attributes of a plugin: one declaration gives constructor, checks, bytes and ONNX attributes.

The binary layout is written down in docs/format.md, since native code reads it too.
"""

from __future__ import annotations

import inspect
import math
import struct
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np

from ..errors import FieldError, SerializationError
from .given import ARRAY_DTYPES, as_array, came_from, origin
from .packing import Reader, pack_text

__all__ = [
    "MISSING",
    "FieldSpec",
    "collect_field_specs",
    "fields_equal",
    "format_value",
    "pack_fields",
    "unpack_fields",
]

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "<required>"})()
"""Stands for "no default": the attribute must be given to the constructor."""

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_SHOWN = 40  # characters of a value in a message
_SCALARS: dict[type, int] = {bool: 1, int: 2, float: 3, str: 4}
_TUPLE, _ARRAY = 16, 33  # the former is added to the code of a tuple's items
_OPEN = (np.generic, np.number, np.floating, np.integer, np.signedinteger, np.unsignedinteger, np.inexact)
_FORMATS: dict[type, str] = {bool: "?", int: "q", float: "f"}


@dataclass(frozen=True)
class FieldSpec:
    """One typed attribute.

    Attributes:
        name: The attribute's name.
        kind: ``bool``, ``int``, ``float``, ``str``, or ``numpy.ndarray``: the type of the value or of its items.
        is_tuple: Whether the value is a tuple of ``kind``.
        default: The default value, or ``MISSING``.
        dtype: Element type of an array by NumPy's name, as in ``numpy.typing.NDArray[numpy.float32]``; empty for any.
    """

    name: str
    kind: type
    is_tuple: bool = False
    default: Any = MISSING
    dtype: str = ""

    @property
    def code(self) -> int:
        """Type code in the serialized form."""
        if self.kind is np.ndarray:
            return _ARRAY
        return _SCALARS[self.kind] + _TUPLE * self.is_tuple

    @property
    def type_name(self) -> str:
        """The type as written in the class: ``tuple[int, ...]``."""
        if self.kind is np.ndarray:
            return f"numpy.ndarray of {self.dtype}" if self.dtype else "numpy.ndarray"
        name = self.kind.__name__
        return f"tuple[{name}, ...]" if self.is_tuple else name

    def convert(self, value: Any, owner: str) -> Any:
        """Check a value and bring it to its one stored form: Python scalars, tuples, read-only contiguous arrays.

        Floats are rounded to float32, the type that ONNX, TensorRT and caffe give them, so that every form holds the same value.

        Args:
            value: What the caller gave; ints are taken for floats, lists and 1-D arrays for tuples, numbers and lists for arrays.
            owner: Name of the plugin, for messages.

        Raises:
            FieldError: the value has another type, or an int does not fit 64 bits.
        """
        if self.kind is np.ndarray:
            return self._convert_array(value, owner)
        if not self.is_tuple:
            return self._convert_item(value, owner)
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            raise self._error(owner, value)
        return tuple(self._convert_item(item, owner) for item in value)

    def _convert_item(self, given: Any, owner: str) -> Any:
        value: Any = given.item() if isinstance(given, np.generic) else given
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value) if abs(value) <= _FLOAT32_MAX else (1e300 if value > 0 else -1e300)
        if self.kind is bool and value in (0, 1) and isinstance(value, int):
            value = bool(value)
        if type(value) is not self.kind:
            raise self._error(owner, value)
        value = cast(Any, value)
        if self.kind is float:
            rounded = float(np.float32(value)) if abs(value) <= _FLOAT32_MAX or not math.isfinite(value) else math.inf
            if math.isinf(rounded) and not math.isinf(value):
                raise self._too_large(owner, value, "float32")
            return rounded
        if self.kind is int and not -(2**63) <= value < 2**63:
            raise self._too_large(owner, value, "64 bits")
        return value

    def _convert_array(self, value: Any, owner: str) -> Any:
        try:
            array = as_array(value, self.dtype)
        except (ValueError, TypeError) as error:
            if not (hasattr(value, "dtype") or isinstance(value, (list, tuple, int, float))):
                raise self._error(owner, value) from error
            expected = self.dtype or ", ".join(ARRAY_DTYPES)
            raise FieldError(
                f"{owner}.{self.name}: expected an array of {expected}, found {error}, from {origin(self.name)}",
                name=self.name,
                value=value,
            ) from error
        array.flags.writeable = False
        return array

    def _too_large(self, owner: str, value: Any, kind: str) -> FieldError:
        text = f"{owner}.{self.name}: {value} does not fit into {kind}, from {origin(self.name)}"
        return FieldError(text, name=self.name, value=value)

    def _error(self, owner: str, value: Any) -> FieldError:
        return FieldError(
            f"{owner}.{self.name}: expected {self.type_name}, found {value!r} ({type(value).__name__}), from {origin(self.name)}",
            name=self.name,
            expected=self.type_name,
            found=value,
        )


def collect_field_specs(cls: type) -> tuple[FieldSpec, ...]:
    """Read a class's typed attributes, base classes first, in the order in which they are written.

    ``ClassVar`` annotations, names with a leading underscore and constants, whose names are in capitals, are not fields.

    Raises:
        FieldError: an annotation is not a supported type, a default has another type than it says, or a value that could be a
            field's has no annotation.
    """
    _check_annotated(cls)
    specs: dict[str, FieldSpec] = {}
    for base in reversed(cls.__mro__):
        own = inspect.get_annotations(base)
        if not own:
            continue
        try:
            hints = typing.get_type_hints(base)
            for hint in hints.values():
                if isinstance(hint, tuple):  # refused by typing before Python 3.14
                    raise TypeError(f"{hint} is no type")
        except (NameError, TypeError) as error:  # a TypeError: what it names is no type
            raise FieldError(
                f"{cls.__name__}: the annotation of a field cannot be resolved: {error}.\n"
                "Do: import the type that it names; write a type's name, as in count: int",
                cls=cls,
            ) from error
        for name in own:
            hint = hints[name]
            if name.startswith("_") or typing.get_origin(hint) is ClassVar or hint is ClassVar:
                continue
            spec = _spec_from_hint(cls.__name__, name, hint)
            default = getattr(cls, name, MISSING)
            if isinstance(default, (types.MemberDescriptorType, property)):
                default = MISSING
            if default is not MISSING:
                with came_from("the class"):
                    default = spec.convert(default, cls.__name__)
            specs[name] = replace(spec, default=default)
    return tuple(specs.values())


def _check_annotated(cls: type) -> None:
    """Refuse ``groups = 2`` without a type: it would look like a field, and be none."""
    annotated = {name for base in cls.__mro__ for name in inspect.get_annotations(base)}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            kind = _looks_like(value)
            if kind and not name.startswith("_") and not name.isupper() and name not in annotated:
                text = format_value(value)
                shown = text if len(text) <= _SHOWN else "..."
                raise FieldError(
                    f"{cls.__name__}.{name} = {shown} has no type, so it is not a field.\n"
                    f"Do: annotate it: {name}: {kind} = {shown}; or, for a constant, {name}: ClassVar[{kind}] (from typing), or _{name}",
                    name=name,
                )


def _looks_like(value: object) -> str:
    """The type of a field with this value, as written in a class; empty where it can be none."""
    if type(value) is tuple and value and type(value[0]) in _SCALARS and len(set(map(type, value))) == 1:
        return f"tuple[{type(value[0]).__name__}, ...]"
    return "np.ndarray" if isinstance(value, np.ndarray) else type(value).__name__ if type(value) in _SCALARS else ""


def _unaliased(hint: Any) -> Any:
    """What an alias made by a ``type`` statement stands for; NumPy's ``NDArray`` is one from NumPy 2.5 on."""
    while (value := getattr(typing.get_origin(hint) or hint, "__value__", None)) is not None:
        arguments = typing.get_args(hint)
        hint = value[arguments] if arguments else value
    return hint


def _spec_from_hint(owner: str, name: str, hint: Any) -> FieldSpec:
    hint = _unaliased(hint)
    generic, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in _SCALARS:
        return FieldSpec(name, hint)
    if np.ndarray in (hint, generic) and (dtype := _element_type(args)) is not None:
        return FieldSpec(name, np.ndarray, dtype=dtype)
    if generic is tuple and args and all(arg is Ellipsis or arg == args[0] for arg in args) and args[0] in _SCALARS:
        return FieldSpec(name, args[0], is_tuple=True)
    raise FieldError(
        f"{owner}.{name}: type {hint!r} cannot be a field; use bool, int, float, str, a tuple of one of them such as "
        f"tuple[int, ...], or numpy.ndarray.\nDo: annotate it as ClassVar, or call it _{name.lstrip('_')}, if it is not a field.",
        name=name,
    )


def _element_type(args: tuple[Any, ...]) -> str | None:
    """The type's name in ``NDArray[float32]``; empty where the annotation leaves it open, None for one that no field has."""
    scalar = (*(typing.get_args(args[1]) if len(args) > 1 else ()), Any)[0]
    if scalar is Any or not isinstance(scalar, type) or typing.get_origin(scalar) is not None or scalar in _OPEN:
        return ""
    name = np.dtype(scalar).name
    return name if name in ARRAY_DTYPES else None


def format_value(value: Any) -> str:
    """A field's value as a person would write it: floats with the fewest digits that give the same float32."""
    if isinstance(value, tuple):
        return f"({', '.join(map(format_value, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, float):
        if 1e-4 <= abs(value) < 1e16:
            return np.format_float_positional(np.float32(value), unique=True, trim="0")
        return str(np.float32(value))
    if isinstance(value, np.ndarray):
        return f"array({value.dtype}, shape={value.shape})"
    return repr(value)


def fields_equal(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether two sets of field values are the same, arrays by dtype, shape and bytes."""
    return left.keys() == right.keys() and all(_frozen(left[name]) == _frozen(right[name]) for name in left)


def _frozen(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return value


def pack_fields(specs: tuple[FieldSpec, ...], values: Mapping[str, Any]) -> bytes:
    """Write field values, little-endian, in declared order (layout: docs/format.md)."""
    parts = [struct.pack("<I", len(specs))]
    for spec in specs:
        value = values[spec.name]
        parts += [pack_text(spec.name), struct.pack("<B", spec.code)]
        if spec.code == _ARRAY:
            parts.append(pack_text(value.dtype.name))
            parts.append(struct.pack(f"<I{value.ndim}Q", value.ndim, *value.shape))
            parts.append(value.astype(value.dtype.newbyteorder("<")).tobytes())
            continue
        items = value if spec.is_tuple else (value,)
        if spec.is_tuple:
            parts.append(struct.pack("<I", len(items)))
        if spec.kind is str:
            parts += [pack_text(item) for item in items]
        else:
            parts.append(struct.pack(f"<{len(items)}{_FORMATS[spec.kind]}", *items))
    return b"".join(parts)


def unpack_fields(specs: tuple[FieldSpec, ...], data: bytes, owner: str) -> dict[str, Any]:
    """Read what `pack_fields` wrote; every byte is accounted for.

    Raises:
        SerializationError: the bytes end early, go on after the last field, or hold other fields than the class declares.
    """
    reader = Reader(data, owner)
    (count,) = reader.unpack("<I")
    if count != len(specs):
        raise SerializationError(
            f"{owner}: the data holds {count} fields, the class declares {len(specs)} ({', '.join(s.name for s in specs) or 'none'})."
            "\nCauses: the class has changed since; give a changed class a new version."
        )
    values: dict[str, Any] = {}
    for spec in specs:
        name, (code,) = reader.text(), reader.unpack("<B")
        if (name, code) != (spec.name, spec.code):
            raise SerializationError(
                f"{owner}: expected field {spec.name!r} of type {spec.type_name} (code {spec.code}), found {name!r} (code {code})."
                "\nCauses: the class has changed since; give a changed class a new version."
            )
        values[name] = _unpack_value(reader, spec)
    reader.finish()
    return values


def _unpack_value(reader: Reader, spec: FieldSpec) -> Any:
    if spec.code == _ARRAY:
        dtype_name, (ndim,) = reader.text(), reader.unpack("<I")
        if dtype_name not in ARRAY_DTYPES or ndim > 64:
            raise SerializationError(f"{reader.owner}.{spec.name}: array of type {dtype_name!r} with {ndim} axes")
        shape = reader.unpack(f"<{ndim}Q")
        dtype = np.dtype(dtype_name).newbyteorder("<")
        data = reader.take(
            math.prod(shape) * dtype.itemsize
        )  # Python ints: no overflow, and nothing is allocated before
        try:
            array = np.frombuffer(data, dtype).reshape(shape).astype(np.dtype(dtype_name))
        except ValueError as error:  # more axes than NumPy has, or no elements, but a length beyond 63 bits
            raise SerializationError(f"{reader.owner}.{spec.name}: array of shape {shape}: {error}") from error
        array.flags.writeable = False
        return array
    count = reader.unpack("<I")[0] if spec.is_tuple else 1
    if spec.kind is str:
        items: tuple[Any, ...] = tuple(reader.text() for _ in range(count))
    else:
        item_format = _FORMATS[spec.kind]
        items = struct.unpack(f"<{count}{item_format}", reader.take(count * struct.calcsize(f"<{item_format}")))
    if spec.is_tuple:
        return items
    (item,) = items
    return item
