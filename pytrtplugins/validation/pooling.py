"""Output sizes of pools with ceil_mode, which ONNX's own shape inference gets wrong before opset 22."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..utils.optional import onnx
from ..utils.repeated import keep_items
from .dataflow import downstream, tensors_read

__all__ = [
    "POOLS",
    "LastWindow",
    "correct_pools",
    "drop_ceil_mode",
    "ignores_ceil_mode",
    "last_windows",
    "remove_declared_dims",
    "rounds_up",
    "without_ceil_mode",
]

POOLS = ("AveragePool", "LpPool", "MaxPool")
"""Operators whose number of windows `ceil_mode` rounds up. It is no trait, since checks of models import nothing of `model`."""


@dataclass(frozen=True)
class LastWindow:
    """The last window of a pool on one axis with ceil_mode, before windows outside the image are left out.

    Fields:
        begin: Start of the window in the padded image.
        reach: Extent of the window, including dilation.
        stride: From the window before.
        size: Size of the image.
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
        """Whether it begins after the image, and so is left out."""
        return self.begin >= self.before + self.size

    @property
    def ends_behind(self) -> bool:
        """Whether it ends after the padding."""
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
    """Remove ``ceil_mode`` from a node; onnxruntime counts windows by it whatever ``auto_pad`` is."""
    node.CopyFrom(_without(node, "ceil_mode"))


def last_windows(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> list[LastWindow] | None:
    """The last window on each axis of a pool that `rounds_up`; None if sizes are unknown or attributes are invalid."""
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
    windows = []
    for size, width, step, stride, before, behind in zip(
        dims[2:], kernel, dilations, strides, pads, pads[rank:], strict=False
    ):
        reach = step * (width - 1) + 1
        room = before + size + behind - reach
        if room < 0:
            return None
        windows.append(LastWindow(-(-room // stride) * stride, reach, stride, size, before, behind))
    return windows


def without_ceil_mode(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> onnx.NodeProto:
    """An equal pool without ceil_mode, with more padding at the end; any other node is returned unchanged.

    With ``auto_pad``, ``ceil_mode`` has no part in the number of windows, which ONNX's inference does not know: it is taken away.

    Before opset 22, ONNX's inference also counts windows that begin behind the image and the padding before it. The operators leave
    them out (from opset 22 on, the specification says so), and so do onnxruntime, OpenVINO and PyTorch.
    """
    if ignores_ceil_mode(node):
        return _without(node, "ceil_mode")
    windows = last_windows(node, types) if rounds_up(node) else None
    if windows is None:
        return node
    ends = [
        max(0, (window.count - 1) * window.stride + window.reach - window.before - window.size) for window in windows
    ]
    pool = _without(node, "ceil_mode", "pads")
    pads = [*(window.before for window in windows), *ends]
    pool.attribute.add(name="pads", type=7, ints=pads)  # AttributeProto.INTS
    return pool


def correct_pools(model: onnx.ModelProto) -> dict[int, onnx.NodeProto]:
    """Index of each pool whose inferred size is too large → the same pool by `without_ceil_mode`.

    Those whose own input hangs on another of them are left out: its size is not known yet.
    """
    corrections: dict[int, onnx.NodeProto] = {}
    if not any(map(_has_ceil_mode, model.graph.node)):
        return corrections
    types = {info.name: info.type for info in (*model.graph.input, *model.graph.value_info, *model.graph.output)}
    unknown: set[str] = set()
    for index, node in enumerate(model.graph.node):
        if not unknown.isdisjoint(tensors_read(node)):
            unknown.update(node.output)
        elif ignores_ceil_mode(node):
            corrections[index] = without_ceil_mode(node, types)
            unknown.update(node.output)
        elif rounds_up(node) and (windows := last_windows(node, types)) is not None:
            dims = _dims(types.get(node.output[0]))
            if dims is not None and dims[2:] != [window.count for window in windows]:
                corrections[index] = without_ceil_mode(node, types)
                unknown.update(node.output)
    return corrections


def remove_declared_dims(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Remove declared dims of these nodes' outputs, and of all tensors computed from them."""
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
