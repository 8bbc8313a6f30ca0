"""Names of free dims: a dim that equals an input's dim gets that dim's name."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

from ..model.declared import infer_without_declared, take_output_dims
from ..model.decompose import add_shapes
from ..model.ir import to_ir
from ..model.proto import has_shape, info_dims
from ..tensor import Dims, SymbolicDim
from ..utils.optional import ir, onnx
from ..validation.dataflow import given_inputs
from .constants import PropagateConstants

__all__ = ["add_dims", "derived_output_dims", "name_inputs", "name_outputs"]

_WORD = re.compile(r"[^\s()+*/%-]+")


def name_inputs(model: onnx.ModelProto) -> None:
    """Name the unnamed free dims of inputs as engines show them, in place."""
    for info in given_inputs(model.graph):
        for dim, shown in zip(_dims(info), info_dims(info), strict=True):
            if isinstance(shown, SymbolicDim):
                dim.dim_param = shown.name


def add_dims(model: onnx.ModelProto, form: ir.Model) -> onnx.ModelProto:
    """Add all inferred shapes, in place; outputs keep declared dims only where none are inferred.

    Args:
        model: The model.
        form: The model in onnx-ir's form, which is of no use afterwards.
    """
    declared_types, declared = take_output_dims(model), {info.name for info in model.graph.value_info}
    full = add_shapes(model)
    name_outputs(full, {info.name for info in full.graph.value_info} - declared, form)
    names = _input_names(full)
    for info in full.graph.output:
        if info.name not in declared_types:
            continue
        if not has_shape({info.name: info}, info.name):
            info.type.CopyFrom(declared_types[info.name])
        declared_dims = declared_types[info.name].tensor_type.shape.dim
        if len(declared_dims) != len(_dims(info)):  # ONNX's rule for Squeeze before opset 11 takes sorted axes only
            continue
        for dim, declared_dim in zip(_dims(info), declared_dims, strict=True):
            if not _is_named(dim, names) and declared_dim.WhichOneof("value"):
                dim.CopyFrom(declared_dim)
    return full


def derived_output_dims(model: onnx.ModelProto) -> dict[str, Dims]:
    """Dims of the outputs as they follow from the nodes, by name, whatever the model declares."""
    full = infer_without_declared(model)
    name_outputs(full)
    return {info.name: info_dims(info) for info in full.graph.output}


def name_outputs(model: onnx.ModelProto, inferred: Container[str | None] = (), form: ir.Model | None = None) -> None:
    """Give free dims of outputs the names of equal dims of inputs, in place.

    ONNX's rules lose a name where a shape is computed, and behind Resize; PyTorch's exporter then makes up another one.

    Args:
        model: The model.
        inferred: Tensors whose dims are what ONNX's inference said of them.
        form: The model in onnx-ir's form, whose tensors may lack dims, and which is of no use afterwards; by default it is made.
    """
    names = _input_names(model)
    strange = [info for info in model.graph.output if any(not _is_named(dim, names) for dim in _dims(info))]
    if not names or not strange:
        return
    propagated = (
        to_ir(model, checked=True) if form is None else _with_dims_of(model, form)
    )  # whose dims alone are wanted
    PropagateConstants(inferred=inferred, folds=False)(propagated)
    shapes = {value.name: value.shape for value in propagated.graph.outputs}
    for info in strange:
        shape = shapes[info.name]
        if shape is None or len(shape) != len(_dims(info)):
            continue
        for dim, new_dim in zip(_dims(info), shape, strict=True):
            if isinstance(new_dim, int):
                dim.dim_value = new_dim
            elif new_dim.value is not None and _is_of(new_dim.value, names):
                dim.dim_param = new_dim.value


def _with_dims_of(model: onnx.ModelProto, form: ir.Model) -> ir.Model:
    """Give the tensors of a model's onnx-ir form the dims and types that the model says, in place."""
    values = {
        value.name: value for value in (*form.graph.inputs, *(value for node in form.graph for value in node.outputs))
    }
    for info in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        if info.name in values:
            ir.serde.deserialize_value_info_proto(info, values[info.name])
    return form


def _input_names(model: onnx.ModelProto) -> set[str]:
    """Names of free dims of the inputs."""
    return {dim.dim_param for info in given_inputs(model.graph) for dim in _dims(info)} - {""}


def _dims(info: onnx.ValueInfoProto) -> Any:
    return info.type.tensor_type.shape.dim


def _is_named(dim: Any, names: set[str]) -> bool:
    return dim.HasField("dim_value") or _is_of(dim.dim_param, names)


def _is_of(text: str, names: set[str]) -> bool:
    """Whether a text is one of the names, or an expression of them."""
    words = [word for word in _WORD.findall(text) if not word.isdecimal()]
    return text in names or (bool(words) and names.issuperset(words))
