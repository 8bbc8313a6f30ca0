"""Layers with separate weights for each place: connected and local."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pytrtplugins.utils.override import override

from ..cfg import Section
from ._base import MAX_ELEMENTS, Layer, LayerContext, common_fields, read_activation, window_count
from .convolution import STATISTICS

__all__ = ["Connected", "Local"]


@dataclass(frozen=True)
class Connected(Layer):
    """``[connected]``: every value with every value, batch normalization or bias, activation.

    Attributes:
        output: Values of the output; its dims are (output, 1, 1).
    """

    type = "connected"
    keys = frozenset(["output", "activation", "batch_normalize"])
    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(["dontload", "dontloadscales"], "0")

    output: int
    activation: str
    batch_normalize: bool

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Connected:
        output = section.integer("output", 1, minimum=1)
        inputs = math.prod(place.dims(place.index - 1))
        if output * inputs > MAX_ELEMENTS:
            section.fail(
                f"output={output:,} on {inputs:,} inputs has {output * inputs:,} weights;"
                f" darknet counts to {MAX_ELEMENTS:,}",
                section.line_of("output"),
            )
        return cls(
            **common_fields(section, place, (output, 1, 1)),
            output=output,
            activation=read_activation(section, place, "logistic"),
            batch_normalize=bool(section.integer("batch_normalize", 0)),
        )

    @property
    def parameters(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of its parameters, in the order of the .weights file: weights before the statistics."""
        n = self.output
        return (
            ("biases", (n,)),
            ("weights", (n, math.prod(self.input_dims[0]))),
            *((name, (n,)) for name in STATISTICS if self.batch_normalize),
        )

    def is_stored_transposed(self, header_transposed: bool) -> bool:
        """What the header says (src/parser.c, load_connected_weights)."""
        return header_transposed


@dataclass(frozen=True)
class Local(Layer):
    """``[local]``: a convolution with filters of its own for each place.

    Attributes:
        padding: Zeros on each side; in the cfg ``pad`` is both this number and a flag of the output's size.
    """

    type = "local"
    keys = frozenset(["filters", "size", "stride", "pad", "activation"])
    refused: ClassVar[Mapping[str, str]] = {"dontload": "0"}

    filters: int
    size: int
    stride: int
    padding: int
    activation: str

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Local:
        c, h, w = place.map_dims(section)
        filters, size = section.integer("filters", 1, minimum=1), section.integer("size", 1, minimum=1)
        stride, padding = section.integer("stride", 1, minimum=1), section.integer("pad", 0)
        out_h, out_w = ((into - (1 if padding else size)) // stride + 1 for into in (h, w))
        read_h, read_w = (window_count(section, into, 2 * padding, size, stride) for into in (h, w))
        if (out_h, out_w) != (read_h, read_w):
            section.fail(
                f"size={size} stride={stride} pad={padding} on {w} x {h}: darknet makes an output of {out_w} x {out_h} and"
                f" fills it with windows of {read_w} x {read_h} places, so its values are mixed up",
                section.line_of("pad"),
            )
        weights = c * filters * size**2 * out_h * out_w
        if weights > MAX_ELEMENTS:
            section.fail(f"the layer has {weights:,} weights; darknet counts to {MAX_ELEMENTS:,}")
        return cls(
            **common_fields(section, place, (filters, out_h, out_w)),
            filters=filters,
            size=size,
            stride=stride,
            padding=padding,
            activation=read_activation(section, place, "logistic"),
        )

    @property
    def parameters(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of its parameters, in the order of the .weights file: weights by place, filter and value."""
        n, h, w = self.dims
        return (("biases", self.dims), ("weights", (h * w, n, self.input_dims[0][0] * self.size**2)))

    @property
    def fan_in(self) -> float:
        """How many products are added to one value of the output."""
        return float(self.input_dims[0][0] * self.size**2)
