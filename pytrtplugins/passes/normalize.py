"""Models as other people's exporters write them → the form that passes and engines expect: one opset of today, no functions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import ModelError
from ..model.decompose import add_shapes
from ..model.dense import with_dense_constants
from ..model.proto import NAMELESS_DIMS, copy_of, info_dtype, with_data, without_data
from ..plugin.onnx_node import is_plugin_node
from ..utils.optional import require
from ..utils.repeated import set_items
from ..validation import infer, validated
from ..validation.dataflow import bodies, given_inputs, walk
from ..validation.operators import standard_opset
from .misread import is_misread, write_unmistakably
from .opsets import OLDEST, converted

if TYPE_CHECKING:
    import onnx

__all__ = ["in_opset", "normalize", "normalized", "with_opset"]

_log = logging.getLogger(__name__)
_FEATURE = "working on ONNX models"
_FIRST_IR = 4  # the first version in which weights need not be inputs


def normalize(model: onnx.ModelProto) -> onnx.ModelProto:
    """Write what exporters say in many ways in one way; what the model computes, its inputs and outputs stay.

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
    for step in (with_dense_constants, _with_plain_inputs, _with_plain_attributes, _without_functions, _in_known_opset):
        model = step(model)
    return model


def with_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Convert a normalized model to an opset, if its own is older.

    Raises:
        ModelError: it cannot be converted.
    """
    return model if standard_opset(model) >= opset else converted(model, opset, needed=True)


def in_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """A prepared model in an opset, or in its own where that is newer; its tensors keep their names.

    Raises:
        ModelError: it cannot be converted.
    """
    converted = with_opset(model, opset)
    if converted is model:
        return model
    outputs = {name for node in converted.graph.node for name in node.output}
    converted.graph.value_info.extend(info for info in model.graph.value_info if info.name in outputs)
    return add_shapes(converted)


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


def _with_plain_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with free dims that say so, in all graphs, and without weights among its inputs; itself where it is so."""
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
    """The model without attributes that libraries misread; itself where it has none."""
    if not any(map(is_misread, walk(model.graph.node))):
        return model
    plain = copy_of(model)
    write_unmistakably(plain)
    return plain


def _is_plugins(function: onnx.FunctionProto, model: onnx.ModelProto) -> bool:
    onnx = require("onnx", extra="onnx", feature=_FEATURE)
    nodes = (node for node in walk(model.graph.node) if (node.domain, node.op_type) == (function.domain, function.name))
    return is_plugin_node(next(nodes, onnx.NodeProto(domain=function.domain, op_type=function.name)))


def _without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with local functions written out, but for those of plugins; itself where it has no others."""
    if all(_is_plugins(function, model) for function in model.functions):
        return model
    inliner = require("onnx.inliner", extra="onnx", feature=_FEATURE)
    light = without_data(model)  # nor the functions of plugins
    standard = standard_opset(model)
    if any(standard_opset(function) not in (0, standard) for function in light.functions):
        light = infer(light)  # conversion to another opset needs the types of all tensors
    try:
        found = inliner.inline_local_functions(light, convert_version=True)
    except Exception as error:  # the C++ side raises types of its own
        names = ", ".join(sorted({function.name for function in light.functions}))
        raise ModelError(f"local functions ({names}) cannot be written into the graph: {error}") from error
    found.functions.extend(function for function in model.functions if _is_plugins(function, model))
    return validated(with_data(found, model), large=False)


def _in_known_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in opset 13 where its own is older; itself where it is not, or cannot be converted."""
    return converted(model) if 0 < standard_opset(model) < OLDEST else model
