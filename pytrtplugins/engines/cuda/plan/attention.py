"""Fuse data movement before and after an Attention into its strides, once all dims are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ....errors import DimsError
from ....model.ir import (
    add_constant,
    array_of,
    dims_of,
    is_op,
    only_read_by,
    operand,
    remove_unused,
    set_attributes,
    swap,
)
from ....model.operator_traits import Trait, operators
from ....model.proto import node_name
from ....tensor import evaluate_dims
from ....utils.optional import ir
from ..device.strided import Strided, contiguous
from ..lower.attention import MOVING
from ..lower.rewrite import DOMAIN
from ..naming import naming

__all__ = ["place_attention"]

Dims = tuple[int, ...]
_HIDDEN = -1e4  # what is added to scores below may be -inf in float16
_ALIGNED = 8
"""Values of float16 in 16 bytes."""
_RESHAPING = operators(Trait.KEEPS_ORDER)


def place_attention(model: ir.Model, sizes: Mapping[str, int]) -> None:
    """Let each Attention read and write strided tensors in place, without copies.

    Attributes that it gets: ``dims`` (batch, heads, rows, keys, values of a head of q and k, of v); ``q``, ``k``, ``v``,
    ``bias``, ``y``: the first value, and strides along batch, heads, rows or keys, values (of ``bias`` along keys); ``period``:
    matrices of the bias along the batch.

    Args:
        model: Its dims are known; it is changed.
        sizes: Of free dims.
    """
    attentions = [node for node in model.graph if is_op(node, "Attention", DOMAIN)]
    for node in attentions:
        with naming(node_name(node), node.op_type):
            _place_node(model.graph, node, sizes)
    if attentions:
        remove_unused(model)


def _place_node(graph: ir.Graph, node: ir.Node, sizes: Mapping[str, int]) -> None:
    all_dims = [_known_dims(value, sizes) for value in (*node.inputs, node.outputs[0])]
    if any(dims is None for dims in all_dims):
        return  # the planner says which
    _drop_zero_bias(node)
    views = [_view(value, sizes) for value in node.inputs]
    *_, y_dims = all_dims
    assert y_dims is not None
    *outer, rows, values = _with_four_axes(contiguous(y_dims)).dims
    q, k, v = (_with_four_axes(view) for _, view in views[:3])
    keys, head = max(k.dims[3], v.dims[2]), q.dims[3]
    attributes: dict[str, Any] = {
        "dims": [*outer, rows, keys, head, values],
        "q": _offset_and_strides(q, (*outer, rows, head)),
        "k": _offset_and_strides(k.transposed((0, 1, 3, 2)), (*outer, keys, head)),
        "v": _offset_and_strides(v, (*outer, keys, values)),
        "period": 1,
    }
    if operand(node, 3) is not None:
        views[3] = _with_aligned_rows(graph, *views[3])
        bias = _with_four_axes(views[3][1])
        attributes["period"] = bias.dims[0]
        attributes["bias"] = _offset_and_strides(bias, (bias.dims[0], outer[1], rows, keys))
    for index, (value, _) in enumerate(views):
        node.replace_input_with(index, value)
    moves, y = _absorbed_moves(node, y_dims, sizes)
    attributes["y"] = _offset_and_strides(_with_four_axes(y), (*outer, rows, values))
    set_attributes(node, attributes)
    if moves:
        swap(graph, moves, node.outputs[0])


def _with_aligned_rows(graph: ir.Graph, value: ir.Value, view: Strided) -> tuple[ir.Value, Strided]:
    """Copy a constant bias so that each of its rows begins at 16 bytes in float16, as cuDNN reads it; others stay."""
    array = array_of(value)
    keys = 1 if array is None or not array.ndim else array.shape[-1]
    if array is None or keys == 1 or keys % _ALIGNED == 0 or view != contiguous(array.shape):
        return value, view
    padded = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, -keys % _ALIGNED)])
    rows = contiguous(padded.shape).sliced(-1, 0, keys)
    assert rows is not None
    return add_constant(graph, f"{value.name}.rows", padded), rows


def _drop_zero_bias(node: ir.Node) -> None:
    """Remove a bias of zeros, and the handling of fully masked rows where no row can be fully masked.

    Exporters write masks that hide nothing; which they are is known now that all sizes are.
    """
    bias = array_of(operand(node, 3))
    if bias is not None and not bias.any():
        node.resize_inputs(3)
    no_bias = operand(node, 3) is None
    if no_bias or (bias is not None and bias.size > 0 and bias.max(axis=-1).min() > _HIDDEN):
        set_attributes(node, {"empty": "nan"})


def _with_four_axes(view: Strided) -> Strided:
    """Return the view with four axes: leading axes of size 1 are added, or the first two of five axes are merged."""
    if len(view.axes) > 4:
        first, second, *others = view.dims
        return view.reshaped((first * second, *others)) or contiguous((first * second, *others))  # which has no values
    return Strided(((),) * (4 - len(view.axes)) + view.axes, view.offset)


def _offset_and_strides(view: Strided, dims: tuple[int, ...]) -> list[int]:
    strides = view.expanded(dims).strides
    assert strides is not None
    return [view.offset, *strides]


def _known_dims(value: ir.Value | None, sizes: Mapping[str, int]) -> Dims | None:
    dims = dims_of(value)
    if dims is None or any(dim is None for dim in dims):
        return None
    try:
        return evaluate_dims(dims, sizes)
    except DimsError:  # a name of the file's own that inference has not replaced
        return None


def _view(value: ir.Value | None, sizes: Mapping[str, int]) -> tuple[ir.Value, Strided]:
    """The earliest tensor of which a value is a strided view, and that view."""
    return next((base, view) for base, view in _views(value, sizes) if _with_four_axes(view).strides is not None)


def _views(value: ir.Value | None, sizes: Mapping[str, int]) -> Iterator[tuple[ir.Value, Strided]]:
    """Yield all tensors of which a value is a view, from the earliest to the value itself, each with the view."""
    node, dims = None if value is None else value.producer(), _known_dims(value, sizes)
    assert value is not None
    assert dims is not None
    if (
        node is not None
        and not node.domain
        and node.op_type in MOVING
        and _known_dims(node.inputs[0], sizes) is not None
    ):
        for base, view in _views(node.inputs[0], sizes):
            moved = _move_view(node, view, value, dims, sizes)
            if moved is not None:
                yield base, moved
    yield value, contiguous(dims)


def _move_view(node: ir.Node, x: Strided, value: ir.Value, dims: Dims, sizes: Mapping[str, int]) -> Strided | None:
    """The view after a node of data movement; None where it needs a copy."""
    at, rank = node.attributes, len(x.axes)
    if node.op_type in _RESHAPING:
        return x.reshaped(dims)
    if node.op_type == "Transpose":
        return x.transposed(at.get_ints("perm", list(reversed(range(rank)))))
    if node.op_type == "Expand":
        return x.expanded(dims)
    if node.op_type == "Gather":
        index = array_of(node.inputs[1])
        return None if index is None or index.ndim else x.selected(at.get_int("axis", 0), int(index))
    if node.op_type == "Split":
        axis, place = at.get_int("axis", 0), node.outputs.index(value)
        before = [_known_dims(output, sizes) for output in node.outputs[:place]]
        return None if None in before else x.sliced(axis, sum(each[axis] for each in before if each), dims[axis])
    return _slice_view(node, x, dims)


def _slice_view(node: ir.Node, x: Strided, dims: Dims) -> Strided | None:
    """The view after a Slice; None where its bounds are computed or the result is empty."""
    view: Strided | None = x
    starts, ends, axes, steps = (array_of(operand(node, index)) for index in range(1, 5))
    given = [operand(node, index) is not None for index in (3, 4)]
    if starts is None or ends is None or (given[0] and axes is None) or (given[1] and steps is None) or 0 in dims:
        return None
    numbers = range(len(starts)) if axes is None else axes
    for index, axis in enumerate(int(number) % len(dims) for number in numbers):
        step = 1 if steps is None else int(steps[index])
        taken = range(x.dims[axis])[int(starts[index]) : int(ends[index]) : step]
        view = None if view is None else view.sliced(axis, taken.start, len(taken), step)
    return view


def _absorbed_moves(node: ir.Node, dims: Dims, sizes: Mapping[str, int]) -> tuple[list[ir.Node], Strided]:
    """The nodes of data movement after an Attention that it can absorb, and its result as a view of the output of the last one."""
    nodes = [node]
    while (reader := _only_moving_reader(nodes[-1])) is not None and _known_dims(reader.outputs[0], sizes) is not None:
        nodes.append(reader)
    for count in range(len(nodes), 1, -1):
        view = _input_view(nodes[1:count], sizes)
        if view is not None and _with_four_axes(view).strides is not None:
            return nodes[1:count], view
    return [], contiguous(dims)


def _input_view(nodes: list[ir.Node], sizes: Mapping[str, int]) -> Strided | None:
    """The input of the first node as a view of the output of the last one; None where no strides describe it."""
    view: Strided | None = contiguous(_known_dims(nodes[-1].outputs[0], sizes) or ())
    for node in reversed(nodes):
        if view is None:
            return None
        if node.op_type == "Transpose":
            perm = node.attributes.get_ints("perm", list(reversed(range(len(view.dims)))))
            view = view.transposed([int(axis) for axis in np.argsort(perm)])
        else:
            view = view.reshaped(_known_dims(node.inputs[0], sizes) or ())
    return view


def _only_moving_reader(node: ir.Node) -> ir.Node | None:
    """The only reader of a node's output, if it is a Reshape or the like, or a Transpose; else None."""
    uses = list(node.outputs[0].uses())
    reader = uses[0].node if len(uses) == 1 else None
    if reader is None or not any(is_op(reader, kind) for kind in (*_RESHAPING, "Transpose")):
        return None
    return reader if uses[0].idx == 0 and only_read_by(node, reader) else None
