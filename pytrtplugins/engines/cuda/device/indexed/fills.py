"""OneHot and Trilu: values that a place, or an index, decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..index import Index
from ..text import C_TYPES
from .elements import ElementKernel
from .table import Described, KernelSource, Node, indexed

__all__: list[str] = []


def _has_numbers(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    return all(dtype in C_TYPES for _, dtype in inputs)


@indexed("OneHot", fits=_has_numbers, reads=(0, 2), fills=True)
def _one_hot(node: Node) -> KernelSource:
    indices, values = node.inputs
    rank = len(indices.move.dims) + 1
    axis = node.attributes.get("axis", -1) % rank
    kernel = ElementKernel(node, lambda at: [*at[:axis], *at[axis + 1 :]], range(rank))
    depth = kernel.output.dims[axis]
    off, on = (values.scalar([Index((), place)]) for place in range(2))
    body = [
        f"long long const index = static_cast<long long>({indices.scalar([*kernel.at[:axis], *kernel.at[axis + 1 :]])});",
        f"bool const hot = (index < 0 ? index + {depth} : index) == static_cast<long long>({kernel.at[axis].text});",
        f"q0.values[0] = static_cast<{kernel.type}>(hot ? {on} : {off});",
    ]
    return kernel.source(body)


@indexed("Trilu", fits=_has_numbers, reads=(0,), fills=True)
def _trilu(node: Node) -> KernelSource:
    k = int(np.reshape(node.attributes["known"].get(1, 0), ()))
    kernel = ElementKernel(node, lambda at: at, range(len(node.inputs[0].move.dims)))
    side = ">=" if node.attributes.get("upper", 1) else "<="
    columns, rows = (f"static_cast<long long>({kernel.at[axis].text})" for axis in (-1, -2))
    body = [f"if ({columns} - {rows} {side} {k}ll) q0.values[0] = {node.inputs[0].scalar(kernel.at)};"]
    return kernel.source(body)
