"""Layers without parameters that change a map's size, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..cfg import Section
from ._base import Layer, Place, common_fields, window_count

__all__ = ["Avgpool", "Dropout", "Maxpool", "Upsample"]


@dataclass(frozen=True)
class Maxpool(Layer):
    """``[maxpool]``: what lies outside the map is ignored.

    Attributes:
        pads: Rows or columns added above, left, below and right, as darknet's loop reads them
            (src/maxpool_layer.c: it starts at ``-padding/2`` in C, and reads as far as the last window goes).
    """

    type = "maxpool"
    keys = frozenset(["size", "stride", "padding"])
    refused: ClassVar[Mapping[str, str]] = {"maxpool_depth": "0", "antialiasing": "0", "stride_x": "", "stride_y": ""}

    size: int
    stride: int
    padding: int
    pads: tuple[int, int, int, int]

    @classmethod
    def read(cls, section: Section, place: Place) -> Maxpool:
        """Make the layer from its section."""
        c, h, w = place.dims(place.index - 1)
        stride = section.integer("stride", 1, least=1)
        size = section.integer("size", stride, least=1)
        padding = section.integer("padding", size - 1)
        out_h, out_w = window_count(section, h, padding, size, stride), window_count(section, w, padding, size, stride)
        low = padding // 2
        bottom, right = (max(0, (out - 1) * stride + size - low - into) for out, into in ((out_h, h), (out_w, w)))
        if max(low, bottom, right) >= size:
            section.fail(
                f"padding={padding} is so large for size={size} that a window lies outside the map",
                section.line_of("padding"),
            )
        return cls(
            **common_fields(section, place, (c, out_h, out_w)),
            size=size,
            stride=stride,
            padding=padding,
            pads=(low, low, bottom, right),
        )


@dataclass(frozen=True)
class Avgpool(Layer):
    """``[avgpool]``: the mean of each channel."""

    type = "avgpool"

    @classmethod
    def read(cls, section: Section, place: Place) -> Avgpool:
        """Make the layer from its section."""
        return cls(**common_fields(section, place, (place.dims(place.index - 1)[0], 1, 1)))


@dataclass(frozen=True)
class Upsample(Layer):
    """``[upsample]``: each value ``stride`` x ``stride`` times."""

    type = "upsample"
    keys = frozenset(["stride"])
    refused: ClassVar[Mapping[str, str]] = {"scale": "1"}

    stride: int

    @classmethod
    def read(cls, section: Section, place: Place) -> Upsample:
        """Make the layer from its section."""
        stride = section.integer("stride", 2, least=1)
        c, h, w = place.dims(place.index - 1)
        return cls(**common_fields(section, place, (c, h * stride, w * stride)), stride=stride)


@dataclass(frozen=True)
class Dropout(Layer):
    """``[dropout]``: nothing at inference."""

    type = "dropout"
    training_keys = frozenset(["probability"])
    refused: ClassVar[Mapping[str, str]] = {"dropblock": "0"}

    @classmethod
    def read(cls, section: Section, place: Place) -> Dropout:
        """Make the layer from its section."""
        return cls(**common_fields(section, place, place.dims(place.index - 1)))

    @property
    def is_identity(self) -> bool:
        """Whether its output is its only input, unchanged."""
        return True
