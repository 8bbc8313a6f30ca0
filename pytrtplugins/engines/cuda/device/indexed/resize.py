"""Resize by cubic or antialiased weights: sums of pixels whose places and weights are tables in the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .....tensor import DType
from ...operators.resampling import resized_axes, weighted_places
from ..index import Index
from .elements import ElementKernel, table_text
from .table import FRACTIONS, Described, KernelSource, Node, indexed

__all__: list[str] = []

_MAX_NUMBERS = 1 << 14
"""Of the tables."""
_Taps = dict[int, tuple[npt.NDArray[Any], npt.NDArray[Any]]]
"""Axis → places and weights, [output, tap]."""


def _taps(at: Any, given: Sequence[int], wanted: Sequence[int]) -> _Taps:
    found = {}
    numbers = (at["known"].get(place) for place in (1, 2, 3))
    for each in resized_axes(at, given, wanted, *numbers):
        taps = weighted_places(at, at["mode"], each.positions, given[each.axis], each.scale)
        places, weights = zip(*taps, strict=True)
        found[each.axis] = np.stack(places, 1), np.stack(weights, 1)
    return found


def _fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    (dims, dtype), output = inputs[0], outputs[0]
    if at.get("coordinate_transformation_mode") == "tf_crop_and_resize" or at.get("mode") not in ("linear", "cubic"):
        return False
    if output is None or dtype not in FRACTIONS or output[1] not in FRACTIONS:
        return False
    taps = _taps(at, dims, output[0])
    return bool(taps) and sum(places.size for places, _ in taps.values()) <= _MAX_NUMBERS


@indexed("Resize", fits=_fits, reads=(0,), fills=True)
def _resize(node: Node) -> KernelSource:
    x = node.inputs[0]
    taps = _taps(node.attributes, x.move.dims, node.output.dims)
    places = {axis: Index.counter(f"place{axis}", x.move.dims[axis]) for axis in taps}
    kernel = ElementKernel(node, lambda at: [places.get(axis, index) for axis, index in enumerate(at)], list(taps))
    real = "double" if x.dtype is DType.FLOAT64 else "float"
    tables, body, weights = list[str](), [f"{real} sums[{kernel.lanes}] = {{}};"], list[str]()
    for axis, (where, factors) in taps.items():
        count = where.shape[1]
        tables.append(table_text("unsigned", f"places{axis}", where.ravel().tolist()))
        tables.append(table_text("float", f"weights{axis}", factors.ravel().tolist()))
        number = f"({kernel.at[axis].text}) * {count}u + t{axis}"
        body += [
            f"for (unsigned t{axis} = 0; t{axis} < {count}u; ++t{axis}) {{",
            f"unsigned const place{axis} = places{axis}[{number}];",
        ]
        weights.append(f"weights{axis}[{number}]")
    body += [f"float const weight = {' * '.join(weights)};", *kernel.load("p0")]
    loop = ["#pragma unroll", f"for (int lane = 0; lane < {kernel.lanes}; ++lane)"]
    body += [*loop, f"    sums[lane] += weight * static_cast<{real}>(p0.values[lane]);", *["}"] * len(taps), *loop]
    return kernel.source(
        [*body, f"    if (lane < count) q0.values[lane] = static_cast<{kernel.type}>(sums[lane]);"], tables
    )
