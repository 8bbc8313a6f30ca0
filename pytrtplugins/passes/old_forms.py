"""Rewrite nodes of old opsets that ONNX's version converter would convert wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ModelError
from ..model.operator_traits import Trait, operators
from ..model.proto import node_name, numpy_type, tensors_of, without_data
from ..utils.optional import onnx
from ..utils.repeated import keep_items, set_items
from ..validation.known_dims import HIDDEN
from ..validation.operators import standard_domain, standard_opset

__all__ = ["hide_from_converter", "infer_or_keep", "restore_meanings", "rewrite_old_forms"]

_NUMPY_BROADCAST = 7  # the opset from which on operands broadcast as in NumPy
_ONE_AXIS = 13  # the opset from which on Hardmax takes the largest along one axis
_COORDINATES = 11  # the opset from which on Resize says how coordinates are mapped
_UNADAPTED = operators(Trait.TRUTH | Trait.BROADCASTS)
"""Operators that the converter has no adapter for; without ``axis`` and ``broadcast`` they need none."""
_BROADCASTS = operators(Trait.ARITHMETIC) | {"Pow"} | _UNADAPTED
_INPUT_NUMBERS = (
    11  # the opset from which on bounds of Clip and values of Pad are inputs, of the type of what they stand beside
)
_TYPED = {"Clip": 1, "Pad": 2}
"""Operator → the first of these inputs."""


def rewrite_old_forms(model: onnx.ModelProto) -> None:
    """Rewrite nodes of the main graph within their opset; the model changes.

    1. Second operands before opset 7 that begin at an ``axis`` get dims of 1 behind their own.
    2. Pads before opset 11 whose mode does not use ``value`` lose it.

    Raises:
        ModelError: the rank of an operand is unknown.
    """
    opset = standard_opset(model)
    if opset < _NUMPY_BROADCAST:
        _rewrite_broadcasts(model)
    for node in model.graph.node if opset < _INPUT_NUMBERS else ():
        mode = _attribute(node, "mode")
        if node.op_type == "Pad" and not node.domain and mode is not None and mode.s != b"constant":
            _remove_attributes(node, "value")


def hide_from_converter(model: onnx.ModelProto) -> None:
    """Move operators before opset 7 that the converter cannot convert to a private domain, without ``axis`` and ``broadcast``.

    These are (1) logical operators and comparisons, which it does not know; (2) arithmetic with operands of free dims, which it refuses.
    """
    if standard_opset(model) >= _NUMPY_BROADCAST:
        return
    free = {
        name
        for name, kind in _tensor_types(model).items()
        if any(not dim.HasField("dim_value") for dim in kind.shape.dim)
    }
    model.opset_import.add(domain=HIDDEN, version=1)
    for node in model.graph.node:
        refused = node.op_type in _UNADAPTED or (node.op_type in _BROADCASTS and not free.isdisjoint(node.input))
        if refused and not standard_domain(node.domain):
            node.domain = HIDDEN
            _remove_attributes(node, "consumed_inputs")


def restore_meanings(model: onnx.ModelProto, before: onnx.ModelProto) -> None:
    """Rewrite nodes that were converted from an older opset so that they compute what they did there.

    Raises:
        ModelError: the scales of a Resize to nearest neighbours are not constant.
    """
    keep_items(model.opset_import, lambda item: item.domain != HIDDEN)
    for node in model.graph.node:
        if node.domain == HIDDEN:
            node.domain = ""
    if standard_opset(before) < _COORDINATES:
        _restore_resizes(model, before)
    if standard_opset(before) < _INPUT_NUMBERS:
        _restore_types(model, before)
    if standard_opset(before) < _ONE_AXIS:
        _restore_hardmaxes(model)
        _drop_empty_scales(model)


def _restore_types(model: onnx.ModelProto, before: onnx.ModelProto) -> None:
    """Give bounds of Clip and values of Pad, which were attributes, the type of the other operand; the converter gives float32."""
    if not any(node.op_type in _TYPED for node in before.graph.node):
        return
    kinds = {name: kind.elem_type for name, kind in _tensor_types(before).items()}
    makers = {node.output[0]: node for node in model.graph.node if node.op_type == "Constant"}
    for node in model.graph.node:
        dtype = numpy_type(kinds[node.input[0]]) if node.op_type in _TYPED and kinds.get(node.input[0]) else None
        for name in node.input[_TYPED[node.op_type] :] if dtype is not None else ():
            if name in makers and not standard_domain(node.domain):
                value = makers[name].attribute[0].t
                value.CopyFrom(
                    onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(value).astype(dtype), value.name)
                )


def _drop_empty_scales(model: onnx.ModelProto) -> None:
    """Let Resize read sizes only, if its scales have no elements; before opset 13 it could not omit them."""
    resizes = [node for node in model.graph.node if node.op_type == "Resize" and len(node.input) > 3 and node.input[3]]
    kinds = _tensor_types(model) if resizes else {}
    for node in resizes:
        sizes: Any = kinds[node.input[2]].shape.dim if node.input[2] in kinds else ()
        if len(sizes) == 1 and sizes[0].HasField("dim_value") and not sizes[0].dim_value:
            node.input[2] = ""


def _restore_hardmaxes(model: onnx.ModelProto) -> None:
    """Let Hardmax work on all axes from ``axis`` on, as before opset 13: Flatten its input to rows."""
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type != "Hardmax" or standard_domain(node.domain):
            nodes.append(node)
            continue
        axis, name = _attribute(node, "axis"), node_name(node)
        rows, hot, shape = (f"{node.output[0]}_{kind}" for kind in ("rows", "hot", "shape"))
        nodes += [
            onnx.helper.make_node("Shape", [node.input[0]], [shape], f"{name}_shape"),
            onnx.helper.make_node(
                "Flatten", [node.input[0]], [rows], f"{name}_rows", axis=1 if axis is None else axis.i
            ),
            onnx.helper.make_node("Hardmax", [rows], [hot], name, axis=-1),
            onnx.helper.make_node("Reshape", [hot, shape], [node.output[0]], f"{name}_restored"),
        ]
    if len(nodes) != len(model.graph.node):
        set_items(model.graph.node, nodes)


def _restore_resizes(model: onnx.ModelProto, before: onnx.ModelProto) -> None:
    """Give Resize nodes from before opset 11 the coordinate mapping that Resize and Upsample had there.

    The converter leaves the new attributes out, and their defaults compute other values. Neighbours are those below where an
    axis grows, and those above where it shrinks: a Resize that does both becomes two.
    """
    origins = iter(
        [node for node in before.graph.node if node.op_type in ("Resize", "Upsample")]
    )  # the converter keeps the order
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type == "Constant" and (value := _attribute(node, "value")) is not None:
            constants[node.output[0]] = value.t
        if node.op_type == "Resize" and not standard_domain(node.domain):
            origin = next(origins)
            node.attribute.append(onnx.helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
            mode = _attribute(node, "mode")
            if mode is None or mode.s == b"nearest":
                nodes += [] if origin.op_type == "Upsample" else _shrinking_first(node, constants, node_name(origin))
                if _attribute(node, "nearest_mode") is None:
                    node.attribute.append(onnx.helper.make_attribute("nearest_mode", "floor"))
        nodes.append(node)
    set_items(model.graph.node, nodes)


def _shrinking_first(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto], name: str
) -> list[onnx.NodeProto]:
    """Nodes that shrink axes first, before a Resize (nearest) that shrinks some axes and grows others."""
    tensor = constants.get(node.input[2])
    if tensor is None:
        raise ModelError(
            f"node {name!r} ({node.op_type}) takes nearest neighbours by scales that are computed, from above or below "
            "according to their values, and no newer opset does.\nDo: export the model with opset 11 or newer",
            node=name,
            tensor=node.input[2],
        )
    scales = onnx.numpy_helper.to_array(tensor)
    ceil = onnx.helper.make_attribute("nearest_mode", "ceil")
    if (scales >= 1).all():
        return []
    if (scales <= 1).all():
        node.attribute.append(ceil)
        return []
    first = type(node).FromString(node.SerializeToString())
    first.name, first.output[0] = f"{node_name(node)}_shrunk", f"{node.output[0]}_shrunk"
    first.attribute.append(ceil)
    parts = []
    for resize, part in ((first, scales.clip(max=1)), (node, scales.clip(min=1))):
        name = f"{resize.output[0]}_scales"
        parts.append(onnx.helper.make_node("Constant", [], [name], name, value=onnx.numpy_helper.from_array(part)))
        resize.input[2] = name
    node.input[0] = first.output[0]
    return [*parts, first]


def _rewrite_broadcasts(model: onnx.ModelProto) -> None:
    ranks: Mapping[str, int] | None = None
    nodes: list[onnx.NodeProto] = []
    names = {name for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        axis = _attribute(node, "axis")
        if node.op_type in _BROADCASTS and not standard_domain(node.domain) and _attribute(node, "broadcast"):
            if ranks is None and axis is not None:
                ranks = _ranks(model)
            behind = _dims_behind(node, axis.i, ranks) if axis is not None and ranks is not None else 0
            if behind:
                name = f"{node.input[1]}_{node_name(node)}_unsqueezed"
                while name in names:
                    name += "_"
                names.add(name)
                rank = ranks[node.input[1]] if ranks else 0
                axes = list(range(rank, rank + behind))
                nodes.append(onnx.helper.make_node("Unsqueeze", [node.input[1]], [name], name, axes=axes))
                node.input[1] = name
            _remove_attributes(node, "axis", "broadcast")
        nodes.append(node)
    if ranks is not None:
        set_items(model.graph.node, nodes)


def _ranks(model: onnx.ModelProto) -> dict[str, int]:
    return {name: len(kind.shape.dim) for name, kind in _tensor_types(model).items() if kind.HasField("shape")}


def infer_or_keep(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inferred types and dims; unchanged if inference contradicts the declared ones: other checks report that."""
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception:  # the C++ side raises types of its own
        return model


def _tensor_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto.Tensor]:
    """Element types and dims of tensors, as far as they can be inferred."""
    infos = tensors_of(infer_or_keep(without_data(model)).graph)
    return {name: info.type.tensor_type for name, info in infos.items()}


def _dims_behind(node: onnx.NodeProto, axis: int, ranks: Mapping[str, int]) -> int:
    """The number of trailing dims of 1 that the second operand lacks."""
    first, second = (ranks.get(name) for name in node.input)
    if first is None or second is None:
        unknown = node.input[0 if first is None else 1]
        raise ModelError(
            f"node {node_name(node)!r} ({node.op_type}) lays its second operand along axis {axis} of its first one, and the rank of "
            f"{unknown!r} is unknown.\nDo: export the model with opset 7 or newer",
            node=node.name,
            tensor=unknown,
        )
    return max(0, first - (axis if axis >= 0 else axis + first) - second)


def _attribute(node: onnx.NodeProto, name: str) -> Any:
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def _remove_attributes(node: onnx.NodeProto, *names: str) -> None:
    keep_items(node.attribute, lambda attribute: attribute.name not in names)
