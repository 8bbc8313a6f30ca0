"""Read the fields of a plugin from the attributes and constant inputs of the node that it replaces."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import FieldError, UsageError
from ..plugin.base import Plugin
from ..plugin.field_values import value_origin
from ..plugin.fields import MISSING, FieldSpec, format_value
from ..plugin.onnx_node import node_attributes
from ..utils.optional import onnx
from .fit import node_type
from .proto import arrays_of, node_name

__all__ = ["FROM_NODE", "plugin_from_node"]

FROM_NODE = "from node"
"""Every attribute and constant input becomes the field of its name."""

_IGNORED = {"plugin_namespace", "plugin_version"}


def plugin_from_node(
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    cls: object,
    fields: str | Mapping[str, str],
    inputs: Collection[str] = (),
) -> Plugin:
    """Make a plugin whose fields have the values of a node's attributes and constant inputs.

    An input goes by the operator's own name for it (``slope`` of PRelu), the tensor's, or the last part of that (``slope`` of
    ``model.act.slope``). An attribute that is left out has the operator's default.

    Args:
        model: With the node.
        node: The node.
        cls: The plugin's class.
        fields: `FROM_NODE`; or field → name of the attribute or input, where the names differ or some are to be left out.
        inputs: Constants that stay inputs.

    Raises:
        FieldError: a field has no value, a value fits no field, or has another type; the message lists what the node has.
        UsageError: ``fields`` is something else, or names what is not there.
    """
    if not (isinstance(cls, type) and issubclass(cls, Plugin)):
        raise UsageError(f"fields={fields!r} reads a node's values into a plugin class; found {cls!r}")
    node_values = _NodeValues(model, node, inputs)
    specs = {spec.name: spec for spec in cls.field_specs()}
    if fields == FROM_NODE:
        name_of = {name: name for name in specs if node_values.key(name)}
        unused = node_values.without([node_values.key(name) for name in name_of])
    elif isinstance(fields, Mapping):
        for name, value_name in fields.items():
            if name not in specs:
                raise UsageError(f"fields: {name!r} is not a field of {cls.__name__}, which {_fields_text(specs)}.")
            if not node_values.key(value_name):
                raise UsageError(f"fields: {node_values.where} has no {value_name!r}; {node_values}.")
        name_of, unused = dict(fields), []
    else:
        raise UsageError(
            f"fields={fields!r}: expected {FROM_NODE!r}, or a mapping of fields to names of attributes or inputs"
        )
    missing = [name for name, spec in specs.items() if name not in name_of and spec.default is MISSING]
    if missing or unused:
        problems = [f"field {specs[name].name!r} ({specs[name].type_name}) finds no value" for name in missing]
        problems += [f"{text} finds no field" for text in unused]
        unset = missing or [name for name in specs if name not in name_of]
        examples = ", ".join(f"{name!r}: ..." for name in unset) or ", ".join(f"{n!r}: {n!r}" for n in name_of)
        advice = (
            f"Do: declare a field of that name, or say which become fields, and leave out the others: fields={{{examples}}} "
            f"(in a shell: --field {next(iter(unset or name_of), 'FIELD')}=NAME)"
        )
        if any(text.startswith("constant input ") for text in unused):
            names = [name for name in node.input if name]
            advice += (
                f"\nOr let the plugin read constants as inputs: inputs={names} (in a shell: --inputs {','.join(names)})"
            )
        raise FieldError(
            f"{node_values.where}: {'; '.join(problems)}.\n{cls.__name__} {_fields_text(specs)}; {node_values}.\n{advice}",
            name=missing[0] if missing else None,
        )
    return cls(
        **{name: node_values.value(specs[name], value_name, cls.__name__) for name, value_name in name_of.items()}
    )


class _NodeValues:
    """A node's attributes and constant inputs, by name."""

    def __init__(self, model: onnx.ModelProto, node: onnx.NodeProto, inputs: Collection[str]) -> None:
        self.where = f"node {node_name(node)!r} ({node_type(node)})"
        self._attributes = {k: v for k, v in node_attributes(node).items() if k not in _IGNORED}
        input_names, self._defaults = _schema_names_and_defaults(model, node)
        arrays = _constants(model, [name for name in node.input if name not in inputs])
        self._constants: dict[str, Any] = {}
        self._names: dict[str, str] = {}  # other names of constants
        for index, tensor in enumerate(node.input):
            if tensor in arrays:
                self._constants[tensor] = arrays[tensor]
                names = [input_names[min(index, len(input_names) - 1)]] if input_names else []
                for name in (*names, re.split(r"[/.:]", tensor)[-1]):
                    self._names.setdefault(name, tensor)

    def key(self, name: str) -> str:
        """Return the attribute or tensor with a name or short name; ``""`` if there is none."""
        if name in self._attributes or name in self._constants:
            return name
        return self._names.get(name) or (name if name in self._defaults else "")

    def value(self, spec: FieldSpec, name: str, owner: str) -> Any:
        """Return the value with a name, converted to the type of a field."""
        key = self.key(name)
        value = {**self._defaults, **self._constants, **self._attributes}[key]
        kind = "attribute" if key in self._attributes or key in self._defaults else "constant input"
        if isinstance(value, np.ndarray):
            value = spec.field_kind.from_array(value)
        with value_origin(f"{kind} {key!r} of {self.where}"):
            return spec.convert(value, owner)

    def without(self, keys: Collection[str]) -> list[str]:
        """Return texts of the attributes and constants whose names are not in ``keys``, without the operator's defaults."""
        attributes = [
            f"attribute {name!r} = {_value_text(value)}" for name, value in self._attributes.items() if name not in keys
        ]
        return attributes + [
            f"constant input {name!r} {_value_text(value)}"
            for name, value in self._constants.items()
            if name not in keys
        ]

    def __str__(self) -> str:
        return f"the node has {', '.join(self.without(())) or 'no attributes and no constant inputs'}"


def _fields_text(specs: Mapping[str, FieldSpec]) -> str:
    return f"declares {', '.join(f'{spec.name}: {spec.type_name}' for spec in specs.values()) or 'no fields'}"


def _value_text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"({value.dtype}{list(value.shape)})"
    return format_value(tuple(value) if isinstance(value, list) else value)[:80]


def _schema_names_and_defaults(model: onnx.ModelProto, node: onnx.NodeProto) -> tuple[list[str], dict[str, Any]]:
    """Return the input names and attribute defaults of the operator's schema; empty for a custom operator."""
    version = next((item.version for item in model.opset_import if item.domain == node.domain), 1)
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return [], {}
    defaults = [item.default_value for item in schema.attributes.values() if item.default_value.name]
    holder = onnx.NodeProto(op_type=node.op_type, attribute=defaults)
    return [item.name for item in schema.inputs], node_attributes(holder)


def _constants(model: onnx.ModelProto, names: Sequence[str]) -> dict[str, Any]:
    """Return the arrays of the named initializers and Constant nodes."""
    graph = model.graph
    arrays = arrays_of(tensor for tensor in graph.initializer if tensor.name in names)
    for node in graph.node:
        if node.op_type == "Constant" and node.output[0] in names:
            arrays[node.output[0]] = np.asarray(next(iter(node_attributes(node).values())))
    return arrays
