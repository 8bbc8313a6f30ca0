"""A node with facts about its tensors, for the rows of `known_errors`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ...model.proto import info_dims, numpy_type
from ...plugin.onnx_node import node_attributes
from ...tensor import Dims
from ...utils.optional import onnx
from .bounds import Bounds

__all__ = ["EMPTY", "HUGE", "INFINITE", "LONG", "NAN", "NEGATIVE", "ZERO", "Facts", "Usage"]

EMPTY, LONG, NAN, INFINITE = "no elements", "numbers beyond 32 bits", "NaN", "infinities"
HUGE = "numbers near the largest of float32"
ZERO, NEGATIVE = "a zero among few whole numbers", "a negative number among few whole numbers"


@dataclass(frozen=True)
class Facts:
    """Facts about a model's tensors.

    Attributes:
        types: Type of each tensor.
        constants: Tensors whose values are known when the model is built.
        peculiar: Special properties of values of initializers and Constants: ``EMPTY``, ``LONG`` and so on.
        ranges: Lowest and highest value of integer initializers and Constants.
        sizes: Tensors computed from dims and constants alone.
        exact_sizes: Sizes that are computed without any quantization.
        readers: Types of the nodes that read each tensor; ``""`` is among them where the model gives it.
        opset: The model's opset.
        lookups: Output of each Gather of the main graph whose indices are an input of the model → that input, and the size of the axis.
        bounds: What is known of the values of tensors of whole numbers.
    """

    types: Mapping[str, onnx.TypeProto]
    constants: Collection[str]
    peculiar: Mapping[str, str]
    ranges: Mapping[str, tuple[int, int]]
    sizes: Collection[str]
    exact_sizes: Collection[str]
    readers: Mapping[str, Collection[str]]
    opset: int
    lookups: Mapping[str, tuple[str, int]]
    bounds: Bounds


class Usage:
    """One node, and facts about its tensors."""

    def __init__(self, node: onnx.NodeProto, facts: Facts) -> None:
        self.node, self.facts = node, facts
        self._attributes: dict[str, Any] | None = None

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value."""
        if self._attributes is None:
            self._attributes = node_attributes(self.node)
        return self._attributes.get(name, default)

    def attributes(self) -> Mapping[str, Any]:
        """All attributes that are set."""
        self.attribute("")
        return self._attributes or {}

    def has(self, index: int) -> bool:
        """Whether an input is present."""
        return len(self.node.input) > index and bool(self.node.input[index])

    def is_constant(self, index: int) -> bool:
        """Whether an input is known when the model is built."""
        return self.has(index) and self.node.input[index] in self.facts.constants

    def is_size(self) -> bool:
        """Whether the node computes from dims and constants alone."""
        return all(name in self.facts.sizes for name in self.node.input if name)

    def is_exact_size(self) -> bool:
        """Whether it does, and nothing is quantized on the way to it."""
        return all(name in self.facts.exact_sizes for name in self.node.input if name)

    def dtype(self, index: int = 0) -> str:
        """NumPy's name of an input's element type; empty where it is not known."""
        tensor = self.facts.types.get(self.node.input[index]) if self.has(index) else None
        kind = tensor.tensor_type.elem_type if tensor is not None else 0
        return numpy_type(kind).name if kind else ""

    def dtypes(self) -> set[str]:
        """NumPy's names of the element types of all inputs and outputs that are known."""
        names = (*self.node.input, *self.node.output)
        types = [self.facts.types[name].tensor_type.elem_type for name in names if name in self.facts.types]
        return {numpy_type(kind).name for kind in types if kind}

    def reads(self, *peculiarities: str) -> bool:
        """Whether an initializer that it reads, or the Constant or ConstantOfShape that it is, has such values."""
        is_constant = self.node.op_type in ("Constant", "ConstantOfShape")
        names = (*self.node.input, *(self.node.output if is_constant else ()))
        return any(self.facts.peculiar.get(name) in peculiarities for name in names)

    def dims(self, index: int = 0) -> Dims | None:
        """Dims of an input; None where they are not known."""
        kind = self.facts.types.get(self.node.input[index]) if self.has(index) else None
        if kind is None or not kind.tensor_type.HasField("shape"):
            return None
        holder: Any = type("Info", (), {"name": self.node.input[index], "type": kind})
        return info_dims(holder)

    def is_lookup(self) -> bool:
        """Whether it is a Gather whose indices are an input of the model, so that they can be checked before a run."""
        return self.node.output[0] in self.facts.lookups

    def reads_output(self, index: int) -> bool:
        """Whether something reads an output."""
        return len(self.node.output) > index and self.node.output[index] in self.facts.readers
