"""Keep OpenVINO from multiplying per-pixel factors into the weights of the convolution after them."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from ....model.ir import dims_of, is_op
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override
from .barrier import fixed_values, insert_fusion_barrier

__all__ = ["BarrierBeforeConv"]

_CHANNELS = 2
"""Axes before those of places: images and channels."""


class BarrierBeforeConv(Pass):
    """Insert Max(x, x) between a convolution and a product with constants that differ between pixels.

    Where there are as many places as taps, OpenVINO takes such factors for those of the taps (2026.4). Max(x, x), which is x, keeps
    them apart.
    """

    name: ClassVar[str] = "places-apart"

    @override
    def call(self, model: ir.Model) -> PassResult:
        convolutions = [node for node in model.graph if is_op(node, "Conv")]
        constants = fixed_values(model.graph) if convolutions else set()
        matches = [
            (node, value) for node in convolutions if (value := _pixel_scaled_input(node, constants)) is not None
        ]
        for node, value in matches:
            node.replace_input_with(0, insert_fusion_barrier(model.graph, value, node))
        return PassResult(model, bool(matches))


def _pixel_scaled_input(convolution: ir.Node, constants: Collection[ir.Value]) -> ir.Value | None:
    """The input of a convolution, if it is a product with per-pixel constants."""
    value = read = convolution.inputs[0]
    while value is not None and is_op(value.producer(), "Identity"):
        value = value.producer().inputs[0]  # type: ignore[union-attr]
    product = None if value is None else value.producer()
    if product is None or not (is_op(product, "Mul") or is_op(product, "Div")):
        return None
    rank = len(dims_of(value) or ())
    return read if any(factor in constants and _is_per_pixel(factor, rank) for factor in product.inputs) else None


def _is_per_pixel(factor: ir.Value | None, rank: int) -> bool:
    """Whether a factor has several values along the spatial axes."""
    dims = dims_of(factor)
    return dims is not None and any(dim != 1 for dim in dims[max(0, _CHANNELS - rank + len(dims)) :])
