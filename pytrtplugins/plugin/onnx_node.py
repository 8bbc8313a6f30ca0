"""Convert between a plugin and a node of an ONNX graph.

The node's domain is the plugin's namespace and its type the plugin's name. ``plugin_namespace`` and ``plugin_version``
are always written: TensorRT's parser needs them to find the creator, and to prefer it over a local function of the same
name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import FieldError, ModelError, PytrtpluginsError
from ..tensor import DType, TensorDesc
from ..utils.optional import ir, onnx, require
from ..utils.text_formats import shorten
from ..validation import check_tensor
from .base import Plugin, hooks
from .field_values import value_origin
from .fields import FieldSpec
from .registry import is_registered, lookup

__all__ = [
    "SCALES",
    "STANDARD_DOMAINS",
    "as_node",
    "from_node",
    "is_plugin_node",
    "node_attributes",
    "passes_int8_through",
    "requantizes",
    "scales_of",
    "supports_dtype",
]

SCALES = "pytrtplugins_scales"
"""Attribute of nodes on int8 codes, besides the plugin's fields: see `scales_of`."""

STANDARD_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
"""Of operators that are not plugins."""


def as_node(plugin: Plugin, inputs: Iterable[str], outputs: Iterable[str], name: str = "") -> onnx.NodeProto:
    """Write a plugin as an ONNX node.

    Args:
        plugin: The layer.
        inputs: Names of the tensors it reads.
        outputs: Names of the tensors it writes.
        name: The node's name.
    """
    helper = require("onnx.helper", extra="onnx", feature="writing ONNX nodes")
    namespace, type_name, version = plugin.plugin_key()
    node = helper.make_node(type_name, list(inputs), list(outputs), name=name, domain=namespace)
    node.attribute.extend(
        _to_attribute(helper, spec, value)
        for spec, value in zip(plugin.field_specs(), plugin.fields().values(), strict=True)
    )
    node.attribute.append(helper.make_attribute("plugin_namespace", namespace))
    node.attribute.append(helper.make_attribute("plugin_version", version))
    return node  # type: ignore[no-any-return]


def is_plugin_node(node: onnx.NodeProto | ir.Node) -> bool:
    """Whether the node is a plugin: it has ``plugin_namespace``, or its domain and type are registered."""
    if node.domain in STANDARD_DOMAINS:
        return False
    named = any(attribute.name == "plugin_namespace" for attribute in _attributes(node))
    return named or is_registered(node.domain, node.op_type)


def from_node(node: onnx.NodeProto | ir.Node) -> Plugin:
    """Make the plugin that a node of a model describes, in either form.

    Raises:
        RegistryError: no class is registered for the node.
        FieldError: an attribute is missing, unknown, or of another type than the class declares.
    """
    values = node_attributes(node)
    values.pop(SCALES, None)
    namespace = values.pop("plugin_namespace", node.domain)
    version = values.pop("plugin_version", None)
    for attribute, value in (("plugin_namespace", namespace), ("plugin_version", version)):
        if not isinstance(value, (str, type(None))):
            raise FieldError(
                f"node {node.name or node.op_type!r}: attribute {attribute!r}: expected text, found {shorten(value)}",
                name=attribute,
            )
    cls = lookup(namespace, node.op_type, version)
    specs = {spec.name: spec for spec in cls.field_specs()}
    where = f"node {node.name or node.op_type!r} ({cls.plugin_key()})"
    unknown = values.keys() - specs.keys()
    if unknown:
        raise FieldError(
            f"{where}: unknown attributes {sorted(unknown)}; the class declares {list(specs) or 'none'}",
            name=sorted(unknown)[0],
        )
    with value_origin(f"attribute '{{}}' of node {node.name or node.op_type!r}"):
        return cls(**values)


def passes_int8_through(node: onnx.NodeProto | ir.Node) -> bool:
    """Whether the node's plugin passes int8 values through unchanged. A node that cannot be made a plugin gives False: its run raises."""
    try:
        return from_node(node).int8 == "pass_through"
    except PytrtpluginsError:
        return False


def requantizes(node: onnx.NodeProto | ir.Node) -> bool:
    """Whether the node's plugin computes on int8 codes, in all inputs and outputs, with scales of its own."""
    try:
        return from_node(node).int8 == "requantize" and supports_dtype(node, DType.INT8)
    except PytrtpluginsError:
        return False


def scales_of(node: onnx.NodeProto | ir.Node) -> tuple[float, ...]:
    """Scales (value of one int8 step) of each input, then of each output, of a node on int8 codes; else empty."""
    return tuple(node_attributes(node).get(SCALES, ()))


def supports_dtype(node: onnx.NodeProto | ir.Node, dtype: DType) -> bool:
    """Whether the node's plugin supports tensors of this element type, as inputs and outputs."""
    ends: Any = (node.inputs, node.outputs) if hasattr(node, "inputs") else (node.input, node.output)  # type: ignore[union-attr]
    plugin, tensors = from_node(node), range(sum(map(len, ends)))
    descs = [TensorDesc(f"tensor{index}", (1,) * 4, dtype) for index in tensors]
    return all(plugin.supports_format(position, descs) for position in tensors)


def node_attributes(node: onnx.NodeProto | ir.Node) -> dict[str, Any]:
    """A node's attributes as Python values: ints, floats, text, lists, NumPy arrays.

    Raises:
        ModelError: text is not UTF-8; or a tensor does not hold what it claims, or lies in another file.
    """
    values = {}
    for attribute in _attributes(node):
        value = attribute.value if hasattr(attribute, "value") else onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            check_tensor(value, f"node {node.name or node.op_type!r}: attribute {attribute.name!r}")
            value = onnx.numpy_helper.to_array(value)
        elif hasattr(value, "numpy"):  # a tensor of onnx-ir
            value = value.numpy()
        elif isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, bytes):
            value = _text(value, node)
        elif isinstance(value, list) and value and isinstance(value[0], bytes):
            value = [_text(item, node) for item in value]
        values[attribute.name] = value
    return values


def _attributes(node: Any) -> Iterable[Any]:
    return node.attribute if hasattr(node, "attribute") else node.attributes.values()  # type: ignore[no-any-return]


def _text(value: bytes, node: onnx.NodeProto | ir.Node) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ModelError(
            f"node {node.name or node.op_type!r}: a text attribute is not UTF-8: {shorten(value)}"
        ) from error


def _to_attribute(helper: Any, spec: FieldSpec, value: Any) -> onnx.AttributeProto:
    kind, value = spec.field_kind, spec.field_kind.to_onnx(value)
    if kind.onnx == "TENSOR":
        value = onnx.numpy_helper.from_array(value, spec.name)
    return helper.make_attribute(spec.name, value, attr_type=getattr(onnx.AttributeProto, kind.onnx))  # type: ignore[no-any-return]


hooks.as_node = as_node
