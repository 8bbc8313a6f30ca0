"""A node's attributes and constant inputs → fields of the plugin that takes its place."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FieldError, UsageError
from ..plugin.base import Plugin
from ..plugin.field_values import value_origin
from ..plugin.fields import MISSING, FieldSpec, format_value
from ..plugin.onnx_node import node_attributes
from ..utils.optional import require
from .fit import node_type
from .proto import arrays_of, node_name

if TYPE_CHECKING:
    import onnx

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
    found = _Found(model, node, inputs)
    specs = {spec.name: spec for spec in cls.field_specs()}
    if fields == FROM_NODE:
        chosen = {name: name for name in specs if found.key(name)}
        left = found.without([found.key(name) for name in chosen])
    elif isinstance(fields, Mapping):
        for name, given in fields.items():
            if name not in specs:
                raise UsageError(f"fields: {name!r} is not a field of {cls.__name__}, which {_declares(specs)}.")
            if not found.key(given):
                raise UsageError(f"fields: {found.where} has no {given!r}; {found}.")
        chosen, left = dict(fields), []
    else:
        raise UsageError(
            f"fields={fields!r}: expected {FROM_NODE!r}, or a mapping of fields to names of attributes or inputs"
        )
    empty = [name for name, spec in specs.items() if name not in chosen and spec.default is MISSING]
    if empty or left:
        problems = [f"field {specs[name].name!r} ({specs[name].type_name}) finds no value" for name in empty]
        problems += [f"{text} finds no field" for text in left]
        open_ones = empty or [name for name in specs if name not in chosen]
        examples = ", ".join(f"{name!r}: ..." for name in open_ones) or ", ".join(f"{n!r}: {n!r}" for n in chosen)
        advice = (
            f"Do: declare a field of that name, or say which become fields, and leave out the others: fields={{{examples}}} "
            f"(in a shell: --field {next(iter(open_ones or chosen), 'FIELD')}=NAME)"
        )
        if any(text.startswith("constant input ") for text in left):
            names = [name for name in node.input if name]
            advice += (
                f"\nOr let the plugin read constants as inputs: inputs={names} (in a shell: --inputs {','.join(names)})"
            )
        raise FieldError(
            f"{found.where}: {'; '.join(problems)}.\n{cls.__name__} {_declares(specs)}; {found}.\n{advice}",
            name=empty[0] if empty else None,
        )
    return cls(**{name: found.value(specs[name], given, cls.__name__) for name, given in chosen.items()})


class _Found:
    """What a node has by its names: attributes, then constant inputs."""

    def __init__(self, model: onnx.ModelProto, node: onnx.NodeProto, inputs: Collection[str]) -> None:
        self.where = f"node {node_name(node)!r} ({node_type(node)})"
        self._attributes = {k: v for k, v in node_attributes(node).items() if k not in _IGNORED}
        own, self._defaults = _declared(model, node)
        arrays = _constants(model, [name for name in node.input if name not in inputs])
        self._constants: dict[str, Any] = {}
        self._names: dict[str, str] = {}  # other names of constants
        for place, tensor in enumerate(node.input):
            if tensor in arrays:
                self._constants[tensor] = arrays[tensor]
                names = [own[min(place, len(own) - 1)]] if own else []
                for name in (*names, re.split(r"[/.:]", tensor)[-1]):
                    self._names.setdefault(name, tensor)

    def key(self, name: str) -> str:
        """The attribute or tensor that goes by a name; empty where there is none."""
        if name in self._attributes or name in self._constants:
            return name
        return self._names.get(name) or (name if name in self._defaults else "")

    def value(self, spec: FieldSpec, name: str, owner: str) -> Any:
        """The value of that name, for a field."""
        key = self.key(name)
        value = {**self._defaults, **self._constants, **self._attributes}[key]
        kind = "attribute" if key in self._attributes or key in self._defaults else "constant input"
        if isinstance(value, np.ndarray):
            value = spec.field_kind.from_array(value)
        with value_origin(f"{kind} {key!r} of {self.where}"):
            return spec.convert(value, owner)

    def without(self, keys: Collection[str]) -> list[str]:
        """What there is besides, in words; an operator's defaults do not count."""
        rest = [f"attribute {name!r} = {_shown(value)}" for name, value in self._attributes.items() if name not in keys]
        return rest + [
            f"constant input {name!r} {_shown(value)}" for name, value in self._constants.items() if name not in keys
        ]

    def __str__(self) -> str:
        return f"the node has {', '.join(self.without(())) or 'no attributes and no constant inputs'}"


def _declares(specs: Mapping[str, FieldSpec]) -> str:
    return f"declares {', '.join(f'{spec.name}: {spec.type_name}' for spec in specs.values()) or 'no fields'}"


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"({value.dtype}{list(value.shape)})"
    return format_value(tuple(value) if isinstance(value, list) else value)[:80]


def _declared(model: onnx.ModelProto, node: onnx.NodeProto) -> tuple[list[str], dict[str, Any]]:
    """The operator's own names of its inputs, and its attributes' defaults; empty for an operator of somebody's own."""
    onnx = require("onnx", extra="onnx", feature="reading ONNX nodes")
    version = next((item.version for item in model.opset_import if item.domain == node.domain), 1)
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return [], {}
    defaults = [item.default_value for item in schema.attributes.values() if item.default_value.name]
    holder = onnx.NodeProto(op_type=node.op_type, attribute=defaults)
    return [item.name for item in schema.inputs], node_attributes(holder)


def _constants(model: onnx.ModelProto, names: Sequence[str]) -> dict[str, Any]:
    """The arrays of initializers and Constant nodes."""
    graph = model.graph
    found = arrays_of(tensor for tensor in graph.initializer if tensor.name in names)
    for node in graph.node:
        if node.op_type == "Constant" and node.output[0] in names:
            found[node.output[0]] = np.asarray(next(iter(node_attributes(node).values())))
    return found
