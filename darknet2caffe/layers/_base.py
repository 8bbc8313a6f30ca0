"""What every layer has, and what the readers of layers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..cfg import Section

__all__ = [
    "ACTIVATIONS",
    "IMAGE",
    "MOST_ELEMENTS",
    "Layer",
    "Place",
    "Shape",
    "common_fields",
    "dims_text",
    "read_activation",
    "window_count",
]

Shape = tuple[int, int, int]
"""Channels, height and width of one image's map."""

IMAGE = -1
"""The index that stands for the network's input."""

MOST_ELEMENTS = 2**31 - 1
"""Darknet counts elements in a C int."""

ACTIVATIONS = ("leaky", "linear", "logistic", "relu")


@dataclass(frozen=True)
class Place:
    """Where a layer stands: what is before it.

    Attributes:
        index: The layer's own index, from 0.
        image: Dims of the network's input.
        before: Dims of the layers before it.
    """

    index: int
    image: Shape
    before: Sequence[Shape]

    def dims(self, index: int) -> Shape:
        """Dims of a layer before this one, or of the image for -1."""
        return self.image if index == IMAGE else self.before[index]

    def absolute(self, section: Section, key: str, index: int) -> int:
        """Darknet's layer number as an absolute index: negative numbers count back from this layer.

        Raises:
            CfgError: there is no such layer before this one.
        """
        absolute = index if index >= 0 else self.index + index
        if not 0 <= absolute < self.index:
            valid = f"0 to {self.index - 1}" if self.index else "none, since this is the first layer"
            section.fail(
                f"{key}={index} means layer {absolute}, which is not before layer {self.index} (valid: {valid})",
                section.line_of(key),
            )
        return absolute


@dataclass(frozen=True)
class Layer(ABC):
    """One layer, with its dims worked out.

    Attributes:
        index: Darknet's index: the first layer after ``[net]`` is 0.
        line: Line of its section in the cfg.
        inputs: Absolute indices of the layers that it reads; -1 is the image.
        input_dims: Their dims (C, H, W).
        dims: Its own output's dims (C, H, W).
    """

    type: ClassVar[str]
    keys: ClassVar[frozenset[str]] = frozenset()
    training_keys: ClassVar[frozenset[str]] = frozenset()
    refused: ClassVar[Mapping[str, str]] = {}  # key → the only value at which it changes nothing

    index: int
    line: int = field(compare=False)
    inputs: tuple[int, ...]
    input_dims: tuple[Shape, ...]
    dims: Shape

    @classmethod
    @abstractmethod
    def read(cls, section: Section, place: Place) -> Layer:
        """Make the layer from its section."""

    @property
    def name(self) -> str:
        """``<index>_<type>``: the name of its output in converted files."""
        return f"{self.index}_{self.type}"

    @property
    def is_head(self) -> bool:
        """Whether its output is an output of the network."""
        return False

    @property
    def is_identity(self) -> bool:
        """Whether its output is its only input, unchanged."""
        return False

    @property
    def parameters(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of its parameters, in the order of the .weights file."""
        return ()

    @property
    def bflops(self) -> float:
        """Billions of multiplications and additions, as darknet counts them: convolutions only."""
        return 0.0


def common_fields(section: Section, place: Place, dims: Shape, inputs: tuple[int, ...] | None = None) -> dict[str, Any]:
    """What every layer's constructor takes; by default a layer reads the one before it."""
    inputs = (place.index - 1,) if inputs is None else inputs
    return {
        "index": place.index,
        "line": section.line,
        "inputs": inputs,
        "input_dims": tuple(place.dims(index) for index in inputs),
        "dims": dims,
    }


def window_count(section: Section, into: int, padding: int, size: int, stride: int) -> int:
    """How many windows fit, by darknet's formula for convolution and pooling; none is an error."""
    out = (into + padding - size) // stride + 1
    if out < 1:
        section.fail(
            f"size={size} is larger than the input: {into} values with {padding} of padding", section.line_of("size")
        )
    return out


def read_activation(section: Section, default: str) -> str:
    """The section's activation; darknet takes an unknown one as relu, this is an error here."""
    activation = section.text("activation", default)
    if activation not in ACTIVATIONS:
        section.fail(
            f"activation={activation} is unknown or not supported (supported: {', '.join(ACTIVATIONS)})",
            section.line_of("activation"),
        )
    return activation


def dims_text(dims: Shape) -> str:
    """Dims in darknet's order: width x height x channels."""
    c, h, w = dims
    return f"{w} x {h} x {c}"
