"""GridSample: each pixel of the output is read between the input's pixels, where the grid says, in float32 (float64 of float64)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....tensor import DType
from ..index import Index
from .elements import ElementKernel
from .table import FRACTIONS, Described, KernelSource, Node, indexed

__all__: list[str] = []

_TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}
"""Mode → pixels along an axis that a value is made of."""
_PADDINGS = ("zeros", "border", "reflection")


def _fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    return all(dtype in FRACTIONS for _, dtype in inputs)


@indexed("GridSample", fits=_fits, fills=True)
def _grid_sample(node: Node) -> KernelSource:
    x, grid = node.inputs
    sizes, at = x.move.dims[2:], node.attributes
    rank, taps = len(sizes), _TAPS[at.get("mode", "linear")]
    places = [Index.counter(f"place{axis}", size) for axis, size in enumerate(sizes)]
    kernel = ElementKernel(node, lambda at: [*at[:2], *places], (0, *range(2, rank + 2)), ("grid_sample.cu",))
    real = "double" if DType.FLOAT64 in (x.dtype, grid.dtype) else "float"
    form = (
        f"{taps}, {_PADDINGS.index(at.get('padding_mode', 'zeros'))}, {'true' if at.get('align_corners') else 'false'}"
    )
    body = [f"{real} sums[{kernel.lanes}] = {{}};"]
    for axis, size in enumerate(sizes):
        unit = grid.scalar([kernel.at[0], *kernel.at[2:], Index((), rank - 1 - axis)])
        body.append(f"auto const a{axis} = taps_along<{form}>(static_cast<{real}>({unit}), {size});")
    for axis in range(rank):
        body += ["#pragma unroll", f"for (int t{axis} = 0; t{axis} < {taps}; ++t{axis}) {{"]
    body += [f"unsigned const place{axis} = a{axis}.place[t{axis}];" for axis in range(rank)]
    body.append(f"bool const inside = {' && '.join(f'a{axis}.inside[t{axis}]' for axis in range(rank))};")
    body.append(f"{real} const weight = {' * '.join(f'a{axis}.weight[t{axis}]' for axis in range(rank))};")
    body += kernel.load("p0", "inside ? count : 0")
    body += ["#pragma unroll", f"for (int lane = 0; lane < {kernel.lanes}; ++lane) {{"]
    body += [f"    sums[lane] += weight * static_cast<{real}>(p0.values[lane]);", "}", *["}"] * rank]
    body += ["#pragma unroll", f"for (int lane = 0; lane < {kernel.lanes}; ++lane) {{"]
    return kernel.source(
        [*body, f"    if (lane < count) q0.values[lane] = static_cast<{kernel.type}>(sums[lane]);", "}"]
    )
