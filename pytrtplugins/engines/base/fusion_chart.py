"""Draw the fusion of a network: its nodes on the left, the kernels that compute them on the right."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Tree

from ...utils.atomic import write_atomic
from ...utils.figures import PALETTE
from .fusion import Fusion

__all__ = ["draw_fusion"]

_ROW, _HEAD, _MARGIN = 18, 52, 12
_LEFT, _WIDTH, _GAP, _KERNEL_WIDTH = 110, 330, 120, 330
_LETTERS = 46  # that fit into a box
_GREY = "#b8b8b8"
_STYLE = """
path { stroke-width: 1.5 }
text { font: 11px ui-monospace, monospace; fill: #222 }
.title { font: 15px system-ui, sans-serif }
.head { font: 12px system-ui, sans-serif }
"""


def draw_fusion(fusion: Fusion, path: str | Path, title: str = "") -> None:
    """Write an SVG: a line for each node, a box for each kernel, in the kernel's colour; arcs for edges that skip nodes.

    Nodes without a kernel are grey: they are computed while the engine is built, or change nothing. Kernels without nodes, such as
    changes of layout, are left out; the heading has their number.
    """
    rows = {place: _HEAD + _ROW * index for index, place in enumerate(range(len(fusion.names)))}
    boxes = _boxes(fusion, rows)
    bottom = max([*rows.values(), *(top + height for top, height in boxes), _HEAD]) + 2 * _ROW
    width = _LEFT + _WIDTH + _GAP + _KERNEL_WIDTH + _MARGIN
    svg = Tree.Element(
        "svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {bottom}", width=str(width), height=str(bottom)
    )
    Tree.SubElement(svg, "style").text = _STYLE
    Tree.SubElement(svg, "rect", width="100%", height="100%", fill="white")
    added = len(fusion.kernels) - len(fusion.computing)
    _text(svg, _MARGIN, 20, title, "title")
    _text(svg, _LEFT, 42, f"{len(fusion.names)} nodes, {len(fusion.before)} of them without a kernel", "head")
    kernels = f"{len(fusion.computing)} kernels" + (f", and {added} parts that the engine added" if added else "")
    _text(svg, _LEFT + _WIDTH + _GAP, 42, kernels, "head")
    _edges(svg, fusion, rows)
    colors = dict.fromkeys(fusion.before, _GREY)
    for number, (kernel, (top, height)) in enumerate(zip(fusion.computing, boxes, strict=True)):
        color = PALETTE[number % len(PALETTE)]
        left = _LEFT + _WIDTH + _GAP
        _box(svg, left, top, _KERNEL_WIDTH, height, color, f"{kernel.kind}  {kernel.name}")
        for place in kernel.nodes:
            colors[place] = color
            begin, end = rows[place] + _ROW / 2 - 2, top + height / 2
            middle = _LEFT + _WIDTH + _GAP / 2
            curve = f"M{_LEFT + _WIDTH} {begin} C{middle} {begin} {middle} {end} {left} {end}"
            Tree.SubElement(svg, "path", d=curve, fill="none", stroke=color)
    for place, top in rows.items():
        _box(svg, _LEFT, top, _WIDTH, _ROW - 4, colors[place], f"{fusion.operators[place]}  {fusion.names[place]}")
    write_atomic(path, Tree.tostring(svg, encoding="utf-8", xml_declaration=True))


def _boxes(fusion: Fusion, rows: dict[int, int]) -> list[tuple[float, float]]:
    """Top and height of each kernel's box, next to its nodes, without overlaps."""
    boxes: list[tuple[float, float]] = []
    free = float(_HEAD)
    for kernel in fusion.computing:
        span = rows[kernel.nodes[-1]] - rows[kernel.nodes[0]] + _ROW - 4
        height = float(span if span <= _ROW * len(kernel.nodes) else _ROW - 4)
        top = max(free, rows[kernel.nodes[0]] + (span - height) / 2)
        boxes.append((top, height))
        free = top + height + 4
    return boxes


def _edges(svg: Tree.Element, fusion: Fusion, rows: dict[int, int]) -> None:
    """Arcs at the left of the nodes, the wider the more nodes they skip."""
    for begin, end in fusion.edges:
        reach = min(_LEFT - 10, 8 + 6 * abs(end - begin)) if end - begin > 1 else 6
        top, bottom = rows[begin] + _ROW / 2 - 2, rows[end] + _ROW / 2 - 2
        curve = f"M{_LEFT} {top} C{_LEFT - reach} {top} {_LEFT - reach} {bottom} {_LEFT} {bottom}"
        Tree.SubElement(svg, "path", d=curve, fill="none", stroke=_GREY)


def _box(svg: Tree.Element, left: float, top: float, width: float, height: float, color: str, text: str) -> None:
    place = {"x": f"{left:g}", "y": f"{top:g}", "width": f"{width:g}", "height": f"{height:g}"}
    group = Tree.SubElement(svg, "g")
    Tree.SubElement(group, "title").text = text
    Tree.SubElement(group, "rect", {**place, "fill-opacity": "0.25"}, rx="3", fill=color, stroke=color)
    shown = text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"
    _text(group, left + 6, top + min(height, _ROW - 4) / 2 + 4, shown)


def _text(parent: Tree.Element, x: float, y: float, text: str, kind: str = "") -> None:
    place = {"x": f"{x:g}", "y": f"{y:g}"} | ({"class": kind} if kind else {})
    Tree.SubElement(parent, "text", place).text = text
