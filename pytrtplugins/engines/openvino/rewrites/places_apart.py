"""Factors that differ from place to place stand apart from the convolution behind them: OpenVINO multiplies its weights by them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from ....model.ir import dims_of, is_op
from ....passes import Pass, PassResult
from ....utils.override import override
from .barrier import fixed_values, kept_apart

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["PlacesApart"]

_CHANNELS = 2
"""Axes before those of places: images and channels."""


class PlacesApart(Pass):
    """Put Max between a convolution and a product with constants that are not the same at all places of an image.

    Where there are as many places as taps, OpenVINO takes such factors for those of the taps (2026.4). Max(x, x), which is x, keeps
    them apart.
    """

    name: ClassVar[str] = "places-apart"

    @override
    def call(self, model: ir.Model) -> PassResult:
        convolutions = [node for node in model.graph if is_op(node, "Conv")]
        constants = fixed_values(model.graph) if convolutions else set()
        found = [(node, value) for node in convolutions if (value := _scaled(node, constants)) is not None]
        for node, value in found:
            node.replace_input_with(0, kept_apart(model.graph, value, node))
        return PassResult(model, bool(found))


def _scaled(convolution: ir.Node, constants: Collection[ir.Value]) -> ir.Value | None:
    """What a convolution reads, if that is a product with constants of places."""
    value = read = convolution.inputs[0]
    while value is not None and is_op(value.producer(), "Identity"):
        value = value.producer().inputs[0]  # type: ignore[union-attr]
    product = None if value is None else value.producer()
    if product is None or not (is_op(product, "Mul") or is_op(product, "Div")):
        return None
    rank = len(dims_of(value) or ())
    return read if any(factor in constants and _is_of_places(factor, rank) for factor in product.inputs) else None


def _is_of_places(factor: ir.Value | None, rank: int) -> bool:
    """Whether a factor has several values along the axes behind the channels."""
    dims = dims_of(factor)
    return dims is not None and any(dim != 1 for dim in dims[max(0, _CHANNELS - rank + len(dims)) :])
