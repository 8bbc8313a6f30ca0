"""Layers without parameters that change a map's size, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pytrtplugins.utils.override import override

from ..cfg import Section
from ._base import Layer, LayerContext, common_fields, dims_text, window_count

__all__ = ["Avgpool", "Crop", "Dropout", "Maxpool", "Upsample"]

MAX_STRIDE = 1 << 16


@dataclass(frozen=True)
class Maxpool(Layer):
    """``[maxpool]``: what lies outside the map is ignored.

    Attributes:
        padding: Rows and columns in all, as the cfg has it.
        pads: Rows or columns added above, left, below and right, as darknet's loop reads them
            (src/maxpool_layer.c: it starts at ``-padding/2`` in C, and reads as far as the last window goes).
    """

    type = "maxpool"
    keys = frozenset(["size", "stride", "padding"])
    alexeyab_refused: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(["maxpool_depth", "antialiasing", "maxpool_zero_nonmax"], "0"),
        **dict.fromkeys(["stride_x", "stride_y"], ""),
        "out_channels": "1",
    }

    size: int
    stride: int
    padding: int
    pads: tuple[int, int, int, int]

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Maxpool:
        c, h, w = place.map_dims(section)
        stride = section.integer("stride", 1, minimum=1)
        size = section.integer("size", stride, minimum=1)
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
    @override
    def read(cls, section: Section, place: LayerContext) -> Avgpool:
        return cls(**common_fields(section, place, (place.map_dims(section)[0], 1, 1)))


@dataclass(frozen=True)
class Upsample(Layer):
    """``[upsample]``: each value ``stride`` x ``stride`` times; with a negative stride in the cfg, sums of such blocks; times ``scale``."""

    type = "upsample"
    keys = frozenset(["stride", "scale"])

    stride: int
    reverse: bool = False
    scale: float = 1.0

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Upsample:
        c, h, w = place.map_dims(section)
        stride = section.integer("stride", 2, minimum=-MAX_STRIDE, maximum=MAX_STRIDE)
        if stride == 0:
            section.fail("stride=0 leaves nothing of the map", section.line_of("stride"))
        if stride < 0 and (h % stride or w % stride):
            section.fail(
                f"stride={stride} sums blocks of {-stride} x {-stride}, which do not tile the map of {w} x {h}; darknet"
                " would read rows of another width",
                section.line_of("stride"),
            )
        dims = (c, h * stride, w * stride) if stride > 0 else (c, h // -stride, w // -stride)
        scale = section.number("scale", 1.0)
        return cls(**common_fields(section, place, dims), stride=abs(stride), reverse=stride < 0, scale=scale)


@dataclass(frozen=True)
class Crop(Layer):
    """``[crop]``: the middle of the map, and values from -1 to 1 instead of 0 to 1 (src/crop_layer.c).

    Attributes:
        top: Rows left out above.
        left: Columns left out at the left.
        noadjust: Leave the values as they are.
    """

    type = "crop"
    keys = frozenset(["crop_height", "crop_width", "noadjust"])
    training_keys = frozenset(["flip", "angle", "saturation", "exposure", "shift"])

    top: int
    left: int
    noadjust: bool

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Crop:
        c, h, w = dims = place.map_dims(section)
        height, width = section.integer("crop_height", 1, minimum=1), section.integer("crop_width", 1, minimum=1)
        if height > h or width > w:
            section.fail(
                f"a crop of {width} x {height} does not fit into {dims_text(dims)}", section.line_of("crop_height")
            )
        return cls(
            **common_fields(section, place, (c, height, width)),
            top=(h - height) // 2,
            left=(w - width) // 2,
            noadjust=bool(section.integer("noadjust", 0)),
        )


@dataclass(frozen=True)
class Dropout(Layer):
    """``[dropout]``: nothing at inference."""

    type = "dropout"
    is_identity = True
    training_keys = frozenset(["probability"])
    alexeyab_training_keys = frozenset(["dropblock", "dropblock_size_rel", "dropblock_size_abs"])

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Dropout:
        if place.index == 0:
            section.fail("a dropout cannot be the first layer: darknet shares its output with the layer before")
        before = place.index - 1
        return cls(**common_fields(section, place, place.dims(before), is_map=place.is_map(before)))
