"""Layers that are only an activation."""

from __future__ import annotations

from dataclasses import dataclass

from pytrtplugins.utils.override import override

from ..cfg import Section
from ._base import Layer, LayerContext, common_fields, read_activation

__all__ = ["Activation", "Logistic"]


@dataclass(frozen=True)
class Activation(Layer):
    """``[activation]``: one function of each value."""

    type = "activation"
    keys = frozenset(["activation"])

    activation: str

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Activation:
        before = place.index - 1
        fields = common_fields(section, place, place.dims(before), is_map=place.is_map(before))
        return cls(**fields, activation=cls.function(section, place))

    @classmethod
    def function(cls, section: Section, place: LayerContext) -> str:
        """The name of the function."""
        return read_activation(section, place, "linear")

    @property
    def is_identity(self) -> bool:
        """Whether the function is linear."""
        return self.activation == "linear"


@dataclass(frozen=True)
class Logistic(Activation):
    """``[logistic]``: the logistic function; its loss belongs to training."""

    type = "logistic"
    keys = frozenset()

    @classmethod
    def function(cls, section: Section, place: LayerContext) -> str:
        """The logistic function."""
        return "logistic"
