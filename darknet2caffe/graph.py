"""Draw a network: one box per layer from top to bottom, and curves for connections that skip layers."""

from __future__ import annotations

import math
import tempfile
import webbrowser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytrtplugins.utils.atomic import write_atomic
from pytrtplugins.utils.optional import require

from .inspect import describe
from .layers import IMAGE, Layer, dims_text
from .network import INPUT_NAME, Network
from .weights import count_parameters

__all__ = ["draw_svg", "open_svg", "write_svg"]

_BOX, _GAP = 24, 14  # height of a box, and of the room for an arrow
_LEFT, _WIDTH = 164, 480  # where boxes begin, and how wide they are
_LANE = 11  # from one curve to the next
_TOP = 84  # title and legend
_BEND = 8  # radius of a curve's corners
_FACTS = 30  # characters

_COLOURS = {  # kind: fill, line
    "image": ("#ffffff", "#5b6470"),
    "convolution": ("#dcebfb", "#2f6fb5"),
    "pooling": ("#dcf3e2", "#2b8a4b"),
    "route": ("#fbefc9", "#b8860b"),
    "sum": ("#eee0fa", "#8446b8"),
    "head": ("#c2343f", "#8f1f29"),
    "other": ("#eceef1", "#7a828c"),
}
_KINDS = {  # kind: types of layers
    "convolution": ("convolutional", "deconvolutional", "connected", "local"),
    "pooling": ("avgpool", "crop", "maxpool", "reorg", "reorg3d", "upsample"),
    "route": ("route",),
    "sum": ("sam", "scale_channels", "shortcut"),
    "head": ("cost",),
}
_LEGEND = {
    "convolution": "convolution, connected",
    "pooling": "pooling, resizing",
    "route": "route",
    "sum": "sum, product",
    "head": "head",
    "other": "other",
}


@dataclass(frozen=True)
class Curve:
    """A skip connection: from one layer to every later one of a kind that reads it, along one lane.

    Attributes:
        kind: Kind of the layers that read it.
        targets: Their indices, ascending.
        lane: 0 is next to the boxes.
    """

    source: int
    kind: str
    targets: tuple[int, ...]
    lane: int


def draw_svg(network: Network) -> str:
    """The network as an SVG image; the same network gives the same text."""
    svg = require("drawsvg", extra="cli", feature="drawing a network")
    curves = lay_out(network)
    lanes = 1 + max((curve.lane for curve in curves), default=-1)
    right = _LEFT + _WIDTH
    drawing = svg.Drawing(right + 36 + lanes * _LANE, _y(len(network.layers)) + 6)
    drawing.append_css(_style())
    drawing.append_title(_plain(network.name))
    drawing.append(svg.Rectangle(0, 0, "100%", "100%", fill="#ffffff"))
    drawing.extend(_heading(svg, network))
    drawing.extend(_sizes(svg, network))
    arrows = {kind: _arrow(svg, kind) for kind in _COLOURS}
    for curve in sorted(curves, key=lambda curve: -curve.lane):
        drawing.extend(_skips(svg, curve, arrows[curve.kind]))
    for layer in network.layers:
        if layer.index - 1 in layer.inputs:
            x, y = _LEFT + _WIDTH // 2, _y(layer.index)
            step = svg.Line(x, y - _GAP, x, y - 1, class_="edge image", marker_end=arrows["image"])
            drawing.append(_titled(step, _edge_title(layer.index - 1, layer.index)))
    drawing.append(_image(svg, network))
    drawing.extend(_layer(svg, network, layer, arrows["head"]) for layer in network.layers)
    return str(drawing.as_svg()) + "\n"


def write_svg(network: Network, path: str | Path) -> None:
    """Write the image of `draw_svg` to a file."""
    write_atomic(path, draw_svg(network).encode())


def open_svg(network: Network) -> tuple[Path, bool]:
    """Write the image to a temporary file and show it in the browser; gives the file, and whether a browser took it."""
    data = draw_svg(network).encode()
    path = Path(tempfile.mkdtemp(prefix="darknet2caffe-")) / f"{network.name}.svg"
    write_atomic(path, data)
    return path, webbrowser.open(path.as_uri())


def lay_out(network: Network) -> list[Curve]:
    """Assign curves to lanes: each to the free lane nearest to the boxes, short ones first."""
    targets: dict[tuple[int, str], list[int]] = {}
    for layer in network.layers:
        for source in dict.fromkeys(layer.inputs):
            if source != layer.index - 1:
                targets.setdefault((source, kind_of(layer)), []).append(layer.index)
    lanes: list[list[tuple[int, int]]] = []
    curves = []
    for (source, kind), reached in sorted(targets.items(), key=lambda item: (item[1][-1] - item[0][0], item[0])):
        end = reached[-1]
        free = (number for number, intervals in enumerate(lanes) if all(end <= a or b <= source for a, b in intervals))
        lane = next(free, len(lanes))
        lanes.extend([] for _ in range(lane + 1 - len(lanes)))
        lanes[lane].append((source, end))
        curves.append(Curve(source, kind, tuple(reached), lane))
    return curves


def kind_of(layer: Layer) -> str:
    """The kind of a layer, which is a key of the legend and selects its colour."""
    if layer.is_head:
        return "head"
    return next((kind for kind, types in _KINDS.items() if layer.type in types), "other")


def _style() -> str:
    lines = [
        "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;fill:#1d2229}",
        ".title{font-size:19px;font-weight:600}.type{font-weight:600}",
        ".index,.size,.facts{fill:#5b6470}.index,.dims{font-variant-numeric:tabular-nums}",
        ".index,.dims,.size{text-anchor:end}",
        ".edge{fill:none;stroke-width:1.6}.edge:hover{stroke-width:4}",
        ".layer:hover rect{stroke-width:2.5}",
        ".layer.head text,.output text{fill:#ffffff}.output text{text-anchor:middle;font-weight:600}",
        f".bar{{stroke:#c5cbd3;stroke-width:3}}.output rect{{fill:{_COLOURS['head'][1]}}}",
    ]
    for kind, (fill, line) in _COLOURS.items():
        lines.append(
            f".{kind} rect{{fill:{fill};stroke:{line}}}.edge.{kind}{{stroke:{line}}}.tip.{kind}{{fill:{line}}}"
        )
    return "\n".join(lines)


def _heading(svg: Any, network: Network) -> Iterator[Any]:
    """Draw name, totals and legend."""
    layers = network.layers
    yield svg.Text(_plain(network.name), None, 16, 30, class_="title")
    count, bflops = sum(map(count_parameters, layers)), sum(layer.bflops for layer in layers)
    facts = f"{len(layers)} layers, {count:,} parameters, {bflops:.3f} BFLOPs"
    yield svg.Text(facts, None, 16, 50, class_="facts")
    x = 16
    used = {kind_of(layer) for layer in layers}
    for kind, meaning in _LEGEND.items():
        if kind in used:
            group = svg.Group(class_=kind)
            group.append(svg.Rectangle(x, 61, 11, 11, rx=3))
            yield group
            yield svg.Text(meaning, None, x + 17, 71, class_="facts")
            x += 32 + 7 * len(meaning)


def _sizes(svg: Any, network: Network) -> Iterator[Any]:
    """Draw a bar on the left of each run of maps of one size, with the size at its top."""
    sizes = [network.dims[:0:-1], *(layer.dims[:0:-1] if layer.is_map else None for layer in network.layers)]
    start = 0
    for end in range(1, len(sizes) + 1):
        if end == len(sizes) or sizes[end] != sizes[start]:
            size = sizes[start]
            if size is not None:
                top, bottom = _y(start - 1), _y(end - 2) + _BOX
                yield svg.Line(92, top, 92, bottom, class_="bar")
                yield svg.Text("{} x {}".format(*size), None, 84, top + 16, class_="size")
            start = end


def _image(svg: Any, network: Network) -> Any:
    group = svg.Group(class_="layer image")
    y = _y(IMAGE)
    group.append(svg.Rectangle(_LEFT, y, _WIDTH, _BOX, rx=6))
    group.append(svg.Text(INPUT_NAME, None, _LEFT + 46, y + 16, class_="type"))
    group.append(svg.Text(dims_text(network.dims), None, _LEFT + _WIDTH - 12, y + 16, class_="dims"))
    return group


def _layer(svg: Any, network: Network, layer: Layer, arrow: Any) -> Any:
    """A box with index, type, what it does and the dims of its output; more when the mouse rests on it."""
    group = svg.Group(class_=f"layer {kind_of(layer)}")
    group.append_title("\n".join(_details(layer)))
    y = _y(layer.index)
    group.append(svg.Rectangle(_LEFT, y, _WIDTH, _BOX, rx=6))
    group.append(svg.Text(str(layer.index), None, _LEFT + 36, y + 16, class_="index"))
    group.append(svg.Text(layer.type, None, _LEFT + 46, y + 16, class_="type"))
    facts = _facts(layer)
    facts = facts if len(facts) <= _FACTS else f"{facts[: _FACTS - 1]}…"
    group.append(svg.Text(facts, None, _LEFT + 160, y + 16, class_="facts"))
    dims = dims_text(layer.dims) if layer.is_map else f"{math.prod(layer.dims):,}"
    group.append(svg.Text(dims, None, _LEFT + _WIDTH - 12, y + 16, class_="dims"))
    if layer in network.outputs:
        output = svg.Group(class_="output")
        output.append(svg.Line(_LEFT, y + 12, _LEFT - 9, y + 12, class_="edge head", marker_end=arrow))
        output.append(svg.Rectangle(_LEFT - 63, y + 4, 52, 16, rx=8))
        output.append(svg.Text("output", None, _LEFT - 37, y + 16))
        group.append(output)
    return group


def _skips(svg: Any, curve: Curve, arrow: Any) -> Iterator[Any]:
    """One curve for each layer that reads the source; they share a lane."""
    right, lane = _LEFT + _WIDTH, _LEFT + _WIDTH + 22 + curve.lane * _LANE
    for target in curve.targets:
        top, bottom = _y(curve.source) + 17, _y(target) + 7
        path = svg.Path(class_=f"edge {curve.kind}", marker_end=arrow)
        path.M(right, top).H(lane - _BEND).Q(lane, top, lane, top + _BEND)
        path.V(bottom - _BEND).Q(lane, bottom, lane - _BEND, bottom).H(right + 1)
        yield _titled(path, _edge_title(curve.source, target))


def _arrow(svg: Any, kind: str) -> Any:
    """An arrow head of this kind, as an SVG marker."""
    marker = svg.Marker(-8, -4, 1, 4, id=f"tip-{kind}", markerUnits="userSpaceOnUse", markerWidth=9, markerHeight=8)
    marker.append(svg.Lines(-7, -3.5, 0, 0, -7, 3.5, close=True, class_=f"tip {kind}"))
    return marker


def _titled(element: Any, title: str) -> Any:
    element.append_title(title)
    return element


def _edge_title(source: int, target: int) -> str:
    return f"{INPUT_NAME if source == IMAGE else source} → {target}"


def _facts(layer: Layer) -> str:
    """The layer's operation, as in the table, and its activation."""
    activation = getattr(layer, "activation", "linear")
    facts = [describe(layer), "" if activation in ("linear", layer.type) else activation]
    return ", ".join(dict.fromkeys(filter(None, facts)))


def _details(layer: Layer) -> Iterator[str]:
    """Yield lines of text for a layer's box."""
    yield f"{layer.name}, line {layer.line} of the cfg"
    if facts := _facts(layer):
        yield facts
    yield f"{', '.join(map(dims_text, layer.input_dims))} → {dims_text(layer.dims)}"
    if getattr(layer, "batch_normalize", False):
        yield "batch normalization"
    if count := count_parameters(layer):
        yield f"{count:,} parameters"
    if layer.bflops:
        yield f"{layer.bflops:.3f} BFLOPs"


def _plain(text: str) -> str:
    """Text without what XML cannot hold."""
    return "".join(character if character.isprintable() else "�" for character in text)


def _y(index: int) -> int:
    """Top of a layer's box; -1 is the image's."""
    return _TOP + (index + 1) * (_BOX + _GAP)
