"""A plugin ↔ TensorRT's ``PluginField`` objects.

Every field of a plugin that they can hold is one of them: float → FLOAT32, int and bool → INT32, text → CHAR, tuples
of numbers → vectors, arrays with one axis of float32, float64, int8 and int32 → vectors of their type. What they cannot
hold (arrays with more axes, whose shape is lost, and of other types; tuples of text; empty values; numbers beyond 32 bits;
text with a zero byte) travels as the plugin's serialized bytes (docs/format.md) in Base64, in one more field.
"""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import FieldError, SerializationError
from ...plugin.base import Plugin
from ...plugin.fields import MISSING, FieldSpec
from ...plugin.given import came_from
from ...plugin.onnx_node import SCALES
from ._api import Api

__all__ = [
    "EXTRAS",
    "Extras",
    "attribute_values",
    "declared_fields",
    "extra_values",
    "field_collection",
    "from_fields",
    "left_out",
    "needs_bytes",
    "to_fields",
]

_EXTRA_SPECS = (
    FieldSpec("pytrtplugins_serialized", str),
    FieldSpec("pytrtplugins_outputs", int),
    FieldSpec(SCALES, float, is_tuple=True),
    FieldSpec("pytrtplugins_form", str),
)
EXTRAS = tuple(spec.name for spec in _EXTRA_SPECS)
"""Names of the fields that are none of the plugin's own."""

_SERIALIZED, _OUTPUTS, _, _FORM = EXTRAS
_IGNORED = ("plugin_namespace", "plugin_version", "name")  # attributes of the ONNX node that a parser may pass on
_KINDS: dict[type, tuple[str, type]] = {
    bool: ("INT32", np.int32),
    int: ("INT32", np.int32),
    float: ("FLOAT32", np.float32),
    str: ("CHAR", np.int8),
}
_ARRAYS = {"float32": "FLOAT32", "float64": "FLOAT64", "int8": "INT8", "int32": "INT32"}
_LISTS = {
    "float16": "float32",
    "uint8": "int32",
    "int64": "int32",
    "bool": "int32",
}  # as what a parser passes on an attribute that is a list
_INT32 = np.iinfo(np.int32)

Items = list[tuple[str, str, npt.NDArray[Any]]]


@dataclass(frozen=True)
class Extras:
    """What a plugin in TensorRT needs beside its fields.

    Attributes:
        outputs: How many outputs its node has; 0 if unknown.
        scales: Value of one int8 step of each input, then of each output; empty if unknown.
        form: The form that the user asked for, ``"enqueue"`` or ``"compute"``; empty: `enqueue`, where the class has one.
    """

    outputs: int = 0
    scales: tuple[float, ...] = ()
    form: str = ""


@functools.cache
def _collection_class(api: Api) -> type:
    trt = api.trt

    class FieldCollection(trt.PluginFieldCollection_):  # type: ignore[misc, name-defined]
        """A field collection that owns the memory into which TensorRT's pointers point."""

        def __init__(self, items: Items) -> None:
            self._arrays = [np.ascontiguousarray(array).reshape(-1) for _, _, array in items]
            self._fields = [
                trt.PluginField(name, array, getattr(trt.PluginFieldType, kind))
                for (name, kind, _), array in zip(items, self._arrays, strict=True)
            ]
            self._vector = trt.PluginFieldCollection(self._fields)
            super().__init__(self._vector)

    return FieldCollection


def field_collection(api: Api, items: Items) -> Any:
    """Name, type and values of fields as TensorRT's ``PluginFieldCollection_``.

    TensorRT holds pointers only: keep the object as long as TensorRT may read it.
    """
    return _collection_class(api)(items)


def declared_fields(api: Api, cls: type[Plugin]) -> Any:
    """The fields that a creator announces, without values; a parser passes on no others."""
    items = [(spec.name, *_declared(spec)) for spec in (*cls.field_specs(), *_EXTRA_SPECS) if _is_declared(spec)]
    return field_collection(api, [(name, kind, np.empty(0, dtype)) for name, kind, dtype in items])


def to_fields(api: Api, plugin: Plugin, extras: Extras) -> Any:
    """A plugin as fields from which `from_fields` makes it again."""
    values, added = plugin.fields(), extra_values(plugin, extras)
    items = [_item(spec, values[spec.name]) for spec in plugin.field_specs() if _fits(spec, values[spec.name])]
    items += [_item(spec, added[spec.name]) for spec in _EXTRA_SPECS if spec.name in added]
    return field_collection(api, items)


def attribute_values(plugin: Plugin, extras: Extras, tensors: int) -> dict[str, Any]:
    """Attributes of a node that TensorRT's parser makes a plugin of: all that the creator declares, since it warns of each that is missing.

    Fields that `PluginField` objects cannot hold are 0, or empty: the serialized bytes have them. Tuples of text are left out.

    Args:
        plugin: The plugin.
        extras: What it needs besides.
        tensors: How many inputs and outputs the node has; a scale of 0 says nothing.
    """
    pairs = zip(plugin.field_specs(), plugin.fields().values(), strict=True)
    unfit = {spec.name: _placeholder(spec) for spec, value in pairs if _is_declared(spec) and not _fits(spec, value)}
    return {**unfit, _SERIALIZED: "", SCALES: (0.0,) * tensors, _FORM: "", **extra_values(plugin, extras)}


def left_out(plugin: Plugin) -> list[str]:
    """Names of fields that no attribute of a node brings to TensorRT."""
    return [spec.name for spec in plugin.field_specs() if not _is_declared(spec)]


def _placeholder(spec: FieldSpec) -> Any:
    if spec.kind is str:
        return ""
    is_array = spec.kind is np.ndarray
    is_float = _declared(spec)[0].startswith("FLOAT") if is_array else spec.kind is float
    value = 0.0 if is_float else 0
    return (value,) if spec.is_tuple or is_array else value


def extra_values(plugin: Plugin, extras: Extras) -> dict[str, Any]:
    """What goes into the fields of `EXTRAS`, by their names; those that a plugin does not need are left out."""
    data = base64.b64encode(plugin.serialize()).decode() if needs_bytes(plugin) else ""
    values = {_SERIALIZED: data, _OUTPUTS: extras.outputs, SCALES: extras.scales, _FORM: extras.form}
    return {name: value for name, value in values.items() if value}


def from_fields(cls: type[Plugin], collection: Iterable[Any]) -> tuple[Plugin, Extras]:
    """Make the plugin that fields describe: those of `to_fields`, or a parser's. Missing ones have their defaults.

    Raises:
        FieldError: a field is unknown, has a wrong value, or is missing and has no default.
        SerializationError: the serialized bytes are damaged or another plugin's.
    """
    values = {field.name: _value(field) for field in collection}
    outputs, scales, data, form = (values.pop(name, None) for name in (_OUTPUTS, SCALES, _SERIALIZED, _FORM))
    extras = Extras(
        int(np.reshape(outputs, -1)[0]) if outputs is not None and np.size(outputs) else 0,
        tuple(float(scale) for scale in np.reshape(scales, -1)) if scales is not None and np.any(scales) else (),
        form.decode() if isinstance(form, bytes) else "",
    )
    if data:
        try:
            return cls.deserialize(base64.b64decode(data, validate=True)), extras
        except binascii.Error as error:
            raise SerializationError(f"{cls.__name__}: field {_SERIALIZED} is not Base64: {error}") from error
    specs = {spec.name: spec for spec in cls.field_specs()}
    unknown = [name for name in values if name not in specs and name not in _IGNORED]
    if unknown:
        raise FieldError(
            f"{cls.plugin_key()}: unknown fields {unknown}; the class declares {list(specs) or 'none'}", name=unknown[0]
        )
    missing = [name for name, spec in specs.items() if spec.default is MISSING and name not in values]
    if missing:
        raise FieldError(
            f"{cls.plugin_key()}: field {missing[0]!r} is missing and has no default; given: {list(values) or 'none'}.\n"
            "Causes: (1) the ONNX node lacks the attribute; (2) it is a tuple of text, which TensorRT's parser does "
            "not pass on.\n"
            'Do: pytrtplugins.build(model, engine="tensorrt"), which passes on every field',
            name=missing[0],
        )
    with came_from("TensorRT's field '{}'"):
        return cls(**{name: _given(spec, values[name], cls) for name, spec in specs.items() if name in values}), extras


def needs_bytes(plugin: Plugin) -> bool:
    """Whether a field of the plugin has a value that ``PluginField`` objects cannot hold."""
    return not all(
        _fits(spec, value) for spec, value in zip(plugin.field_specs(), plugin.fields().values(), strict=True)
    )


def _is_declared(spec: FieldSpec) -> bool:
    """Whether a ``PluginField`` can hold a value of the field."""
    return not (spec.kind is str and spec.is_tuple)


def _declared(spec: FieldSpec) -> tuple[str, Any]:
    if spec.kind is not np.ndarray:
        return _KINDS[spec.kind]
    found = spec.dtype or ("float32" if spec.default is MISSING else spec.default.dtype.name)
    name = _LISTS.get(found, found)
    return _ARRAYS[name], np.dtype(name)


def _fits(spec: FieldSpec, value: Any) -> bool:
    if spec.kind is np.ndarray:
        return value.ndim == 1 and 0 < value.size <= _INT32.max and value.dtype.name in _ARRAYS
    if not _is_declared(spec) or (value in ("", ()) and not isinstance(value, (bool, int, float))):
        return False
    if spec.kind is str:
        return "\0" not in value
    items = value if spec.is_tuple else (value,)
    return spec.kind is not int or all(_INT32.min <= item <= _INT32.max for item in items)


def _item(spec: FieldSpec, value: Any) -> tuple[str, str, npt.NDArray[Any]]:
    if spec.kind is np.ndarray:
        return spec.name, _ARRAYS[value.dtype.name], value
    kind, dtype = _KINDS[spec.kind]
    if spec.kind is str:
        return spec.name, kind, np.frombuffer(value.encode(), np.int8)
    return spec.name, kind, np.array(value if spec.is_tuple else [value], dtype)


def _value(field: Any) -> Any:
    """A field's value, copied: an array, or the bytes of text."""
    try:
        data = field.data
    except AttributeError as error:
        raise FieldError(f"field {field.name!r}: its type {field.type} cannot be read", name=field.name) from error
    return bytes(data).rstrip(b"\0") if field.type.name == "CHAR" else np.array(data)


def _given(spec: FieldSpec, value: Any, cls: type[Plugin]) -> Any:
    """A field's value in the form that the class's constructor takes."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise FieldError(f"{cls.__name__}.{spec.name}: not UTF-8: {value!r}", name=spec.name) from error
    if spec.kind is np.ndarray:
        return value
    items = value.reshape(-1).tolist()
    if spec.is_tuple:
        return tuple(items)
    if len(items) != 1:
        raise FieldError(f"{cls.__name__}.{spec.name}: expected one value, found {len(items)}", name=spec.name)
    return items[0]
