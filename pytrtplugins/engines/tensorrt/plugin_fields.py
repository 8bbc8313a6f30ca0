"""A plugin ↔ TensorRT's ``PluginField`` objects.

Every field of a plugin that they can hold is one of them: float → FLOAT32, int and bool → INT32, text → CHAR, tuples
of numbers → vectors, arrays with one axis of float32, float64, int8 and int32 → vectors of their type. What they cannot
hold (arrays with more axes, whose shape is lost, and of other types; tuples of text; empty values; numbers beyond 32 bits;
text with a zero byte) travels as the plugin's serialized bytes (docs/reference/format.md) in Base64, in one more field.
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
from ...plugin.field_values import value_origin
from ...plugin.fields import MISSING, FieldSpec
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
    specs = (*cls.field_specs(), *_EXTRA_SPECS)
    items = [(spec.name, *declared) for spec in specs if (declared := _declared(spec)) is not None]
    return field_collection(api, [(name, kind, np.empty(0, dtype)) for name, kind, dtype in items])


def to_fields(api: Api, plugin: Plugin, extras: Extras) -> Any:
    """A plugin as fields from which `from_fields` makes it again."""
    values = {**plugin.fields(), **extra_values(plugin, extras)}
    specs = [spec for spec in (*plugin.field_specs(), *_EXTRA_SPECS) if spec.name in values]
    items = [(spec.name, spec.field_kind.to_plugin_field(values[spec.name])) for spec in specs]
    return field_collection(api, [(name, *item) for name, item in items if item is not None])


def attribute_values(plugin: Plugin, extras: Extras, tensors: int) -> dict[str, Any]:
    """Attributes of a node that TensorRT's parser makes a plugin of: all that the creator declares, since it warns of each that is missing.

    Fields that `PluginField` objects cannot hold are 0, or empty: the serialized bytes have them. Tuples of text are left out.

    Args:
        plugin: The plugin.
        extras: What it needs besides.
        tensors: How many inputs and outputs the node has; a scale of 0 says nothing.
    """
    pairs = zip(plugin.field_specs(), plugin.fields().values(), strict=True)
    unfit = {
        spec.name: spec.field_kind.placeholder(_default(spec))
        for spec, value in pairs
        if _declared(spec) is not None and spec.field_kind.to_plugin_field(value) is None
    }
    return {**unfit, _SERIALIZED: "", SCALES: (0.0,) * tensors, _FORM: "", **extra_values(plugin, extras)}


def left_out(plugin: Plugin) -> list[str]:
    """Names of fields that no attribute of a node brings to TensorRT."""
    return [spec.name for spec in plugin.field_specs() if _declared(spec) is None]


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
    with value_origin("TensorRT's field '{}'"):
        return cls(**{name: _given(spec, values[name], cls) for name, spec in specs.items() if name in values}), extras


def needs_bytes(plugin: Plugin) -> bool:
    """Whether a field of the plugin has a value that ``PluginField`` objects cannot hold."""
    pairs = zip(plugin.field_specs(), plugin.fields().values(), strict=True)
    return any(spec.field_kind.to_plugin_field(value) is None for spec, value in pairs)


def _declared(spec: FieldSpec) -> tuple[str, str] | None:
    """Types of the ``PluginField`` that is announced and of its elements; None where none can hold a value of the field."""
    return spec.field_kind.declared_plugin_field(_default(spec))


def _default(spec: FieldSpec) -> Any:
    return None if spec.default is MISSING else spec.default


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
    try:
        return spec.field_kind.from_plugin_field(value)
    except ValueError as error:
        raise FieldError(f"{cls.__name__}.{spec.name}: {error}", name=spec.name) from None
