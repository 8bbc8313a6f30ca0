"""Export registered operators by PyTorch's ONNX exporters: each becomes the plugin's node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..plugin.base import Plugin
from ..plugin.fields import FieldSpec
from ..tensor import PLUGIN_DTYPES, DType, SymbolicDim
from ..utils.optional import ir, onnx, require
from .register import Operator, registered_operators
from .schema import given_fields, input_names
from .tensors import dtype_of, require_torch, torch_dtype

__all__ = ["export_options"]

_IDENTITY = ("plugin_namespace", "plugin_version")
_TYPES = [f"tensor({'float' if dtype is DType.FLOAT32 else dtype})" for dtype in PLUGIN_DTYPES]
_VERSION = 1
"""Of the plugins' domains in a model."""


def export_options(dynamo: bool = True) -> dict[str, Any]:
    """Return options for ``torch.onnx.export`` with which operators made by `register` become the plugins' nodes.

    Args:
        dynamo: For PyTorch's exporter of today; False: for the one that traces TorchScript.

    Returns:
        Keyword arguments: ``torch.onnx.export(net, (x,), "net.onnx", **export_options())``.

    Raises:
        MissingExtraError: PyTorch is not installed, or onnxscript, which the exporter of today needs.
    """
    torch, operators = require_torch("an export to ONNX"), registered_operators()
    if dynamo:
        require("onnxscript", extra="torch", feature="an export to ONNX")
        table = {_default_overload(torch, operator): _translation(operator) for operator in operators}
        return {"dynamo": True, "custom_translation_table": table}
    for operator in operators:
        torch.onnx.register_custom_op_symbolic(operator.name, _symbolic(torch, operator), 9)
    domains = {operator.cls.plugin_key().namespace: _VERSION for operator in operators}
    return {"dynamo": False, "custom_opsets": domains}


def _default_overload(torch: Any, operator: Operator) -> Any:
    namespace, _, name = operator.name.partition("::")
    return getattr(getattr(torch.ops, namespace), name).default


def _translation(operator: Operator) -> Callable[..., Any]:
    """Return the function that makes the operator's node in PyTorch's dynamo exporter."""
    values = require("onnxscript.values", extra="torch")
    namespace, name, version = operator.cls.plugin_key()
    attribute, types = onnx.defs.OpSchema.Attribute, onnx.defs.OpSchema.AttrType
    schema = onnx.defs.OpSchema(
        name,
        namespace,
        _VERSION,
        inputs=_formal_parameters(input_names(operator.cls)),
        outputs=_formal_parameters([f"y{index}" for index in range(operator.outputs)]),
        type_constraints=[("T", _TYPES, "what plugins read and write")],
        attributes=[
            *(attribute(spec.name, getattr(types, spec.field_kind.onnx)) for spec in operator.cls.field_specs()),
            *(attribute(attribute_name, types.STRING) for attribute_name in _IDENTITY),
        ],
    )
    op = values.Op(values.Opset(namespace, _VERSION), name, schema)

    def translate(*inputs: Any, **fields: Any) -> Any:
        tensors = inputs[0] if isinstance(inputs[0], (list, tuple)) else inputs
        plugin = operator.cls(**given_fields(fields))
        return op(*tensors, **_typed_attributes(plugin), plugin_namespace=namespace, plugin_version=version)

    translate.__name__ = name
    return translate


def _formal_parameters(names: list[str] | None) -> list[Any]:
    parameter, kinds = onnx.defs.OpSchema.FormalParameter, onnx.defs.OpSchema.FormalParameterOption
    if names is None:
        return [parameter("inputs", "T", param_option=kinds.Variadic, is_homogeneous=False)]
    return [parameter(name, "T") for name in names]


def _onnx_fields(plugin: Plugin) -> dict[str, Any]:
    """Return a plugin's fields as ONNX attribute values, which have no bool."""
    pairs = zip(plugin.field_specs(), plugin.fields().values(), strict=True)
    return {spec.name: spec.field_kind.to_onnx(value) for spec, value in pairs}


def _typed_attributes(plugin: Plugin) -> dict[str, Any]:
    """Return a plugin's fields as ONNX attributes with explicit list types, which an empty list needs."""
    makers: dict[str, Any] = {"INTS": ir.AttrInt64s, "FLOATS": ir.AttrFloat32s, "STRINGS": ir.AttrStrings}
    types = {spec.name: spec.field_kind.onnx for spec in plugin.field_specs()}
    fields = _onnx_fields(plugin).items()
    return {name: makers[types[name]](name, value) if types[name] in makers else value for name, value in fields}


def _symbolic(torch: Any, operator: Operator) -> Callable[..., Any]:
    """Return the function that makes the operator's node in PyTorch's TorchScript exporter."""
    helper = torch.onnx.symbolic_helper
    namespace, name, version = operator.cls.plugin_key()
    specs = operator.cls.field_specs()

    def translate(g: Any, *arguments: Any) -> Any:
        inputs, field_arguments = arguments[: len(arguments) - len(specs)], arguments[len(arguments) - len(specs) :]
        tensors = helper._unpack_list(inputs[0]) if input_names(operator.cls) is None else inputs
        fields = {spec.name: _constant(helper, spec, value) for spec, value in zip(specs, field_arguments, strict=True)}
        plugin = operator.cls(**given_fields(fields))
        attributes = {
            f"{spec.name}_{spec.field_kind.onnx[0].lower()}": _onnx_fields(plugin)[spec.name] for spec in specs
        }
        node_outputs = g.op(
            f"{namespace}::{name}",
            *tensors,
            **attributes,
            plugin_namespace_s=namespace,
            plugin_version_s=version,
            outputs=operator.outputs,
        )
        outputs = list(node_outputs) if operator.outputs > 1 else [node_outputs]
        _set_output_types(plugin, tensors, outputs)
        return node_outputs

    return translate


def _constant(helper: Any, spec: FieldSpec, value: Any) -> Any:
    """Return the value of a field's argument; None for the class's default."""
    if helper._is_none(value):
        return None
    return spec.field_kind.torch_constant(
        lambda constant, letter: helper._get_const(constant, letter, spec.name), helper._unpack_list, value
    )


def _set_output_types(plugin: Plugin, tensors: Any, outputs: list[Any]) -> None:
    """Set dims and types of the outputs, if those of the inputs are known; a free dim becomes None."""
    types = [tensor.type() for tensor in tensors]
    shapes = [kind.varyingSizes() if kind.kind() == "TensorType" else None for kind in types]
    known_shapes = [shape for shape in shapes if shape is not None]
    if len(known_shapes) < len(shapes):
        return
    input_dims = [
        tuple(SymbolicDim(f"x{index}.{axis}") if size is None else size for axis, size in enumerate(shape))
        for index, shape in enumerate(known_shapes)
    ]
    dims = plugin.all_output_dims(input_dims)
    dtypes = plugin.all_output_dtypes([dtype_of(kind.dtype()) for kind in types], len(dims))
    for output, shape, dtype in zip(outputs, dims, dtypes, strict=True):
        sizes = [None if isinstance(dim, SymbolicDim) else dim for dim in shape]
        output.setType(types[0].with_dtype(torch_dtype(dtype)).with_sizes(sizes))
