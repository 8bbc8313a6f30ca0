"""Choose the tensors that are stored as NHWC."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from ....model.ir import dims_of
from ....model.operator_traits import Trait, operators
from ....utils.optional import ir
from ..lower.rewrite import DOMAIN, has_rows

__all__ = ["image_tensors"]

_SEEDS = operators(Trait.CONVOLUTION) | {"LpPool", "MaxUnpool"}
"""Operators that work on the pixels of images, whatever tensors of four axes otherwise are; the other pools take both."""
_OTHER = (operators(Trait.KEEPS_ORDER) - {"Identity"}) | operators(Trait.INDEXED) | {
    "Constant", "ConstantOfShape", "Expand", "OneHot", "Tile", "Transpose", "Attention", "Det", "Einsum", "Gemm", "MatMul",
    "MatMulInteger", "PaddedNonZero", "PaddedUnique", "QLinearMatMul", "RotaryEmbedding", "CumSum", "Hardmax", "LayerNormalization",
    "LogSoftmax", "RMSNormalization", "Softmax",
}  # fmt: skip
"""Operators whose inputs and outputs this engine's kernels need not find in the same order."""
_OF_FRAMES = ("Gather", "Pad", "Reshape", "Slice")
"""Operators that keep images as they are, or some of them, where the last three dims stay: this engine joins frames of volumes by these."""
_FIRST = frozenset(("GridSample", "RoiAlign"))
"""Operators whose first input alone lies as the output does."""


def image_tensors(graph: ir.Graph, wants_pixels: Callable[[ir.Node], bool]) -> frozenset[str]:
    """Names of the 4-D tensors to store as NHWC: those of convolutions, pools and plugins that prefer it, and those connected to them.

    Two tensors are joined by an operator that keeps the order of values in memory, as a sum does: what is between
    convolutions lies as they want it, and what is between the products of a transformer stays row-major.

    Args:
        graph: A lowered model's; its inputs are row-major.
        wants_pixels: Whether a plugin's node is asked first if it takes NHWC.
    """
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while parents.setdefault(name, name) != name:
            parents[name] = name = parents[parents[name]]
        return name

    seeds: set[str] = set()
    for node in graph:
        standard = node.domain in ("", DOMAIN)
        inputs = node.inputs[:1] if standard and node.op_type in _FIRST else node.inputs
        values = [value for value in itertools.chain(inputs, node.outputs) if value is not None]
        free = [value for value in values if value.const_value is None and not value.is_graph_input()]
        names = [str(value.name) for value in free if len(dims_of(value) or ()) == 4]
        if standard and has_rows(node):
            continue
        if standard and _keeps_frames(node):
            names = [str(value.name) for value in (node.inputs[0], node.outputs[0]) if value is not None]
        if node.op_type in _SEEDS if standard else wants_pixels(node):
            seeds.update(names)
        elif standard and (node.op_type not in _OTHER or _keeps_frames(node)):
            for name in names[1:]:
                parents[root(name)] = root(names[0])
    images = {root(name) for name in seeds}
    return frozenset(name for name in {*parents, *seeds} if root(name) in images)


def _keeps_frames(node: ir.Node) -> bool:
    """Whether a node reshapes or moves only the axes before (C, H, W), of another tensor than a network input."""
    if node.op_type not in _OF_FRAMES or node.inputs[0] is None or node.inputs[0].is_graph_input():
        return False
    x, y = (dims_of(value) or () for value in (node.inputs[0], node.outputs[0]))
    return {len(x), len(y)} <= {4, 5} and len(x) + len(y) > 8 and x[-3:] == y[-3:]
