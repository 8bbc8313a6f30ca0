"""Normalize models of any exporter to the form that passes and engines expect: a current opset, no functions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from ..errors import ModelError
from ..model.decompose import add_shapes
from ..model.dense import with_dense_constants
from ..model.proto import NAMELESS_DIMS, copy_of, info_dtype, with_data, without_data
from ..plugin.onnx_node import is_plugin_node
from ..utils.optional import onnx, require
from ..utils.repeated import set_items
from ..validation import infer, validated
from ..validation.dataflow import given_inputs, subgraphs, walk
from ..validation.operators import standard_opset
from .misread import is_misread, write_unmistakably
from .opsets import OLDEST, convert_or_keep

__all__ = ["in_opset", "normalize", "normalize_if_needed", "with_opset"]

_log = logging.getLogger(__name__)
_FEATURE = "working on ONNX models"
_FIRST_IR = 4  # the first version in which weights need not be inputs


def normalize(model: onnx.ModelProto) -> onnx.ModelProto:
    """Rewrite the different forms that exporters use in one form; results, inputs and outputs stay the same.

    0. Sparse constants become dense ones, and typed data that libraries misread become raw data.
    1. Free dims have no value and no name that says nothing: ``-1`` and ``?`` go.
    2. A weight is not an input: initializers that are inputs too, as all are in IR 3, cannot be given.
    3. Local functions are written into the graph, and into the branches and bodies in it. Those of plugins stay.
    4. Attributes that libraries misread are written otherwise: ``ceil_mode`` beside ``auto_pad``, negative axes of Resize.
    5. Opsets before 13 become 13, with a note in the log; slopes of PRelu before 7 are reshaped to lie along the channels.
       Branches and bodies of loops are converted too. Where that cannot be done, the model stays as it is: the libraries
       below engines `cpu` and `onnxruntime` know old opsets.

    Args:
        model: Any model; it is not changed.

    Returns:
        A new model.

    Raises:
        ModelError: its opset is newer than the installed ONNX; its sparse constants are too large; an input or output is not a
            tensor of numbers; a function cannot be written out; or it has plugins, and its opset cannot be converted.
    """
    result = normalize_if_needed(model)
    return copy_of(result) if result is model else result


def normalize_if_needed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Normalize like `normalize`, but return the model itself if nothing changes: copies of large weights are slow."""
    _check_opset(model)
    for info in (*model.graph.input, *model.graph.output):
        if info.type.WhichOneof("value"):  # else it is found out later
            info_dtype(info)
    for step in (with_dense_constants, _with_plain_inputs, _with_plain_attributes, _without_functions, _in_known_opset):
        model = step(model)
    return model


def with_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Convert a normalized model to an opset, if its own is older."""
    return model if standard_opset(model) >= opset else convert_or_keep(model, opset, needed=True)


def in_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """A prepared model in an opset, or in its own if that is newer; tensors keep their names."""
    convert_or_keep = with_opset(model, opset)
    if convert_or_keep is model:
        return model
    outputs = {name for node in convert_or_keep.graph.node for name in node.output}
    convert_or_keep.graph.value_info.extend(info for info in model.graph.value_info if info.name in outputs)
    return add_shapes(convert_or_keep)


def _check_opset(model: onnx.ModelProto) -> None:
    newest, opset = int(onnx.defs.onnx_opset_version()), standard_opset(model)
    if opset > newest:
        raise ModelError(
            f"the model has opset {opset}; onnx {onnx.__version__} knows opsets up to {newest}.\n"
            "Do: pip install --upgrade onnx, or export the model with an older opset",
            found=opset,
            expected=newest,
        )


def _nameless_dims(graph: onnx.GraphProto) -> Iterator[Any]:
    """Free dims without a dim_param, in a graph and its subgraphs."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value < 0 or dim.dim_param in NAMELESS_DIMS:
                yield dim
    for node in graph.node:
        for body in subgraphs(node):
            yield from _nameless_dims(body)


def _with_plain_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a dim_param for each free dim, and without weights among its inputs; itself if nothing changes."""
    has_weights = len(given_inputs(model.graph)) < len(model.graph.input)
    if not has_weights and next(_nameless_dims(model.graph), None) is None:
        return model
    plain = copy_of(model)
    for dim in _nameless_dims(plain.graph):
        dim.Clear()
    if has_weights:
        set_items(plain.graph.input, given_inputs(plain.graph))
        plain.ir_version = max(plain.ir_version, _FIRST_IR)
    return plain


def _with_plain_attributes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without attributes that libraries misread; itself if it has none."""
    if not any(map(is_misread, walk(model.graph.node))):
        return model
    plain = copy_of(model)
    write_unmistakably(plain)
    return plain


def _is_plugins(function: onnx.FunctionProto, model: onnx.ModelProto) -> bool:
    nodes = (node for node in walk(model.graph.node) if (node.domain, node.op_type) == (function.domain, function.name))
    return is_plugin_node(next(nodes, onnx.NodeProto(domain=function.domain, op_type=function.name)))


def _without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with local functions inlined, except those of plugins; itself if it has no others."""
    if all(_is_plugins(function, model) for function in model.functions):
        return model
    inliner = require("onnx.inliner", extra="onnx", feature=_FEATURE)
    light = without_data(model)  # nor the functions of plugins
    standard = standard_opset(model)
    if any(standard_opset(function) not in (0, standard) for function in light.functions):
        light = infer(light)  # conversion to another opset needs the types of all tensors
    try:
        inlined = inliner.inline_local_functions(light, convert_version=True)
    except Exception as error:  # the C++ side raises types of its own
        names = ", ".join(sorted({function.name for function in light.functions}))
        raise ModelError(f"local functions ({names}) cannot be written into the graph: {error}") from error
    inlined.functions.extend(function for function in model.functions if _is_plugins(function, model))
    return validated(with_data(inlined, model), large=False)


def _in_known_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in opset 13 if its own is older; itself if it is not, or cannot be converted."""
    return convert_or_keep(model) if 0 < standard_opset(model) < OLDEST else model
