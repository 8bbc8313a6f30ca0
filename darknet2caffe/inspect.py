"""A network as a table like darknet's own."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytrtplugins.utils.optional import require

from .layers import (
    IMAGE,
    Activation,
    Convolutional,
    Deconvolutional,
    Detection,
    Extra,
    Flatten,
    Layer,
    Local,
    Maxpool,
    Normalization,
    PluginLayer,
    RegionLayer,
    Reorg3d,
    ReorgLayer,
    Route,
    Sam,
    ScaleChannels,
    Shortcut,
    Softmax,
    Upsample,
    YoloLayer,
    dims_text,
)
from .network import Network
from .weights import count_parameters

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Row", "describe", "rows", "table", "weights_line"]

_WITH_FILTERS = (Convolutional, Deconvolutional, Local)


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
            _output(network, layer.inputs[-1] if isinstance(layer, Shortcut) else layer.inputs[0]),
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
    """One line about the weights: version, images seen, numbers, bytes."""
    if network.weights is None:
        return ""
    header = network.weights.header
    count = sum(count_parameters(layer) for layer in network.layers)
    return (
        f"weights: version {header.major}.{header.minor}.{header.revision}, {header.seen:,} images seen,"
        f" {count:,} numbers, {header.size_bytes + 4 * count:,} bytes: fits exactly, all finite"
    )


@functools.singledispatch
def describe(layer: Layer) -> str:
    """What the table's column ``size`` says of a layer."""
    return ""


@describe.register(Convolutional)
@describe.register(Deconvolutional)
@describe.register(Local)
@describe.register(Maxpool)
def _(layer: Convolutional | Deconvolutional | Local | Maxpool) -> str:
    text = f"{layer.size} x {layer.size} / {layer.stride}"
    groups = getattr(layer, "groups", 1)
    return text if groups == 1 else f"{text}, {groups} groups"


@describe.register
def _(layer: Route) -> str:
    text = _named(layer, " ")
    return text if layer.groups == 1 else f"{text}, part {layer.group_id + 1} of {layer.groups}"


@describe.register
def _(layer: Shortcut) -> str:
    return _named(layer, " + ")


@describe.register(ScaleChannels)
@describe.register(Sam)
def _(layer: ScaleChannels | Sam) -> str:
    return _named(layer, " x ")


@describe.register
def _(layer: Upsample) -> str:
    return f"{'/' if layer.reverse else 'x'} {layer.stride}"


@describe.register
def _(layer: ReorgLayer) -> str:
    fields = layer.plugin.fields()
    return f"{'x' if fields['reverse'] else '/'} {fields['stride']}"


@describe.register
def _(layer: Reorg3d) -> str:
    return f"/ {layer.stride}"


@describe.register
def _(layer: Flatten) -> str:
    return "channels first" if layer.reverse else "channels last"


@describe.register
def _(layer: Extra) -> str:
    return f"{layer.extra} zeros more"


@describe.register
def _(layer: Normalization) -> str:
    return f"{layer.size} channels"


@describe.register
def _(layer: Activation) -> str:
    return "" if layer.activation == layer.type else layer.activation


@describe.register
def _(layer: Softmax) -> str:
    if layer.tree:
        return f"tree of {len(layer.tree)}"
    return "" if layer.groups == 1 else f"{layer.groups} groups"


@describe.register(Detection)
def _(layer: Detection) -> str:
    return f"{layer.classes} classes"


@describe.register(RegionLayer)
@describe.register(YoloLayer)
def _(layer: PluginLayer) -> str:
    return f"{layer.plugin.fields()['classes']} classes"


def _named(layer: Layer, separator: str) -> str:
    return f"layer{'s' * (len(layer.inputs) > 1)} {separator.join(map(str, layer.inputs))}"


def _output(network: Network, index: int) -> str:
    """Dims of a layer's output, or of the image, as darknet prints them."""
    if index != IMAGE and not network.layers[index].is_map:
        return str(math.prod(network.layers[index].dims))
    c, h, w = network.dims if index == IMAGE else network.layers[index].dims
    return f"{w:4d} x{h:4d} x{c:4d}"
