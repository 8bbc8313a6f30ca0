"""Pools that round their size up, as ONNX's own shape inference does not know them before opset 22."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from .dataflow import downstream, reads

if TYPE_CHECKING:
    import onnx

__all__ = ["rounded_down", "without_claims", "wrong_pools"]

_POOLS = ("AveragePool", "LpPool", "MaxPool")


def rounded_down(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> onnx.NodeProto:
    """A node with ``ceil_mode`` as one without, whose padding behind the image makes as many windows; any other as it is.

    Before opset 22, ONNX's inference also counts windows that begin behind the image and the padding before it. The operators leave
    them out (from opset 22 on, the specification says so), and so do onnxruntime, OpenVINO and PyTorch.

    Args:
        node: Any.
        types: Those of tensors, by name, with their dims where they are known.
    """
    ends = _ends(node, _dims(types, node))
    if ends is None:
        return node
    begins = _window(node)[1][: len(ends)]
    made = type(node)()
    made.CopyFrom(node)
    kept = [attribute for attribute in node.attribute if attribute.name not in ("ceil_mode", "pads")]
    del made.attribute[:]
    made.attribute.extend(kept)
    made.attribute.add(name="pads", type=7, ints=[*begins, *ends])  # AttributeProto.INTS
    return made


def wrong_pools(model: onnx.ModelProto) -> dict[int, onnx.NodeProto]:
    """The nodes whose size inference found too large, by their places, and what `rounded_down` makes of them.

    Those whose own input hangs on another of them are left out: its size is not known yet.
    """
    found: dict[int, onnx.NodeProto] = {}
    if not any(map(_is_up, model.graph.node)):
        return found
    types = {info.name: info.type for info in (*model.graph.input, *model.graph.value_info, *model.graph.output)}
    unknown: set[str] = set()
    for index, node in enumerate(model.graph.node):
        if not unknown.isdisjoint(reads(node)):
            unknown.update(node.output)
        elif _is_up(node):
            dims, sizes = _dims(types, node), _sizes_of(types.get(node.output[0]))
            ends = _ends(node, dims)
            if ends is not None and dims is not None and sizes is not None and sizes[2:] != _sizes(node, dims, ends):
                found[index] = rounded_down(node, types)
                unknown.update(node.output)
    return found


def without_claims(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Take away what a model says of the dims of these nodes' outputs, and of all that is computed from them."""
    names = downstream(model.graph.node, (name for node in nodes for name in node.output))
    infos = [info for info in model.graph.value_info if info.name not in names]
    del model.graph.value_info[:]
    model.graph.value_info.extend(infos)
    for info in model.graph.output:
        if info.name in names:
            info.type.tensor_type.ClearField("shape")


# -- inside ----------------------------------------------------------------------------------------------------------------


def _is_up(node: onnx.NodeProto) -> bool:
    return (
        node.op_type in _POOLS
        and node.domain in ("", "ai.onnx")
        and any(attribute.name == "ceil_mode" and attribute.i for attribute in node.attribute)
    )


def _ends(node: onnx.NodeProto, dims: Sequence[int] | None) -> list[int] | None:
    """The padding behind the image on each axis with which rounding down gives as many windows; None where that is not known."""
    padding = next((attribute.s for attribute in node.attribute if attribute.name == "auto_pad"), b"NOTSET")
    if not _is_up(node) or padding not in (b"", b"NOTSET") or dims is None:
        return None
    rank, kernel, pads, strides = len(dims) - 2, *_window(node)
    if rank < 1 or (len(kernel), len(strides), len(pads)) != (rank, rank, 2 * rank):
        return None
    if min(dims[2:]) < 0 or min(strides) < 1 or min(kernel) < 1:
        return None
    ends = []
    for axis, (size, reach, stride) in enumerate(zip(dims[2:], kernel, strides, strict=True)):
        size += pads[axis]
        room = size + pads[rank + axis] - reach
        if room < 0:
            return None
        last = -(-room // stride) * stride  # where the last window begins
        last -= stride if last >= size else 0
        ends.append(max(0, last + reach - size))
    return ends


def _sizes(node: onnx.NodeProto, dims: Sequence[int], ends: Sequence[int]) -> list[int]:
    kernel, pads, strides = _window(node)
    places = zip(dims[2:], kernel, strides, pads, ends, strict=False)
    return [(size + before + behind - reach) // stride + 1 for size, reach, stride, before, behind in places]


def _window(node: onnx.NodeProto) -> tuple[list[int], list[int], list[int]]:
    """How far a window reaches on each axis; the padding before and behind; the strides."""
    kernel = _ints(node, "kernel_shape", [])
    rank = len(kernel)
    dilations = _ints(node, "dilations", [1] * rank)
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=False)]
    return reach, _ints(node, "pads", [0] * 2 * rank), _ints(node, "strides", [1] * rank)


def _ints(node: onnx.NodeProto, name: str, default: list[int]) -> list[int]:
    return next(([*attribute.ints] for attribute in node.attribute if attribute.name == name), default)


def _dims(types: Mapping[str, onnx.TypeProto], node: onnx.NodeProto) -> list[int] | None:
    return _sizes_of(types.get(node.input[0])) if node.input else None


def _sizes_of(kind: onnx.TypeProto | None) -> list[int] | None:
    """The dims of a tensor, -1 where one is not known; None: unknown rank."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.tensor_type.shape.dim]
