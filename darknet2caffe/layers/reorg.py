"""``[reorg]`` in its three forms, and the fork's ``[reorg3d]``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytrtplugins.layers import Reorg
from pytrtplugins.plugin.base import Plugin
from pytrtplugins.utils.override import override

from ..cfg import Section
from ._base import Layer, LayerContext, common_fields
from .plugins import PluginLayer

__all__ = ["Extra", "Flatten", "Reorg3d", "ReorgLayer"]


@dataclass(frozen=True)
class ReorgLayer(PluginLayer):
    """``[reorg]``: blocks of pixels become channels."""

    type = "reorg"
    keys = frozenset(["stride", "reverse"])
    pjreddie_keys = frozenset(["flatten", "extra"])

    @classmethod
    @override
    def make_plugin(cls, section: Section, place: LayerContext) -> Plugin:
        return Reorg(stride=section.integer("stride", 1, minimum=1), reverse=bool(section.integer("reverse", 0)))

    @classmethod
    def read(cls, section: Section, place: LayerContext) -> Layer:  # type: ignore[override]
        """Parse the layer: this class, `Flatten` or `Extra`; the fork has neither of those two."""
        if place.dialect == "pjreddie":
            flatten, extra = bool(section.integer("flatten", 0)), section.integer("extra", 0)
            if flatten and extra:
                section.fail(
                    "flatten=1 with extra: darknet copies more values than there are", section.line_of("extra")
                )
            if flatten:
                return Flatten.read(section, place)
            if extra:
                return Extra.read(section, place)
        return super().read(section, place)


@dataclass(frozen=True)
class Flatten(Layer):
    """``[reorg]`` with ``flatten=1``: channels last, in the shape that the stride gives (src/blas.c, flatten).

    Attributes:
        reverse: From channels last to channels first.
    """

    type = "reorg"

    reverse: bool

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Flatten:
        c, h, w = place.map_dims(section)
        stride, reverse = section.integer("stride", 1, minimum=1), bool(section.integer("reverse", 0))
        block = stride**2
        dims = (c // block, h * stride, w * stride) if reverse else (c * block, h // stride, w // stride)
        if math.prod(dims) != c * h * w:
            section.fail(
                f"flatten=1 with stride={stride}: the output's shape has {math.prod(dims):,} values, the input {c * h * w:,}",
                section.line_of("stride"),
            )
        return cls(**common_fields(section, place, dims), reverse=reverse)


@dataclass(frozen=True)
class Extra(Layer):
    """``[reorg]`` with ``extra=n``: the values in order, then n zeros (src/reorg_layer.c)."""

    type = "reorg"

    extra: int

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Extra:
        section.integer("stride", 1, minimum=1)  # not used, and darknet divides by it
        extra = section.integer("extra", 0, minimum=1)
        count = math.prod(place.map_dims(section)) + extra
        return cls(**common_fields(section, place, (count, 1, 1), is_map=False), extra=extra)


@dataclass(frozen=True)
class Reorg3d(Layer):
    """``[reorg3d]`` of AlexeyAB's fork: blocks of pixels become channels, as ONNX SpaceToDepth (src/blas.c, reorg_cpu)."""

    type = "reorg3d"
    keys = frozenset(["stride", "reverse"])

    stride: int

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Reorg3d:
        c, h, w = place.map_dims(section)
        stride = section.integer("stride", 1, minimum=1)
        if section.integer("reverse", 0):
            section.fail(
                "reverse=1 is not supported: the fork reads the input in the output's shape", section.line_of("reverse")
            )
        if h % stride or w % stride:
            section.fail(f"stride={stride} must divide the map of {w} x {h}", section.line_of("stride"))
        return cls(**common_fields(section, place, (c * stride**2, h // stride, w // stride)), stride=stride)
