"""Base class of layers, and functions that their readers share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ..cfg import Section

__all__ = [
    "ACTIVATIONS",
    "ALEXEYAB_ACTIVATIONS",
    "IMAGE",
    "MAX_ELEMENTS",
    "Dialect",
    "Layer",
    "LayerContext",
    "Shape",
    "common_fields",
    "dims_text",
    "read_activation",
    "window_count",
]

Dialect = Literal["pjreddie", "alexeyab"]
"""Whose darknet: pjreddie/darknet, or AlexeyAB's fork of it."""

Shape = tuple[int, int, int]
"""Channels, height and width of one image's map."""

IMAGE = -1
"""The index that stands for the network's input."""

MAX_ELEMENTS = 2**31 - 1
"""Darknet counts elements in a C int."""

ACTIVATIONS = (
    *("linear", "leaky", "relu", "logistic", "loggy", "elu", "selu", "relie", "ramp", "tanh", "plse"),
    *("stair", "hardtan", "lhtan"),
)
"""What src/activations.c of pjreddie/darknet knows (get_activation)."""

ALEXEYAB_ACTIVATIONS = ("mish", "swish", "relu6", "hard_mish", "gelu")
"""What AlexeyAB's fork adds, of what needs nothing but the value itself. Its CPU code gives 0 for relu6 (activate has no
case for it, src/activations.c); the CUDA code is followed there."""

_SPECIAL_ACTIVATIONS = ("mish", "swish", "hard_mish")


@dataclass(frozen=True)
class LayerContext:
    """The context of a layer: layers before it, image dims, dialect.

    Attributes:
        index: The layer's own index, from 0.
        image: Dims of the network's input.
        before: The layers before it.
        dialect: Whose darknet the cfg is read as.
        image_is_map: False where ``[net]`` has only ``inputs=``.
    """

    index: int
    image: Shape
    before: Sequence[Layer]
    dialect: Dialect = "pjreddie"
    image_is_map: bool = True

    def dims(self, index: int) -> Shape:
        """Dims of a layer before this one, or of the image for -1."""
        return self.image if index == IMAGE else self.before[index].dims

    def is_map(self, index: int) -> bool:
        """Whether darknet keeps width, height and channels of that layer's output."""
        return self.image_is_map if index == IMAGE else self.before[index].is_map

    def map_dims(self, section: Section) -> Shape:
        """Dims of the previous layer's output, which must be a map.

        Raises:
            CfgError: darknet keeps no width and height of it, and would end with an error here.
        """
        if not self.is_map(self.index - 1):
            section.fail(
                f"layer {self.index} needs a map of channels, height and width, and darknet keeps none of"
                f" layer {self.index - 1} ({self.before[-1].type if self.before else 'inputs= of [net]'})"
            )
        return self.dims(self.index - 1)

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
    """One layer, with its dims computed.

    Attributes:
        index: Darknet's index: the first layer after ``[net]`` is 0.
        line: Line of its section in the cfg.
        inputs: Absolute indices of the layers that it reads; -1 is the image.
        input_dims: Their dims (C, H, W).
        dims: Its own output's dims (C, H, W).
        is_map: Whether darknet keeps these dims; layers that need a map cannot follow otherwise.
    """

    type: ClassVar[str]
    is_head: ClassVar[bool] = False  # whether its output is an output of the network
    has_output: ClassVar[bool] = True  # whether darknet writes its output at prediction
    keys: ClassVar[frozenset[str]] = frozenset()
    pjreddie_keys: ClassVar[frozenset[str]] = frozenset()  # keys that the fork does not read
    alexeyab_keys: ClassVar[frozenset[str]] = frozenset()  # keys that only the fork reads
    training_keys: ClassVar[frozenset[str]] = frozenset()
    alexeyab_training_keys: ClassVar[frozenset[str]] = frozenset()
    refused: ClassVar[Mapping[str, str]] = {}  # key → the only value at which it changes nothing
    alexeyab_refused: ClassVar[Mapping[str, str]] = {}  # the same, in that dialect only

    index: int
    line: int = field(compare=False)
    inputs: tuple[int, ...]
    input_dims: tuple[Shape, ...]
    dims: Shape
    is_map: bool = field(default=True, kw_only=True)

    @classmethod
    @abstractmethod
    def read(cls, section: Section, place: LayerContext) -> Layer:
        """Parse the layer from its section."""

    @property
    def name(self) -> str:
        """``<index>_<type>``: the name of its output in converted files."""
        return f"{self.index}_{self.type}"

    @property
    def is_identity(self) -> bool:
        """Whether its output is its only input, unchanged."""
        return False

    @property
    def parameters(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of its parameters, in the order of the .weights file."""
        return ()

    @property
    def fan_in(self) -> float:
        """How many products are added to one value of its output; 0 for a layer without weights."""
        weights = dict(self.parameters).get("weights", ())
        return float(math.prod(weights[1:])) if weights else 0.0

    def is_stored_transposed(self, header_transposed: bool) -> bool:
        """Whether the file holds ``weights`` as (values per filter, filters) instead of (filters, values per filter).

        The file's header says so of connected layers.
        """
        return False

    @property
    def bflops(self) -> float:
        """Billions of multiplications and additions, as darknet counts them: convolutions only."""
        return 0.0


def common_fields(
    section: Section, place: LayerContext, dims: Shape, inputs: tuple[int, ...] | None = None, *, is_map: bool = True
) -> dict[str, Any]:
    """Arguments of every layer's constructor; by default a layer reads the previous one."""
    inputs = (place.index - 1,) if inputs is None else inputs
    for index in inputs:
        if index != IMAGE and not place.before[index].has_output:
            section.fail(
                f"layer {place.index} reads layer {index} ({place.before[index].type}), which darknet leaves at zero when"
                " it predicts"
            )
    return {
        "index": place.index,
        "line": section.line,
        "inputs": inputs,
        "input_dims": tuple(place.dims(index) for index in inputs),
        "dims": dims,
        "is_map": is_map,
    }


def window_count(section: Section, into: int, padding: int, size: int, stride: int) -> int:
    """The number of windows by darknet's formula for convolution and pooling; none is an error."""
    out = (into + padding - size) // stride + 1
    if out < 1:
        section.fail(
            f"size={size} is larger than the input: {into} values with {padding} of padding", section.line_of("size")
        )
    return out


def read_activation(section: Section, place: LayerContext, default: str, *, special: tuple[str, ...] = ()) -> str:
    """The section's activation; unknown ones are errors here, and relu in darknet.

    ``special`` are those of mish, swish and hard_mish that the fork computes in this layer; in the others it gives 0.
    """
    activation = section.text("activation", default)
    if place.dialect == "alexeyab" and activation in _SPECIAL_ACTIVATIONS and activation not in special:
        section.fail(
            f"activation={activation}: the fork gives 0 for it in [{section.type}] (activate in src/activations.c)",
            section.line_of("activation"),
        )
    known_activations = ACTIVATIONS + (ALEXEYAB_ACTIVATIONS if place.dialect == "alexeyab" else ())
    if activation not in known_activations:
        hint = " of AlexeyAB's darknet; pjreddie's takes it as relu" if activation in ALEXEYAB_ACTIVATIONS else ""
        section.fail(
            f"activation={activation} is {hint.removeprefix(' ') or 'unknown or not supported'}"
            f" (supported in dialect {place.dialect}: {', '.join(known_activations)})",
            section.line_of("activation"),
        )
    return activation


def dims_text(dims: Shape) -> str:
    """Dims in darknet's order: width x height x channels."""
    c, h, w = dims
    return f"{w} x {h} x {c}"
