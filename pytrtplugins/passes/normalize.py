"""Models as other people's exporters write them → the form that passes and engines expect: one opset of today, no functions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import ModelError
from ..model.dense import with_dense_constants
from ..model.proto import NAMELESS_DIMS, copy_of, info_dtype, infos_of, node_name, with_data, without_data
from ..plugin.onnx_node import is_plugin_node
from ..utils.optional import require
from ..validation import validated
from ..validation.broadcasting import BROADCAST_SLOPES
from ..validation.dataflow import bodies, given_inputs, walk
from ..validation.operators import standard_opset
from .old_forms import hide_from_converter, restore_meanings, rewrite_old_forms

if TYPE_CHECKING:
    import onnx

__all__ = ["converted", "normalize", "normalized", "with_opset"]

_log = logging.getLogger(__name__)
_FEATURE = "working on ONNX models"
_OLDEST = 13  # opset: axes are inputs from there on, and Q/DQ has an axis
_FIRST_IR = 4  # the first version in which weights need not be inputs


def normalize(model: onnx.ModelProto) -> onnx.ModelProto:
    """Write what exporters say in many ways in one way; what the model computes, its inputs and outputs stay.

    0. Sparse constants become dense ones, and typed data that libraries misread become raw data.
    1. Free dims have no value and no name that says nothing: ``-1`` and ``?`` go.
    2. A weight is not an input: initializers that are inputs too, as all are in IR 3, cannot be given.
    3. Local functions are written into the graph, and into the branches and bodies in it. Those of plugins stay.
    4. Opsets before 13 become 13, with a note in the log; slopes of PRelu before 7 are reshaped to lie along the channels.
       Where that cannot be done, and where branches or bodies of loops would have to be converted, the model stays as it is:
       the libraries below engines `cpu` and `onnxruntime` know old opsets.

    Args:
        model: Any model; it is not changed.

    Returns:
        A new model.

    Raises:
        ModelError: its opset is newer than the installed ONNX; its sparse constants are too large; an input or output is not a
            tensor of numbers; a function cannot be written out; or it has plugins, and its opset cannot be converted.
    """
    made = normalized(model)
    return copy_of(made) if made is model else made


def normalized(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same, but this very model where there is nothing to change: a copy of large weights takes its time.

    Raises:
        ModelError: as `normalize`.
    """
    _check_opset(model)
    for info in (*model.graph.input, *model.graph.output):
        if info.type.WhichOneof("value"):  # else it is found out later
            info_dtype(info)
    made = model = with_dense_constants(model)
    if _is_old(model) or _has_weights_as_inputs(model.graph) or next(_nameless_dims(model.graph), None) is not None:
        made = copy_of(model)
        for dim in _nameless_dims(made.graph):
            dim.Clear()
        _constant_weights(made)
    if any(not _is_plugins(function, made) for function in made.functions):
        made = _without_functions(made)
    return converted(made) if _is_old(made) else made


def _is_old(model: onnx.ModelProto) -> bool:
    return 0 < standard_opset(model) < _OLDEST


def with_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Convert a normalized model to an opset, if its own is older.

    Raises:
        ModelError: it cannot be converted.
    """
    if standard_opset(model) >= opset:
        return model
    made = converted(model, opset)
    if made is not model:
        return made
    raise ModelError(
        f"the model has opset {standard_opset(model)}, and cannot be converted to opset {opset}, which its new operators need.\n"
        f"Do: export the model with opset {opset} or newer"
    )


def _check_opset(model: onnx.ModelProto) -> None:
    onnx = require("onnx", extra="onnx", feature=_FEATURE)
    newest, found = int(onnx.defs.onnx_opset_version()), standard_opset(model)
    if found > newest:
        raise ModelError(
            f"the model has opset {found}; onnx {onnx.__version__} knows opsets up to {newest}.\n"
            "Do: pip install --upgrade onnx, or export the model with an older opset",
            found=found,
            expected=newest,
        )


def _nameless_dims(graph: onnx.GraphProto) -> Iterator[Any]:
    """Dims that are free and do not say so, in a graph and in those inside it."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value < 0 or dim.dim_param in NAMELESS_DIMS:
                yield dim
    for node in graph.node:
        for body in bodies(node):
            yield from _nameless_dims(body)


def _has_weights_as_inputs(graph: onnx.GraphProto) -> bool:
    return len(given_inputs(graph)) < len(graph.input)


def _constant_weights(model: onnx.ModelProto) -> None:
    if _has_weights_as_inputs(model.graph):
        inputs = [copy_of(info) for info in given_inputs(model.graph)]
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        model.ir_version = max(model.ir_version, _FIRST_IR)


def _is_plugins(function: onnx.FunctionProto, model: onnx.ModelProto) -> bool:
    onnx = require("onnx", extra="onnx", feature=_FEATURE)
    nodes = (node for node in walk(model.graph.node) if (node.domain, node.op_type) == (function.domain, function.name))
    return is_plugin_node(next(nodes, onnx.NodeProto(domain=function.domain, op_type=function.name)))


def _without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    inliner = require("onnx.inliner", extra="onnx", feature=_FEATURE)
    light = without_data(model)  # nor the functions of plugins
    try:
        found = inliner.inline_local_functions(light, convert_version=True)
    except Exception as error:  # the C++ side raises types of its own
        names = ", ".join(sorted({function.name for function in light.functions}))
        raise ModelError(f"local functions ({names}) cannot be written into the graph: {error}") from error
    found.functions.extend(function for function in model.functions if _is_plugins(function, model))
    return validated(with_data(found, model), large=False)


def converted(model: onnx.ModelProto, opset: int = _OLDEST) -> onnx.ModelProto:
    """The model in an opset that is newer than its own, or as it is where that cannot be done, with a note in the log."""
    converter = require("onnx.version_converter", extra="onnx", feature=_FEATURE)
    found = standard_opset(model)
    inner = next((node for node in model.graph.node if any(True for _ in bodies(node))), None)
    if inner is not None:
        return _as_it_is(model, inner, "ONNX's converter does not convert what is inside it", opset)
    ranks, odd = _slopes(model) if found < BROADCAST_SLOPES else ({}, None)
    if odd is not None:
        return _as_it_is(model, odd, "its slopes, which lie along the channels there, cannot be reshaped", opset)
    slopes = [(tensor, ranks[tensor.name]) for tensor in model.graph.initializer if tensor.name in ranks]
    for slope, rank in slopes:
        slope.dims.extend([1] * (rank - 2))
    if found < _OLDEST:
        rewrite_old_forms(model)
    light = without_data(model)
    hide_from_converter(light)
    try:
        made = converter.convert_version(light, opset)
    except Exception as error:  # the C++ side raises types of its own
        for slope, _ in slopes:
            del slope.dims[1:]
        return _as_it_is(model, _unconvertible(light, opset), " ".join(str(error).split())[:300], opset)
    restore_meanings(made, model)
    _log.info("the model has opset %d; it was converted to opset %d", found, opset)
    made.functions.extend(model.functions)
    del made.graph.output[:], made.graph.value_info[:]  # the converter gives free dims names of its own
    made.graph.output.extend(model.graph.output)
    return validated(with_data(made, model), large=False)


def _slopes(model: onnx.ModelProto) -> tuple[dict[str, int], onnx.NodeProto | None]:
    """Slopes of PRelu, which lie along the channels before opset 7, and must be reshaped to from there on; ONNX's converter does not.

    Returns:
        The name of each that has a number for each channel → the rank of what it multiplies. And a node whose slopes cannot
        be reshaped: they are computed, what they multiply has no known rank, or others read them too.
    """
    inferred = require("onnx.shape_inference", extra="onnx").infer_shapes(without_data(model)).graph
    shapes = {info.name: info.type.tensor_type.shape for info in (*inferred.input, *inferred.value_info)}
    dims = {tensor.name: [*tensor.dims] for tensor in model.graph.initializer}
    others = {name for node in model.graph.node if node.op_type != "PRelu" for name in node.input}
    ranks: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type != "PRelu" or dims.get(node.input[1]) == [1]:
            continue
        x, slope = node.input
        rank = len(shapes[x].dim) if x in shapes else 0
        if slope not in dims or not rank or slope in others or ranks.setdefault(slope, rank) != rank:
            return {}, node
    return {slope: rank for slope, rank in ranks.items() if len(dims[slope]) == 1}, None


def _as_it_is(model: onnx.ModelProto, node: onnx.NodeProto, reason: str, opset: int) -> onnx.ModelProto:
    text = (
        f"the model has opset {standard_opset(model)}, and node {node_name(node)!r} ({node.op_type}) cannot be converted to "
        f"opset {opset}: {reason}"
    )
    if any(is_plugin_node(item) for item in walk(model.graph.node)):
        raise ModelError(f"{text}.\nDo: export the model with opset {opset} or newer", node=node.name)
    _log.warning("%s; it stays as it is", text)
    return model


def _unconvertible(model: onnx.ModelProto, opset: int) -> onnx.NodeProto:
    """The first node that cannot be converted by itself."""
    onnx = require("onnx", extra="onnx", feature=_FEATURE)
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except Exception:  # the C++ side raises types of its own; a broken node is found without it
        inferred = model
    infos = infos_of(inferred.graph)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        part = type(model)(ir_version=model.ir_version, opset_import=model.opset_import)
        part.graph.name = "part"
        part.graph.node.append(node)
        part.graph.initializer.extend(constants[name] for name in node.input if name in constants)
        read = dict.fromkeys(name for name in node.input if name not in constants)
        for values, names in ((part.graph.input, read), (part.graph.output, node.output)):
            values.extend(infos.get(name, onnx.ValueInfoProto(name=name)) for name in names if name)
        try:
            onnx.version_converter.convert_version(part, opset)
        except Exception:  # the C++ side raises types of its own
            return node  # type: ignore[no-any-return]
    return model.graph.node[0]  # type: ignore[no-any-return]
