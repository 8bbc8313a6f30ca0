"""A network as a table like darknet's own."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytrtplugins._optional import require

from .layers import Convolutional, Layer, Maxpool, PluginLayer, ReorgLayer, Route, Shape, Shortcut, Upsample
from .network import Network
from .weights import count_parameters

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Row", "rows", "table"]


@dataclass(frozen=True)
class Row:
    """One layer, ready to print.

    Attributes:
        index: Darknet's layer index.
        type: Section name.
        filters: Number of filters, where the layer has some.
        size: Window and stride, or the layers that it reads.
        input: Width x height x channels that it reads; the first input's where there are several.
        output: Width x height x channels that it gives.
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
            str(layer.filters) if isinstance(layer, Convolutional) else "",
            describe(layer),
            _dims(layer.input_dims[0]),
            _dims(layer.dims),
            layer.bflops,
            count_parameters(layer),
        )
        for layer in network.layers
    ]


def table(network: Network) -> Table:
    """The rows as a rich table, with totals."""
    rich = require("rich.table", extra="cli", package="rich", feature="printing a table")
    c, h, w = network.dims
    entries = rows(network)
    result: Table = rich.Table(
        title=f"{network.name}: {w} x {h} x {c} → {', '.join(layer.name for layer in network.outputs)}",
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


@describe.register
def _(layer: Convolutional) -> str:
    text = f"{layer.size} x {layer.size} / {layer.stride}"
    return text if layer.groups == 1 else f"{text}, {layer.groups} groups"


@describe.register
def _(layer: Maxpool) -> str:
    return f"{layer.size} x {layer.size} / {layer.stride}"


@describe.register
def _(layer: Route) -> str:
    return "layers " + " ".join(map(str, layer.inputs))


@describe.register
def _(layer: Shortcut) -> str:
    return "layers " + " + ".join(map(str, layer.inputs))


@describe.register
def _(layer: Upsample) -> str:
    return f"x {layer.stride}"


@describe.register
def _(layer: ReorgLayer) -> str:
    fields = layer.plugin.fields()
    return f"{'x' if fields['reverse'] else '/'} {fields['stride']}"


@describe.register
def _(layer: PluginLayer) -> str:
    return f"{layer.plugin.fields()['classes']} classes"


def _dims(dims: Shape) -> str:
    c, h, w = dims
    return f"{w:4d} x{h:4d} x{c:4d}"
