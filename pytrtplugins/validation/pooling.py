"""Pools that round their size up, as ONNX's own shape inference does not know them before opset 22."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..utils.repeated import keep_items
from .dataflow import downstream, reads

if TYPE_CHECKING:
    import onnx

__all__ = [
    "POOLS",
    "LastWindow",
    "drop_ceil_mode",
    "ignores_ceil_mode",
    "last_windows",
    "rounded_down",
    "rounds_up",
    "without_claims",
    "wrong_pools",
]

POOLS = ("AveragePool", "LpPool", "MaxPool")
"""Operators whose number of windows `ceil_mode` rounds up. It is no trait, since checks of models import nothing of `model`."""


@dataclass(frozen=True)
class LastWindow:
    """The last window of a pool on one axis, where its number is rounded up and none is left out yet.

    Fields:
        begin: Where it begins, in the padded image.
        reach: How far it reaches.
        stride: From the window before.
        size: Of the image.
        before: Padding before the image.
        behind: Padding behind it.
    """

    begin: int
    reach: int
    stride: int
    size: int
    before: int
    behind: int

    @property
    def begins_behind(self) -> bool:
        """Whether it begins behind the image, and is left out."""
        return self.begin >= self.before + self.size

    @property
    def ends_behind(self) -> bool:
        """Whether it ends behind the padding."""
        return self.begin + self.reach > self.before + self.size + self.behind

    @property
    def count(self) -> int:
        """How many windows there are."""
        return self.begin // self.stride + 1 - self.begins_behind


def rounds_up(node: onnx.NodeProto) -> bool:
    """Whether a node is a pool that rounds the number of its windows up."""
    return _has_ceil_mode(node) and not _pads_itself(node)


def ignores_ceil_mode(node: onnx.NodeProto) -> bool:
    """Whether a node is a pool with ``ceil_mode`` and ``auto_pad``, whose formulas for the number of windows have no part for it."""
    return _has_ceil_mode(node) and _pads_itself(node)


def drop_ceil_mode(node: onnx.NodeProto) -> None:
    """Take ``ceil_mode`` away from a node; onnxruntime counts windows with it whatever ``auto_pad`` says."""
    node.CopyFrom(_without(node, "ceil_mode"))


def last_windows(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> list[LastWindow] | None:
    """Of each axis of such a pool; None where its sizes are not known, or its attributes make no sense.

    Args:
        node: For which `rounds_up` is True.
        types: Those of tensors, by name, with their dims where they are known.
    """
    dims, kernel = _dims(types.get(node.input[0])), _ints(node, "kernel_shape", [])
    rank = len(kernel)
    pads, strides = _ints(node, "pads", [0] * 2 * rank), _ints(node, "strides", [1] * rank)
    dilations = _ints(node, "dilations", [1] * rank)
    if (
        dims is None
        or not rank
        or (len(dims) - 2, len(strides), len(dilations), len(pads)) != (rank, rank, rank, 2 * rank)
    ):
        return None
    if min(dims[2:]) < 0 or min(*strides, *kernel) < 1:
        return None
    found = []
    for size, width, step, stride, before, behind in zip(
        dims[2:], kernel, dilations, strides, pads, pads[rank:], strict=False
    ):
        reach = step * (width - 1) + 1
        room = before + size + behind - reach
        if room < 0:
            return None
        found.append(LastWindow(-(-room // stride) * stride, reach, stride, size, before, behind))
    return found


def rounded_down(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> onnx.NodeProto:
    """A pool that rounds up as one that rounds down, whose padding behind the image makes as many windows; any other node as it is.

    With ``auto_pad``, ``ceil_mode`` has no part in the number of windows, which ONNX's inference does not know: it is taken away.

    Before opset 22, ONNX's inference also counts windows that begin behind the image and the padding before it. The operators leave
    them out (from opset 22 on, the specification says so), and so do onnxruntime, OpenVINO and PyTorch.

    Args:
        node: Any.
        types: As for `last_windows`.
    """
    if ignores_ceil_mode(node):
        return _without(node, "ceil_mode")
    windows = last_windows(node, types) if rounds_up(node) else None
    if windows is None:
        return node
    ends = [max(0, (each.count - 1) * each.stride + each.reach - each.before - each.size) for each in windows]
    pool = _without(node, "ceil_mode", "pads")
    pads = [*(each.before for each in windows), *ends]
    pool.attribute.add(name="pads", type=7, ints=pads)  # AttributeProto.INTS
    return pool


def wrong_pools(model: onnx.ModelProto) -> dict[int, onnx.NodeProto]:
    """The nodes whose size inference found too large, by their places, and what `rounded_down` makes of them.

    Those whose own input hangs on another of them are left out: its size is not known yet.
    """
    found: dict[int, onnx.NodeProto] = {}
    if not any(map(_has_ceil_mode, model.graph.node)):
        return found
    types = {info.name: info.type for info in (*model.graph.input, *model.graph.value_info, *model.graph.output)}
    unknown: set[str] = set()
    for index, node in enumerate(model.graph.node):
        if not unknown.isdisjoint(reads(node)):
            unknown.update(node.output)
        elif ignores_ceil_mode(node):
            found[index] = rounded_down(node, types)
            unknown.update(node.output)
        elif rounds_up(node) and (windows := last_windows(node, types)) is not None:
            dims = _dims(types.get(node.output[0]))
            if dims is not None and dims[2:] != [each.count for each in windows]:
                found[index] = rounded_down(node, types)
                unknown.update(node.output)
    return found


def without_claims(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Take away what a model says of the dims of these nodes' outputs, and of all that is computed from them."""
    names = downstream(model.graph.node, (name for node in nodes for name in node.output))
    keep_items(model.graph.value_info, lambda info: info.name not in names)
    for info in model.graph.output:
        if info.name in names:
            info.type.tensor_type.ClearField("shape")


# -- inside ----------------------------------------------------------------------------------------------------------------


def _has_ceil_mode(node: onnx.NodeProto) -> bool:
    """Whether a node is a pool with ``ceil_mode``."""
    return (
        node.op_type in POOLS
        and node.domain in ("", "ai.onnx")
        and any(attribute.name == "ceil_mode" and attribute.i for attribute in node.attribute)
    )


def _pads_itself(node: onnx.NodeProto) -> bool:
    return any(attribute.name == "auto_pad" and attribute.s not in (b"", b"NOTSET") for attribute in node.attribute)


def _without(node: onnx.NodeProto, *names: str) -> onnx.NodeProto:
    copy = type(node)()
    copy.CopyFrom(node)
    keep_items(copy.attribute, lambda attribute: attribute.name not in names)
    return copy


def _ints(node: onnx.NodeProto, name: str, default: list[int]) -> list[int]:
    return next(([*attribute.ints] for attribute in node.attribute if attribute.name == name), default)


def _dims(kind: onnx.TypeProto | None) -> list[int] | None:
    """The dims of a tensor, -1 where one is not known; None: unknown rank."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.tensor_type.shape.dim]
