"""Layers that normalize values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pytrtplugins.utils.override import override

from ..cfg import Section
from ._base import Layer, LayerContext, common_fields
from .convolution import STATISTICS

__all__ = ["Batchnorm", "L2norm", "Normalization"]


MAX_CHANNELS = 2048  # of [normalization], whose sums are written as a matrix


@dataclass(frozen=True)
class Batchnorm(Layer):
    """``[batchnorm]``: batch normalization (src/parser.c, load_batchnorm_weights).

    Attributes:
        has_biases: Whether the file has biases: in the fork, not in pjreddie's.
    """

    type = "batchnorm"
    refused: ClassVar[Mapping[str, str]] = {"dontload": "0"}

    has_biases: bool = False

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Batchnorm:
        return cls(**common_fields(section, place, place.map_dims(section)), has_biases=place.dialect == "alexeyab")

    @property
    @override
    def parameters(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        n = self.dims[0]
        names = (*(["biases"] if self.has_biases else []), *STATISTICS)
        return tuple((name, (n,)) for name in names)


@dataclass(frozen=True)
class L2norm(Layer):
    """``[l2norm]``: each place's channels divided by their Euclidean length (src/blas.c, l2normalize_cpu)."""

    type = "l2norm"

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> L2norm:
        return cls(**common_fields(section, place, place.map_dims(section)))


@dataclass(frozen=True)
class Normalization(Layer):
    """``[normalization]`` or ``[lrn]``: values divided by a power of the squares around them.

    The window is darknet's (src/normalization_layer.c): it begins without channel ``size / 2``, never adds that one, and
    still subtracts it where the window leaves it.

    Attributes:
        size: Channels in the window.
        alpha: Factor of the squares.
        kappa: What is added to the squares.
    """

    type = "normalization"
    keys = frozenset(["size", "alpha", "beta", "kappa"])

    size: int
    alpha: float
    beta: float
    kappa: float

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Normalization:
        dims = place.map_dims(section)
        size = section.integer("size", 5, minimum=1)
        if dims[0] > MAX_CHANNELS:
            section.fail(f"it is converted for up to {MAX_CHANNELS:,} channels, found {dims[0]:,}")
        if size // 2 > dims[0]:
            section.fail(
                f"size={size}: half of it is more than the {dims[0]} channels, and darknet reads past them",
                section.line_of("size"),
            )
        return cls(
            **common_fields(section, place, dims),
            size=size,
            alpha=section.number("alpha", 0.0001),
            beta=section.number("beta", 0.75),
            kappa=section.number("kappa", 1.0),
        )

    def window(self) -> npt.NDArray[np.int8]:
        """How often each channel's square counts in each channel's sum: rows are sums; 1, 0 or -1."""
        channels = self.dims[0]
        rows = np.zeros((channels, channels), np.int8)
        rows[0, : self.size // 2] = 1
        for k in range(1, channels):
            rows[k] = rows[k - 1]
            leaves, enters = k - (self.size - 1) // 2 - 1, k + self.size // 2
            if leaves >= 0:
                rows[k, leaves] -= 1
            if enters < channels:
                rows[k, enters] += 1
        return rows
