"""Convolution, and the transposed one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pytrtplugins.utils.override import override

from ..cfg import Section
from ._base import MAX_ELEMENTS, Layer, LayerContext, common_fields, read_activation, window_count

__all__ = ["Convolutional", "Deconvolutional"]

STATISTICS = ("scales", "rolling_mean", "rolling_variance")


@dataclass(frozen=True)
class Convolutional(Layer):
    """``[convolutional]``: convolution, batch normalization or bias, activation.

    Attributes:
        padding: Zeros on each side.
        groups: Parts of the channels that are convolved alone.
        flipped: Whether the file holds the weights as (values per filter, filters).
    """

    type = "convolutional"
    keys = frozenset(
        ["filters", "size", "stride", "pad", "padding", "groups", "activation", "batch_normalize", "flipped"]
    )
    training_keys = frozenset(["dot"])
    alexeyab_training_keys = frozenset(["grad_centr", "stream", "wait_stream", "bin_output", "angle"])
    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ["binary", "xnor", "dontload", "dontloadscales", "numload"], "0"
    )
    alexeyab_refused: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(["antialiasing", "assisted_excitation", "coordconv", "cbn", "reverse"], "0"),
        **dict.fromkeys(["sway", "rotate", "stretch", "stretch_sway"], "0"),
        **dict.fromkeys(["stride_x", "stride_y", "share_index"], ""),
        "dilation": "1",
    }

    filters: int
    size: int
    stride: int
    padding: int
    groups: int
    activation: str
    batch_normalize: bool
    flipped: bool = False

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Convolutional:
        c, h, w = place.map_dims(section)
        window = _window(section)
        filters, size, stride, padding = window.values()
        groups = section.integer("groups", 1, minimum=1)
        if c % groups or filters % groups:
            section.fail(
                f"groups={groups} must divide the input's {c} channels and the {filters} filters",
                section.line_of("groups"),
            )
        _check_weights(section, filters, c // groups, size)
        if size == 1 and (stride > 1 or padding):
            _check_size_one(section, place, stride, padding)
        flipped = bool(section.integer("flipped", 0))
        if flipped and groups > 1:
            section.fail(
                "flipped=1 with groups: darknet transposes more weights than there are", section.line_of("flipped")
            )
        dims = (
            filters,
            window_count(section, h, 2 * padding, size, stride),
            window_count(section, w, 2 * padding, size, stride),
        )
        return cls(
            **common_fields(section, place, dims),
            **window,
            groups=groups,
            activation=read_activation(section, place, "logistic", special=("mish", "swish", "hard_mish")),
            batch_normalize=bool(section.integer("batch_normalize", 0)),
            flipped=flipped,
        )

    @property
    @override
    def parameters(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        n, channels = self.filters, self.input_dims[0][0] // self.groups
        return (
            ("biases", (n,)),
            *((name, (n,)) for name in STATISTICS if self.batch_normalize),
            ("weights", (n, channels, self.size, self.size)),
        )

    def is_stored_transposed(self, header_transposed: bool) -> bool:
        """Whether the cfg says ``flipped=1``."""
        return self.flipped

    @property
    def bflops(self) -> float:
        """Billions of multiplications and additions, as darknet counts them."""
        _, h, w = self.dims
        return 2.0 * self.filters * self.size**2 * (self.input_dims[0][0] // self.groups) * h * w / 1e9


@dataclass(frozen=True)
class Deconvolutional(Layer):
    """``[deconvolutional]``: transposed convolution, batch normalization or bias, activation.

    Attributes:
        stride: Step of the window in the output.
        padding: What is cut off each side of the output.
    """

    type = "deconvolutional"
    keys = frozenset(["filters", "size", "stride", "pad", "padding", "activation", "batch_normalize"])
    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(["dontload", "dontloadscales", "numload"], "0")

    filters: int
    size: int
    stride: int
    padding: int
    activation: str
    batch_normalize: bool

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Deconvolutional:
        c, h, w = place.map_dims(section)
        window = _window(section)
        filters, size, stride, padding = window.values()
        _check_weights(section, filters, c, size)
        out_h, out_w = ((into - 1) * stride + size - 2 * padding for into in (h, w))
        if min(out_h, out_w) < 1:
            section.fail(f"padding={padding} leaves nothing of the output", section.line_of("padding"))
        return cls(
            **common_fields(section, place, (filters, out_h, out_w)),
            **window,
            activation=read_activation(section, place, "logistic"),
            batch_normalize=bool(section.integer("batch_normalize", 0)),
        )

    @property
    def parameters(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of its parameters, in the order of the .weights file; weights by input channel first."""
        n = self.filters
        return (
            ("biases", (n,)),
            *((name, (n,)) for name in STATISTICS if self.batch_normalize),
            ("weights", (self.input_dims[0][0], n, self.size, self.size)),
        )

    @property
    def fan_in(self) -> float:
        """How many products are added to one value of the output, on average."""
        return self.input_dims[0][0] * max(1.0, self.size / self.stride) ** 2


def _window(section: Section) -> dict[str, Any]:
    """Filters, size, stride and padding, where pad=1 means half the size (src/parser.c, parse_convolutional)."""
    size = section.integer("size", 1, minimum=1)
    padding = section.integer("padding", 0)
    if section.integer("pad", 0):
        padding = size // 2
    filters, stride = (section.integer(key, 1, minimum=1) for key in ("filters", "stride"))
    return {"filters": filters, "size": size, "stride": stride, "padding": padding}


def _check_size_one(section: Section, place: LayerContext, stride: int, padding: int) -> None:
    """Refuse what darknet's CPU code computes from the wrong values: it skips im2col for size 1, the fork for stride 1."""
    if place.dialect == "alexeyab" and stride > 1:
        return
    whose = "the fork's" if place.dialect == "alexeyab" else "pjreddie's"
    section.fail(
        f"size=1 with stride={stride} padding={padding}: {whose} CPU code reads the wrong values (it skips im2col), its"
        " cuDNN code the right ones, so there is no one answer",
        section.line_of("stride" if stride > 1 else "padding"),
        "" if stride == 1 else "convert with --dialect alexeyab, whose darknet convolves plainly",
    )


def _check_weights(section: Section, filters: int, channels: int, size: int) -> None:
    count = filters * channels * size**2
    if count > MAX_ELEMENTS:
        section.fail(
            f"filters={filters:,} of size {size} on {channels:,} channels have {count:,} weights;"
            f" darknet counts to {MAX_ELEMENTS:,}",
            section.line_of("filters"),
        )
