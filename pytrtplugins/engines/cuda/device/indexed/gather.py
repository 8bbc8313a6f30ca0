"""Gather, GatherElements, GatherND and ReverseSequence: each output value is copied from a position of the data; any element type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..index import Index
from .elements import ElementKernel
from .table import INDICES, Described, KernelSource, Node, indexed

__all__ = ["copied_kernel"]


def _fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    return bool(inputs[0][0]) and inputs[1][1] in INDICES


@indexed("Gather", fits=_fits, fills=True, checks=True)
def _gather(node: Node) -> KernelSource:
    dims, rank = node.inputs[0].move.dims, len(node.inputs[1].move.dims)
    axis = node.attributes.get("axis", 0) % len(dims)
    place = Index.counter("place0", dims[axis])
    kernel = ElementKernel(node, lambda at: [*at[:axis], place, *at[axis + rank :]], range(axis, axis + rank))
    return _copied(kernel, {axis: node.inputs[1].scalar(kernel.at[axis : axis + rank])})


@indexed("GatherElements", fits=_fits, fills=True, checks=True)
def _gather_elements(node: Node) -> KernelSource:
    dims = node.inputs[0].move.dims
    axis = node.attributes.get("axis", 0) % len(dims)
    place = Index.counter("place0", dims[axis])
    kernel = ElementKernel(node, lambda at: [*at[:axis], place, *at[axis + 1 :]], range(len(dims)))
    return _copied(kernel, {axis: node.inputs[1].scalar(kernel.at)})


@indexed("GatherND", fits=_fits, fills=True, checks=True)
def _gather_nd(node: Node) -> KernelSource:
    dims, (*outer, count) = node.inputs[0].move.dims, node.inputs[1].move.dims
    batch = node.attributes.get("batch_dims", 0)
    axes, rank = range(batch, batch + count), len(outer)
    places = [Index.counter(f"place{number}", dims[axis]) for number, axis in enumerate(axes)]
    kernel = ElementKernel(node, lambda at: [*at[:batch], *places, *at[rank:]], range(rank))
    index = [node.inputs[1].scalar([*kernel.at[:rank], Index((), number)]) for number in range(count)]
    return _copied(kernel, dict(zip(axes, index, strict=True)))


@indexed("ReverseSequence", fits=_fits, fills=True, checks=True)
def _reverse_sequence(node: Node) -> KernelSource:
    dims, at = node.inputs[0].move.dims, node.attributes
    time, batch = at.get("time_axis", 0), at.get("batch_axis", 1)
    place = Index.counter("place0", dims[time])
    kernel = ElementKernel(node, lambda at: [*at[:time], place, *at[time + 1 :]], (0, 1))
    length = f"static_cast<long long>({node.inputs[1].scalar([kernel.at[batch]])})"
    step = f"static_cast<long long>({kernel.at[time].text})"
    return copied_kernel(kernel, [f"reversed_step({step}, {length}, {dims[time]}, flag)"])


def _copied(kernel: ElementKernel, indices: dict[int, str]) -> KernelSource:
    """The kernel, given an index in C for each of some axes of the data."""
    dims = kernel.node.inputs[0].move.dims
    return copied_kernel(kernel, [f"position({text}, {dims[axis]}, flag)" for axis, text in indices.items()])


def copied_kernel(kernel: ElementKernel, positions: Sequence[str]) -> KernelSource:
    """The kernel of values that are copied, given the positions ``place0``, ``place1``, … of its data in C."""
    body = [f"unsigned const place{number} = {text};" for number, text in enumerate(positions)]
    body += kernel.load("p0")
    body += ["#pragma unroll", f"for (int lane = 0; lane < {kernel.lanes}; ++lane) {{"]
    return kernel.source([*body, f"    q0.values[lane] = static_cast<{kernel.type}>(p0.values[lane]);", "}"])
