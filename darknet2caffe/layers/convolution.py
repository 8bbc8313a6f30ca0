"""Convolution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..cfg import Section
from ._base import MOST_ELEMENTS, Layer, Place, common_fields, read_activation, window_count

__all__ = ["Convolutional"]


@dataclass(frozen=True)
class Convolutional(Layer):
    """``[convolutional]``: convolution, batch normalization or bias, activation."""

    type = "convolutional"
    keys = frozenset(["filters", "size", "stride", "pad", "padding", "groups", "activation", "batch_normalize"])
    training_keys = frozenset(["dot"])
    refused: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(["flipped", "binary", "xnor", "dontload", "dontloadscales", "numload"], "0"),
        **dict.fromkeys(["antialiasing", "assisted_excitation", "coordconv", "deform", "share_index"], "0"),
        **dict.fromkeys(["stride_x", "stride_y"], ""),
        "dilation": "1",
    }

    filters: int
    size: int
    stride: int
    padding: int
    groups: int
    activation: str
    batch_normalize: bool

    @classmethod
    def read(cls, section: Section, place: Place) -> Convolutional:
        """Make the layer from its section."""
        c, h, w = place.dims(place.index - 1)
        filters = section.integer("filters", 1, least=1)
        size = section.integer("size", 1, least=1)
        stride = section.integer("stride", 1, least=1)
        padding = section.integer("padding", 0)
        if section.integer("pad", 0):
            padding = size // 2
        groups = section.integer("groups", 1, least=1)
        if c % groups or filters % groups:
            section.fail(
                f"groups={groups} must divide the input's {c} channels and the {filters} filters",
                section.line_of("groups"),
            )
        if filters * (c // groups) * size**2 > MOST_ELEMENTS:
            section.fail(
                f"filters={filters:,} of size {size} on {c:,} channels have {filters * (c // groups) * size**2:,} weights;"
                f" darknet counts to {MOST_ELEMENTS:,}",
                section.line_of("filters"),
            )
        dims = (
            filters,
            window_count(section, h, 2 * padding, size, stride),
            window_count(section, w, 2 * padding, size, stride),
        )
        return cls(
            **common_fields(section, place, dims),
            filters=filters,
            size=size,
            stride=stride,
            padding=padding,
            groups=groups,
            activation=read_activation(section, "logistic"),
            batch_normalize=bool(section.integer("batch_normalize", 0)),
        )

    @property
    def parameters(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of its parameters, in the order of the .weights file."""
        n, channels = self.filters, self.input_dims[0][0] // self.groups
        statistics = (("scales", (n,)), ("rolling_mean", (n,)), ("rolling_variance", (n,)))
        return (
            ("biases", (n,)),
            *(statistics if self.batch_normalize else ()),
            ("weights", (n, channels, self.size, self.size)),
        )

    @property
    def bflops(self) -> float:
        """Billions of multiplications and additions, as darknet counts them."""
        _, h, w = self.dims
        return 2.0 * self.filters * self.size**2 * (self.input_dims[0][0] // self.groups) * h * w / 1e9
