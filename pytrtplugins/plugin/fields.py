"""Typed attributes of a plugin: one declaration gives constructor, checks, bytes and ONNX attributes.

The binary layout is written down in docs/reference/format.md, since native code reads it too.
"""

from __future__ import annotations

import inspect
import struct
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..errors import FieldError, SerializationError
from .field_kind import FieldKind, UnfitValueError
from .field_kinds import SCALARS, kind_like, kind_of
from .field_values import ARRAY_DTYPES, origin_of, value_origin
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

_SHOWN = 40  # characters of a value in a message
_OPEN = (np.generic, np.number, np.floating, np.integer, np.signedinteger, np.unsignedinteger, np.inexact)


@dataclass(frozen=True)
class FieldSpec:
    """The declaration of one typed attribute.

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
    def field_kind(self) -> FieldKind:
        """The kind of the field, which writes its values in each form of a plugin."""
        return kind_of(self.kind, self.is_tuple, self.dtype)

    @property
    def code(self) -> int:
        """Type code in the serialized form."""
        return self.field_kind.code

    @property
    def type_name(self) -> str:
        """The type as written in the class: ``tuple[int, ...]``."""
        return self.field_kind.type_name

    def convert(self, value: Any, owner: str) -> Any:
        """Check a value and bring it to its one stored form: Python scalars, tuples, read-only contiguous arrays.

        Floats are rounded to float32, the type that ONNX, TensorRT and caffe give them, so that every form holds the same value.

        Args:
            value: What the caller gave; ints are taken for floats, lists and 1-D arrays for tuples, numbers and lists for arrays.
            owner: Name of the plugin, for messages.
        """
        try:
            return self.field_kind.convert(value)
        except UnfitValueError as error:
            unfit = error
        where, unfit_value = f"{owner}.{self.name}", unfit.value
        if unfit.reason:
            text = f"{where}: {unfit.reason}, from {origin_of(self.name)}"
            raise FieldError(text, name=self.name, value=unfit_value) from unfit.__cause__
        raise FieldError(
            f"{where}: expected {self.type_name}, found {unfit_value!r} ({type(unfit_value).__name__}), from {origin_of(self.name)}",
            name=self.name,
            expected=self.type_name,
            found=unfit_value,
        ) from unfit.__cause__


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
        annotations = inspect.get_annotations(base)
        if not annotations:
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
        for name in annotations:
            hint = hints[name]
            if name.startswith("_") or typing.get_origin(hint) is ClassVar or hint is ClassVar:
                continue
            spec = _spec_from_hint(cls.__name__, name, hint)
            default = getattr(cls, name, MISSING)
            if isinstance(default, (types.MemberDescriptorType, property)):
                default = MISSING
            if default is not MISSING:
                with value_origin("the class"):
                    default = spec.convert(default, cls.__name__)
            specs[name] = replace(spec, default=default)
    return tuple(specs.values())


def _check_annotated(cls: type) -> None:
    """Refuse an attribute without a type, such as ``groups = 2``, which looks like a field but is none."""
    annotated = {name for base in cls.__mro__ for name in inspect.get_annotations(base)}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            kind = kind_like(value)
            if kind and not name.startswith("_") and not name.isupper() and name not in annotated:
                text, type_ = format_value(value), kind.source
                shown = text if len(text) <= _SHOWN else "..."
                raise FieldError(
                    f"{cls.__name__}.{name} = {shown} has no type, so it is not a field.\n"
                    f"Do: annotate it: {name}: {type_} = {shown}; or, for a constant, {name}: ClassVar[{type_}] (from typing), or _{name}",
                    name=name,
                )


def _unaliased(hint: Any) -> Any:
    """The type that an alias of a ``type`` statement stands for; NumPy's ``NDArray`` is such an alias from NumPy 2.5 on."""
    while (value := getattr(typing.get_origin(hint) or hint, "__value__", None)) is not None:
        arguments = typing.get_args(hint)
        hint = value[arguments] if arguments else value
    return hint


def _spec_from_hint(owner: str, name: str, hint: Any) -> FieldSpec:
    hint = _unaliased(hint)
    generic, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in SCALARS:
        return FieldSpec(name, hint)
    if np.ndarray in (hint, generic) and (dtype := _element_type(args)) is not None:
        return FieldSpec(name, np.ndarray, dtype=dtype)
    if generic is tuple and args and all(arg is Ellipsis or arg == args[0] for arg in args) and args[0] in SCALARS:
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
    """A field's value as a person would write it."""
    if isinstance(value, tuple):
        return f"({', '.join(map(format_value, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, np.ndarray):
        return f"array({value.dtype}, shape={value.shape})"
    kind = SCALARS.get(type(value), SCALARS[float] if isinstance(value, float) else None)
    return kind.shown(value) if kind else repr(value)


def fields_equal(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether two sets of field values are the same, arrays by dtype, shape and bytes."""
    return left.keys() == right.keys() and all(_hashable(left[name]) == _hashable(right[name]) for name in left)


def _hashable(value: Any) -> Any:
    """A value in a form that can be compared and hashed."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return value


def pack_fields(specs: tuple[FieldSpec, ...], values: Mapping[str, Any]) -> bytes:
    """Write field values, little-endian, in declared order (layout: docs/reference/format.md)."""
    parts = [struct.pack("<I", len(specs))]
    for spec in specs:
        parts += [pack_text(spec.name), struct.pack("<B", spec.code), spec.field_kind.pack(values[spec.name])]
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
        values[name] = spec.field_kind.unpack(reader, f"{owner}.{name}")
    reader.finish()
    return values
