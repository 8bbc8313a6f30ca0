"""Pad in the modes reflect, edge and wrap: each value of the output is one of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..index import Index
from .elements import ElementKernel
from .gather import copied_kernel
from .table import Described, KernelSource, Node, indexed

__all__: list[str] = []


def _fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    pads = at["known"].get(1)
    return at.get("mode", "constant") != "constant" and pads is not None and not (pads < 0).any()


@indexed("Pad", fits=_fits, reads=(0,), fills=True)
def _pad(node: Node) -> KernelSource:
    known, dims = node.attributes["known"], node.inputs[0].move.dims
    pads, axes = known[1], known.get(3, range(len(dims)))
    begins = {int(axis) % len(dims): int(begin) for axis, begin in zip(axes, pads, strict=False)}
    padded = [axis for axis, begin in begins.items() if node.output.dims[axis] != dims[axis]]
    places = {axis: Index.counter(f"place{number}", dims[axis]) for number, axis in enumerate(padded)}
    kernel = ElementKernel(node, lambda at: [places.get(axis, at[axis]) for axis in range(len(dims))], padded)
    mode = node.attributes["mode"]
    return copied_kernel(kernel, [_position(mode, kernel.at[axis].text, begins[axis], dims[axis]) for axis in padded])


def _position(mode: str, text: str, begin: int, size: int) -> str:
    """C of a position in the data, from that in the output: an axis of so many values, behind so many that are added."""
    if size == 1:
        return "0u"
    if mode == "edge":
        return f"min(max(static_cast<int>({text}) - {begin}, 0), {size - 1})"
    period = size if mode == "wrap" else 2 * (size - 1)
    place = f"static_cast<int>((({text}) + {-begin % period}u) % {period}u)"
    return place if mode == "wrap" else f"min({place}, {period} - {place})"
