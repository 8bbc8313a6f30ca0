"""Registered operators in PyTorch's ONNX exporters: each becomes the plugin's node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..plugin.base import Plugin
from ..plugin.fields import FieldSpec
from ..tensor import PLUGIN_DTYPES, DType, SymbolicDim
from ..utils.optional import require
from .register import Operator, registered_operators
from .schema import given_fields, input_names
from .tensors import dtype_of, require_torch, torch_dtype

__all__ = ["export_options"]

_IDENTITY = ("plugin_namespace", "plugin_version")
_TYPES = [f"tensor({'float' if dtype is DType.FLOAT32 else dtype})" for dtype in PLUGIN_DTYPES]
_VERSION = 1
"""Of the plugins' domains in a model."""


def export_options(dynamo: bool = True) -> dict[str, Any]:
    """What ``torch.onnx.export`` needs so that operators made by `register` become the plugins' nodes.

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
        table = {_overload(torch, each): _translation(each) for each in operators}
        return {"dynamo": True, "custom_translation_table": table}
    for each in operators:
        torch.onnx.register_custom_op_symbolic(each.name, _symbolic(torch, each), 9)
    domains = {each.cls.plugin_key().namespace: _VERSION for each in operators}
    return {"dynamo": False, "custom_opsets": domains}


def _overload(torch: Any, operator: Operator) -> Any:
    namespace, _, name = operator.name.partition("::")
    return getattr(getattr(torch.ops, namespace), name).default


def _translation(operator: Operator) -> Callable[..., Any]:
    """What gives the node in the exporter of today."""
    values, defs = require("onnxscript.values", extra="torch"), require("onnx.defs", extra="onnx")
    namespace, name, version = operator.cls.plugin_key()
    attribute, types = defs.OpSchema.Attribute, defs.OpSchema.AttrType
    schema = defs.OpSchema(
        name,
        namespace,
        _VERSION,
        inputs=_parameters(defs, input_names(operator.cls)),
        outputs=_parameters(defs, [f"y{index}" for index in range(operator.outputs)]),
        type_constraints=[("T", _TYPES, "what plugins read and write")],
        attributes=[
            *(attribute(spec.name, getattr(types, spec.field_kind.onnx)) for spec in operator.cls.field_specs()),
            *(attribute(each, types.STRING) for each in _IDENTITY),
        ],
    )
    op = values.Op(values.Opset(namespace, _VERSION), name, schema)

    def translate(*inputs: Any, **fields: Any) -> Any:
        tensors = inputs[0] if inputs and isinstance(inputs[0], (list, tuple)) else inputs
        plugin = operator.cls(**given_fields(fields))
        return op(*tensors, **_typed(plugin), plugin_namespace=namespace, plugin_version=version)

    translate.__name__ = name
    return translate


def _parameters(defs: Any, names: list[str] | None) -> list[Any]:
    parameter, kinds = defs.OpSchema.FormalParameter, defs.OpSchema.FormalParameterOption
    if names is None:
        return [parameter("inputs", "T", param_option=kinds.Variadic, is_homogeneous=False)]
    return [parameter(name, "T") for name in names]


def _plain(plugin: Plugin) -> dict[str, Any]:
    """Fields as ONNX has them: no truth values."""
    pairs = zip(plugin.field_specs(), plugin.fields().values(), strict=True)
    return {spec.name: spec.field_kind.to_onnx(value) for spec, value in pairs}


def _typed(plugin: Plugin) -> dict[str, Any]:
    """The same with the types of lists, which an empty one does not tell."""
    ir = require("onnx_ir", extra="onnx")
    makers = {"INTS": ir.AttrInt64s, "FLOATS": ir.AttrFloat32s, "STRINGS": ir.AttrStrings}
    types = {spec.name: spec.field_kind.onnx for spec in plugin.field_specs()}
    found = _plain(plugin).items()
    return {name: makers[types[name]](name, value) if types[name] in makers else value for name, value in found}


def _symbolic(torch: Any, operator: Operator) -> Callable[..., Any]:
    """What gives the node in the exporter that traces TorchScript."""
    helper = torch.onnx.symbolic_helper
    namespace, name, version = operator.cls.plugin_key()
    specs = operator.cls.field_specs()

    def translate(g: Any, *arguments: Any) -> Any:
        inputs, given = arguments[: len(arguments) - len(specs)], arguments[len(arguments) - len(specs) :]
        tensors = helper._unpack_list(inputs[0]) if input_names(operator.cls) is None else inputs
        fields = {spec.name: _constant(helper, spec, value) for spec, value in zip(specs, given, strict=True)}
        plugin = operator.cls(**given_fields(fields))
        attributes = {f"{spec.name}_{spec.field_kind.onnx[0].lower()}": _plain(plugin)[spec.name] for spec in specs}
        made = g.op(
            f"{namespace}::{name}",
            *tensors,
            **attributes,
            plugin_namespace_s=namespace,
            plugin_version_s=version,
            outputs=operator.outputs,
        )
        outputs = list(made) if operator.outputs > 1 else [made]
        _describe(plugin, tensors, outputs)
        return made

    return translate


def _constant(helper: Any, spec: FieldSpec, value: Any) -> Any:
    """The value of a field's argument; None: the class's default."""
    if helper._is_none(value):
        return None
    return spec.field_kind.torch_constant(
        lambda constant, letter: helper._get_const(constant, letter, spec.name), helper._unpack_list, value
    )


def _describe(plugin: Plugin, tensors: Any, outputs: list[Any]) -> None:
    """Give the outputs dims and types, where those of the inputs are known; free dims are None there."""
    types = [tensor.type() for tensor in tensors]
    shapes = [kind.varyingSizes() if kind.kind() == "TensorType" else None for kind in types]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return
    given = [
        tuple(SymbolicDim(f"x{index}.{axis}") if size is None else size for axis, size in enumerate(shape))
        for index, shape in enumerate(known)
    ]
    dims = plugin.all_output_dims(given)
    dtypes = plugin.all_output_dtypes([dtype_of(kind.dtype()) for kind in types], len(dims))
    for output, shape, dtype in zip(outputs, dims, dtypes, strict=True):
        sizes = [None if isinstance(dim, SymbolicDim) else dim for dim in shape]
        output.setType(types[0].with_dtype(torch_dtype(dtype)).with_sizes(sizes))
