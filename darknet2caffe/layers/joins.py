"""Layers that read other layers by index."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pytrtplugins.utils.override import override

from ..cfg import Section
from ._base import Layer, LayerContext, Shape, common_fields, dims_text, read_activation

__all__ = ["Route", "Sam", "ScaleChannels", "Shortcut"]


@dataclass(frozen=True)
class Route(Layer):
    """``[route]``: concatenation of the named layers' channels.

    Maps of different sizes are joined value by value, and the result is no longer a map.

    Attributes:
        groups: Into how many parts the channels of each input are cut (AlexeyAB).
        group_id: Which part is taken.
    """

    type = "route"
    keys = frozenset(["layers"])
    alexeyab_keys = frozenset(["groups", "group_id"])
    alexeyab_training_keys = frozenset(["stream", "wait_stream"])

    groups: int = 1
    group_id: int = 0

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Route:
        named = section.integers("layers", minimum=-(2**31))
        if named is None:
            section.fail("layers= is missing: a route names the layers that it reads")
        sources = tuple(place.absolute(section, "layers", index) for index in named)
        shapes = [place.dims(source) for source in sources]
        groups, group_id = 1, 0
        if place.dialect == "alexeyab":
            groups, group_id = section.integer("groups", 1, minimum=1), section.integer("group_id", 0)
        maps = [place.is_map(source) for source in sources]
        sizes = {shape[1:] if is_map else None for shape, is_map in zip(shapes, maps, strict=True)}
        if len(sizes) == 1 and (len(sources) == 1 or all(maps)):
            channels, size = sum(shape[0] for shape in shapes), shapes[0][1:]
        else:
            channels, size = sum(map(math.prod, shapes)), (1, 1)
        joined_flat = len(sources) > 1 and (len(sizes) > 1 or not all(maps))
        if groups > 1 and (joined_flat or any(shape[0] % groups for shape in shapes)):
            section.fail(
                f"groups={groups} must divide the channels of each input, which must be maps of one size"
                f" ({', '.join(f'layer {s}: {dims_text(dims)}' for s, dims in zip(sources, shapes, strict=True))})",
                section.line_of("groups"),
            )
        if group_id >= groups:
            section.fail(f"group_id={group_id} is not below groups={groups}", section.line_of("group_id"))
        return cls(
            **common_fields(section, place, (channels // groups, *size), sources, is_map=len(sizes) == 1 and all(maps)),
            groups=groups,
            group_id=group_id,
        )

    @property
    @override
    def is_identity(self) -> bool:
        return len(self.inputs) == 1 and self.groups == 1

    @property
    def is_flat(self) -> bool:
        """Whether inputs are concatenated element by element instead of channel by channel."""
        return not self.is_map and len(self.inputs) > 1


@dataclass(frozen=True)
class Shortcut(Layer):
    """``[shortcut]``: ``alpha`` times the layer before plus ``beta`` times others, then an activation.

    Where shapes differ, pjreddie's darknet takes every ``stride``-th value of the larger map, or writes to every
    ``sample``-th place of the larger one, and only the channels that both have; the other values stay as they are,
    without ``alpha`` (src/blas.c, shortcut_cpu). The fork adds the channels that both have, of maps of one size.
    """

    type = "shortcut"
    keys = frozenset(["from", "activation"])
    pjreddie_keys = frozenset(["alpha", "beta"])
    alexeyab_refused: ClassVar[Mapping[str, str]] = {"weights_type": "none", "weights_normalization": "none"}

    activation: str
    alpha: float = 1.0
    beta: float = 1.0

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Shortcut:
        named = section.integers("from", minimum=-(2**31))
        if named is None or (len(named) != 1 and place.dialect == "pjreddie"):
            section.fail("from= must name one layer to add", section.line_of("from"))
        sources = tuple(place.absolute(section, "from", index) for index in named)
        dims = place.map_dims(section)
        for source in sources:
            if not place.is_map(source):
                section.fail(f"layer {source} ({place.before[source].type}) is not a map", section.line_of("from"))
            _check_sum(section, place, dims, source, alone=len(sources) == 1)
        factors = (1.0, 1.0)
        if place.dialect == "pjreddie":
            factors = (section.number("alpha", 1.0), section.number("beta", 1.0))
        return cls(
            **common_fields(section, place, dims, (place.index - 1, *sources)),
            activation=read_activation(section, place, "linear", special=("mish", "swish")),
            alpha=factors[0],
            beta=factors[1],
        )

    def steps(self, other: Shape) -> tuple[int, int]:
        """``stride`` in the added map and ``sample`` in the output, for an added map of these dims."""
        return max(1, other[2] // self.dims[2]), max(1, self.dims[2] // other[2])


def _check_sum(section: Section, place: LayerContext, dims: Shape, source: int, *, alone: bool) -> None:
    """Refuse sums on which darknet exits, or reads outside a map."""
    other = place.dims(source)
    where = f"layer {place.index - 1}: {dims_text(dims)}, layer {source}: {dims_text(other)}"
    if place.dialect == "alexeyab":
        # for the fork's shortcut a layer's shape is that of its input, where it is neither route nor shortcut
        reads = other if isinstance(place.before[source], (Route, Shortcut)) else place.before[source].input_dims[0]
        if other[1:] != dims[1:]:
            section.fail(f"maps of different sizes cannot be added ({where})", section.line_of("from"))
        if alone and reads == dims and other[0] < dims[0]:
            section.fail(f"the fork would read past the added map ({where})", section.line_of("from"))
    elif other[2] // dims[2] != other[1] // dims[1] or dims[2] // other[2] != dims[1] // other[1]:
        section.fail(
            f"width and height differ by different factors, on which darknet ends ({where})", section.line_of("from")
        )


@dataclass(frozen=True)
class ScaleChannels(Layer):
    """``[scale_channels]``: a map times one factor per channel, or per place (``scale_wh``); the factors are the layer before."""

    type = "scale_channels"
    keys = frozenset(["from", "activation", "scale_wh"])

    scale_wh: bool
    activation: str

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> ScaleChannels:
        source, dims, factors = _factors(section, place)
        scale_wh = bool(section.integer("scale_wh", 0))
        expected = (1, *dims[1:]) if scale_wh else (dims[0], 1, 1)
        if factors != expected:
            section.fail(
                f"the factors (layer {place.index - 1}) are {dims_text(factors)}, expected {dims_text(expected)}"
            )
        return cls(
            **common_fields(section, place, dims, (place.index - 1, source)),
            scale_wh=scale_wh,
            activation=read_activation(section, place, "linear"),
        )


@dataclass(frozen=True)
class Sam(Layer):
    """``[sam]``: the product of two maps of one shape, the layer before and another one."""

    type = "sam"
    keys = frozenset(["from", "activation"])

    activation: str

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Sam:
        source, dims, factors = _factors(section, place)
        if factors != dims:
            section.fail(
                f"layer {place.index - 1} is {dims_text(factors)}, layer {source} {dims_text(dims)}: not one shape"
            )
        return cls(
            **common_fields(section, place, dims, (place.index - 1, source)),
            activation=read_activation(section, place, "linear"),
        )


def _factors(section: Section, place: LayerContext) -> tuple[int, Shape, Shape]:
    """The layer that ``from`` names, its dims, and those of the layer before."""
    named = section.integers("from", minimum=-(2**31))
    if named is None or len(named) != 1:
        section.fail("from= must name one layer", section.line_of("from"))
    source = place.absolute(section, "from", named[0])
    if not place.is_map(source):
        section.fail(f"layer {source} ({place.before[source].type}) is not a map", section.line_of("from"))
    return source, place.dims(source), place.map_dims(section)
