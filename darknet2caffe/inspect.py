"""Print a network as a table like darknet's own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytrtplugins.utils.optional import require

from . import layers
from .layers import IMAGE, Layer, dims_text
from .network import Network
from .weights import count_parameters

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Row", "describe", "rows", "table", "weights_line"]

_WITH_FILTERS = (layers.Convolutional, layers.Deconvolutional, layers.Local)


@dataclass(frozen=True)
class Row:
    """One layer, ready to print.

    Attributes:
        index: Darknet's layer index.
        type: Section name.
        filters: Number of filters, where the layer has some.
        size: Window and stride, or the layers that it reads.
        input: Width x height x channels that it reads: the first input's where there are several, a shortcut's added
            map as in darknet's table; one number where darknet keeps no map.
        output: Width x height x channels that it gives, or how many values.
        bflops: Billions of operations, as darknet counts them.
        parameters: Numbers in the .weights file.
    """

    index: int
    type: str
    filters: str
    size: str
    input: str
    output: str
    bflops: float
    parameters: int


def rows(network: Network) -> list[Row]:
    """The network's layers, one row each."""
    return [
        Row(
            layer.index,
            layer.type,
            str(layer.filters) if isinstance(layer, _WITH_FILTERS) else "",
            describe(layer),
            _output(network, layer.inputs[-1] if isinstance(layer, layers.Shortcut) else layer.inputs[0]),
            _output(network, layer.index),
            layer.bflops,
            count_parameters(layer),
        )
        for layer in network.layers
    ]


def table(network: Network) -> Table:
    """The rows as a rich table, with totals."""
    rich = require("rich.table", extra="cli", package="rich", feature="printing a table")
    text = require("rich.text", extra="cli", package="rich")
    entries = rows(network)
    outputs = ", ".join(layer.name for layer in network.outputs)
    result: Table = rich.Table(
        title=text.Text(f"{network.name}: {dims_text(network.dims)} → {outputs}"),
        title_justify="left",
        box=None,
        show_footer=True,
    )
    count = sum(row.parameters for row in entries)
    result.add_column("layer", justify="right")
    result.add_column("type", footer="total")
    result.add_column("filters", justify="right")
    result.add_column("size")
    result.add_column("input", justify="right")
    result.add_column("output", justify="right")
    result.add_column("BFLOPs", justify="right", footer=f"{sum(row.bflops for row in entries):.3f}")
    result.add_column("parameters", justify="right", footer=f"{count:,}")
    for row in entries:
        numbers = (f"{row.bflops:.3f}" if row.bflops else "", f"{row.parameters:,}" if row.parameters else "")
        result.add_row(str(row.index), row.type, row.filters, row.size, row.input, row.output, *numbers)
    return result


def weights_line(network: Network) -> str:
    """One line on the weights: version, images seen, parameters, bytes."""
    if network.weights is None:
        return ""
    header = network.weights.header
    count = sum(count_parameters(layer) for layer in network.layers)
    return (
        f"weights: version {header.major}.{header.minor}.{header.revision}, {header.seen:,} images seen,"
        f" {count:,} numbers, {header.size_bytes + 4 * count:,} bytes: fits exactly, all finite"
    )


def describe(layer: Layer) -> str:
    """The column ``size`` of a layer in the table."""
    match layer:
        case layers.Convolutional(groups=groups) if groups > 1:
            return f"{layer.size} x {layer.size} / {layer.stride}, {groups} groups"
        case layers.Convolutional() | layers.Deconvolutional() | layers.Local() | layers.Maxpool():
            return f"{layer.size} x {layer.size} / {layer.stride}"
        case layers.Route():
            return _named(layer, " ") + (f", part {layer.group_id + 1} of {layer.groups}" if layer.groups > 1 else "")
        case layers.Shortcut():
            return _named(layer, " + ")
        case layers.ScaleChannels() | layers.Sam():
            return _named(layer, " x ")
        case layers.Upsample():
            return f"{'/' if layer.reverse else 'x'} {layer.stride}"
        case layers.ReorgLayer():
            fields = layer.plugin.fields()
            return f"{'x' if fields['reverse'] else '/'} {fields['stride']}"
        case layers.Reorg3d():
            return f"/ {layer.stride}"
        case layers.Flatten():
            return "channels first" if layer.reverse else "channels last"
        case layers.Extra():
            return f"{layer.extra} zeros more"
        case layers.Normalization():
            return f"{layer.size} channels"
        case layers.Activation():
            return "" if layer.activation == layer.type else layer.activation
        case layers.Softmax(tree=tree) if tree:
            return f"tree of {len(tree)}"
        case layers.Softmax() if layer.groups > 1:
            return f"{layer.groups} groups"
        case layers.Detection():
            return f"{layer.classes} classes"
        case layers.RegionLayer() | layers.YoloLayer():
            return f"{layer.plugin.fields()['classes']} classes"
    return ""


def _named(layer: Layer, separator: str) -> str:
    return f"layer{'s' * (len(layer.inputs) > 1)} {separator.join(map(str, layer.inputs))}"


def _output(network: Network, index: int) -> str:
    """Dims of a layer's output, or of the image, as darknet prints them."""
    if index != IMAGE and not network.layers[index].is_map:
        return str(math.prod(network.layers[index].dims))
    c, h, w = network.dims if index == IMAGE else network.layers[index].dims
    return f"{w:4d} x{h:4d} x{c:4d}"
