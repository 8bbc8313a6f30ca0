"""Layers that read others by number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..cfg import Section
from ._base import Layer, Place, common_fields, dims_text, read_activation

__all__ = ["Route", "Shortcut"]


@dataclass(frozen=True)
class Route(Layer):
    """``[route]``: the named layers' channels, one after another."""

    type = "route"
    keys = frozenset(["layers"])
    refused: ClassVar[Mapping[str, str]] = {"groups": "1", "group_id": "0"}

    @classmethod
    def read(cls, section: Section, place: Place) -> Route:
        """Make the layer from its section."""
        named = section.integers("layers", least=-(2**31))
        if named is None:
            section.fail("layers= is missing: a route names the layers that it reads")
        sources = tuple(place.absolute(section, "layers", index) for index in named)
        shapes = [place.dims(source) for source in sources]
        if len({shape[1:] for shape in shapes}) != 1:
            sizes = ", ".join(f"layer {s}: {dims_text(shape)}" for s, shape in zip(sources, shapes, strict=True))
            section.fail(f"maps of different sizes cannot be joined ({sizes})", section.line_of("layers"))
        channels = sum(shape[0] for shape in shapes)
        return cls(**common_fields(section, place, (channels, *shapes[0][1:]), sources))

    @property
    def is_identity(self) -> bool:
        """Whether its output is its only input, unchanged."""
        return len(self.inputs) == 1


@dataclass(frozen=True)
class Shortcut(Layer):
    """``[shortcut]``: the sum of the layer before and another one, then an activation."""

    type = "shortcut"
    keys = frozenset(["from", "activation"])
    refused: ClassVar[Mapping[str, str]] = {"alpha": "1", "beta": "1", "weights_type": "none"}

    activation: str

    @classmethod
    def read(cls, section: Section, place: Place) -> Shortcut:
        """Make the layer from its section."""
        named = section.integers("from", least=-(2**31))
        if named is None or len(named) != 1:
            section.fail("from= must name one layer to add", section.line_of("from"))
        source = place.absolute(section, "from", named[0])
        dims, other = place.dims(place.index - 1), place.dims(source)
        if dims != other:
            section.fail(
                f"adding maps of different shapes is not supported (layer {place.index - 1}: {dims_text(dims)},"
                f" layer {source}: {dims_text(other)})",
                section.line_of("from"),
            )
        return cls(
            **common_fields(section, place, dims, (place.index - 1, source)),
            activation=read_activation(section, "linear"),
        )
