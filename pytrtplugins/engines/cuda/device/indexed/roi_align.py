"""RoiAlign: each bin of a box is the mean, or the largest, of points that are read between pixels; the kernel counts the points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....tensor import DType
from ..index import Index
from .elements import ElementKernel
from .table import FRACTIONS, INDICES, Described, KernelSource, Node, indexed

__all__: list[str] = []


def _fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    (_, x), (_, rois), (_, images) = inputs
    return x in FRACTIONS and rois in FRACTIONS and images in INDICES


@indexed("RoiAlign", fits=_fits, reads=(0, 1, 2), fills=True)
def _roi_align(node: Node) -> KernelSource:
    (x, rois, images), at = node.inputs, node.attributes
    (count, _, *sizes), bins = x.move.dims, node.output.dims[2:]
    places = [Index.counter(f"place{axis}", size) for axis, size in enumerate((count, *sizes))]
    kernel = ElementKernel(node, lambda at: [places[0], at[1], *places[1:]], (0, 2, 3), ("roi_align.cu",))
    real, largest = "double" if x.dtype is DType.FLOAT64 else "float", at.get("mode", "avg") == "max"
    half = at.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    scale, shift = float(at.get("spatial_scale", 1.0)), 0.5 if half else 0.0
    corners = [
        f"static_cast<float>({rois.scalar([kernel.at[0], Index((), place)])}) * {scale!r}f - {shift}f"
        for place in range(4)
    ]
    body = [f"unsigned const place0 = position({images.scalar([kernel.at[0]])}, {count}, flag);"]
    for axis in range(2):
        more = f"{bins[axis]}, {'false' if half else 'true'}, {at.get('sampling_ratio', 0)}"
        body.append(f"Side const s{axis}({corners[1 - axis]}, {corners[3 - axis]}, {more});")
    start = "-__int_as_float(0x7F800000)" if largest else "0"
    loop = [f"for (int lane = 0; lane < {kernel.lanes}; ++lane)"]
    body += [f"{real} found[{kernel.lanes}];", *loop, f"    found[lane] = {start};"]
    for axis in range(2):
        body += [f"for (int t{axis} = 0; t{axis} < s{axis}.points; ++t{axis}) {{"]
        body += [f"Point const p{axis} = point_at(s{axis}.at({kernel.at[2 + axis].text}, t{axis}), {sizes[axis]});"]
    body += ["#pragma unroll", "for (int corner = 0; corner < 4; ++corner) {"]
    body += [
        "unsigned const upper = corner / 2, right = corner % 2, place1 = p0.place[upper], place2 = p1.place[right];"
    ]
    body += ["float const weight = (upper ? p0.upper : 1 - p0.upper) * (right ? p1.upper : 1 - p1.upper);"]
    body += [*kernel.load("values", "p0.outside || p1.outside ? 0 : count"), *loop, "{"]
    body += [f"    {real} const part = weight * static_cast<{real}>(values.values[lane]);"]
    body += [
        f"    found[lane] = {'larger(found[lane], part)' if largest else 'found[lane] + part'};",
        "}",
        "}",
        "}",
        "}",
    ]
    points = "larger(s0.points * s1.points, 1)"
    result = f"found[lane] == {start} ? 0 : found[lane]" if largest else f"found[lane] / {points}"
    body += [*loop, f"    if (lane < count) q0.values[lane] = static_cast<{kernel.type}>({result});"]
    return kernel.source(body)
