"""The ONNX graph of a caffe network, and the layers that it is made from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from pytrtplugins.errors import ModelError
from pytrtplugins.utils.optional import onnx

from ._onnx_writer import OnnxGraph
from .prototxt import Message
from .weights import FloatArray

__all__ = ["CONVERTERS", "CaffeGraph", "CaffeLayer", "Dims", "Value", "converts"]

MAX_ELEMENTS = 2**31 - 1
"""Caffe counts the values of a blob in a C int (src/caffe/blob.cpp, Reshape)."""

Dims = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """A blob at one point of the network: its tensor and dims."""

    name: str
    dims: Dims


@dataclass
class CaffeLayer:
    """One layer of a prototxt.

    Attributes:
        bottoms: What it reads, once the layers before are converted.
        outputs: Tensor of each top.
        wanted: Which tops anybody reads.
        scale: The Scale layer that is one operator with this BatchNorm.
        weighted: Whether its weights were asked for.
    """

    name: str
    type: str
    message: Message
    bottom_names: list[str]
    tops: list[str]
    blobs: Sequence[FloatArray] = ()
    bottoms: list[Value] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    wanted: list[bool] = field(default_factory=list)
    scale: CaffeLayer | None = None
    weighted: bool = False

    def fail(self, problem: str, action: str = "", line: int | None = None) -> NoReturn:
        """Raise a `ModelError` for this layer; ``.path``, ``.line`` and ``.layer`` say where."""
        problem = f"layer {self.name!r} ({self.type}): {problem}"
        self.message.fail(problem, line=line, action=action, layer=self.name)

    def parameters(self, name: str) -> Message:
        """The layer's own parameters."""
        return self.message.message(name)

    def axis(self, number: int, rank: int) -> int:
        """An axis counted from the start; negative ones count from the end."""
        if not -rank <= number < rank:
            self.fail(f"axis {number} of {rank} axes")
        return number % rank

    def arrays(self, *shapes: Dims) -> Sequence[FloatArray]:
        """Its blobs, whose number and shapes are checked; older files have leading dims of 1."""
        self.weighted = True
        if len(self.blobs) != len(shapes):
            have = f"{len(self.blobs)} blobs" if self.blobs else "no blobs"
            self.fail(
                f"it needs {len(shapes)} blobs, {' and '.join(map(str, shapes))}; the .caffemodel has {have} for it"
            )
        for number, (blob, shape) in enumerate(zip(self.blobs, shapes, strict=True)):
            if _stripped(blob.shape) != _stripped(shape):
                self.fail(f"blob {number} of the .caffemodel has the shape {blob.shape}, expected {shape}")
        return [blob.reshape(shape) for blob, shape in zip(self.blobs, shapes, strict=True)]

    def result(self, dims: Sequence[int], top: int = 0) -> Value:
        """The value of a top, with its dims checked."""
        if min(dims, default=1) < 1 or math.prod(dims) > MAX_ELEMENTS:
            self.fail(
                f"its output would be {' x '.join(f'{dim:,}' for dim in dims)}; each must be at least 1, and all"
                f" together at most {MAX_ELEMENTS:,}"
            )
        return Value(self.outputs[top], tuple(dims))


Converter = Callable[[CaffeLayer, "CaffeGraph"], list[Value]]


@dataclass(frozen=True)
class Registered:
    """Converter of a layer type, and its number of bottoms and tops; None: one or more."""

    convert: Converter
    bottoms: int | None
    tops: int | None


CONVERTERS: dict[str, Registered] = {}
"""Layer type → how it is converted."""


def converts(*types: str, bottoms: int | None = 1, tops: int | None = 1) -> Callable[[Converter], Converter]:
    """Register the function that converts layers of these types."""

    def register(convert: Converter) -> Converter:
        for layer_type in types:
            CONVERTERS[layer_type] = Registered(convert, bottoms, tops)
        return convert

    return register


class CaffeGraph(OnnxGraph):
    """Nodes and constants of the model; new tensors avoid the names in ``taken``, those of the blobs."""

    def __init__(self, name: str, taken: set[str]) -> None:
        super().__init__(name)
        self.taken = set(taken)
        self.bytes = 0

    def unique(self, name: str) -> str:
        """A name that is not used yet: the given one, or with a number."""
        candidate, number = name, 1
        while candidate in self.taken:
            number += 1
            candidate = f"{name}.{number}"
        self.taken.add(candidate)
        return candidate

    def constant(self, name: str, values: npt.ArrayLike) -> str:
        """Add a constant; returns its name."""
        array = np.ascontiguousarray(values)
        self.bytes += array.nbytes
        if self.bytes > MAX_ELEMENTS - 2**20:
            raise ModelError(
                f"{self.graph.name}: the weights have 2 GiB and more, which no ONNX model in memory can hold."
            )
        name = self.unique(name)
        self.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        return name


def _stripped(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without leading ones."""
    first = next((axis for axis, dim in enumerate(shape) if dim != 1), len(shape))
    return tuple(shape[first:])
