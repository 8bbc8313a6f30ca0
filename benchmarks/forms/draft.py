"""One node in the making: a builder of its family draws its attributes and operands, within what its schema allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper
from onnx.defs import OpSchema

from .contrib import ContribSchema, qualified_name

__all__ = ["Draft", "Operand", "Unfit", "element_type", "is_float", "is_whole"]

_TENSOR, _END = "tensor(", ")"
_ELEMENTS = {
    "float": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
    **{
        name.lower(): value
        for name, value in TensorProto.DataType.items()
        if name not in ("UNDEFINED", "FLOAT", "DOUBLE", "STRING", "COMPLEX64", "COMPLEX128")
    },
}
_SPECIAL = (0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 1.0, -1.0, math.inf, -math.inf, math.nan)
_EDGES = (2**24 + 1, 2**31 - 1, 2**31, 2**31 + 1, 2**53 + 1)
_Array = npt.NDArray[Any]


class Unfit(Exception):
    """What was drawn contradicts itself, or is not defined by ONNX: another draw is needed."""


def element_type(text: str) -> int | None:
    """The number of an element type that a schema writes as ``tensor(float)``; None for text, complex numbers, sequences and optionals."""
    if not (text.startswith(_TENSOR) and text.endswith(_END)):
        return None
    return _ELEMENTS.get(text[len(_TENSOR) : -len(_END)])


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether an element type has fractions."""
    return dtype.kind == "f" or dtype.name in ("bfloat16",) or dtype.name.startswith("float")


def is_whole(dtype: np.dtype[Any]) -> bool:
    """Whether an element type is of whole numbers."""
    return dtype.kind in "iu" or dtype.name in ("int4", "uint4", "int2", "uint2")


@dataclass(frozen=True)
class Operand:
    """One input of the node.

    Attributes:
        values: Its values; None for an optional input that is left out.
        constant: Whether it is an initializer; None where it may be one.
        elements: ONNX's number of its element type.
    """

    values: _Array | None
    constant: bool | None = None
    elements: int = 0


@dataclass
class Draft:
    """One node: what its builder has drawn so far.

    Attributes:
        schema: The schema of the operator in its version.
        opset: The opset of the model, in which this version is valid.
        rng: Draws everything.
        attributes: The node's attributes.
        operands: Its inputs, in order.
        outputs: Names of its outputs, empty for one that is left out.
        exact: Whether results are values of the operands, which no rounding may change.
        loose: Factor on the tolerance of results.
        shape: Dims of the first output of an operator of onnxruntime, whose shapes ONNX does not infer; None where they are not said.
    """

    schema: OpSchema | ContribSchema
    opset: int
    rng: np.random.Generator
    attributes: dict[str, Any] = field(default_factory=dict)
    operands: list[Operand] = field(default_factory=list)
    outputs: list[str] = field(default_factory=lambda: ["y0"])
    exact: bool = False
    loose: float = 1.0
    shape: Sequence[int] | None = None
    types: dict[str, np.dtype[Any]] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The operator's version."""
        return int(self.schema.since_version)

    @property
    def name(self) -> str:
        """The operator, with its domain unless that is ai.onnx."""
        return qualified_name(self.schema)

    def one(self, *choices: Any) -> Any:
        """One of some values."""
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float = 0.5) -> bool:
        """True in this share of draws."""
        return bool(self.rng.random() < share)

    def size(self) -> int:
        """A size: odd and even ones, seldom 1 or 0."""
        return int(self.one(2, 3, 4, 5, 7, 2, 3, 4, 1, 0) if self.chance(0.3) else self.one(2, 3, 4, 5))

    def dims(self, least: int = 0, most: int = 5, *, filled: bool = False) -> tuple[int, ...]:
        """Dims of so many axes; ``filled`` ones have no size of 0."""
        rank = int(self.rng.integers(least, most + 1))
        found = tuple(self.size() for _ in range(rank))
        return tuple(max(1, size) for size in found) if filled else found

    def axis(self, rank: int) -> int:
        """An axis, also counted from the end."""
        if not rank:
            raise Unfit("a scalar has no axis")
        return int(self.rng.integers(-rank, rank)) if self.has_negative_axes() else int(self.rng.integers(rank))

    def has_negative_axes(self) -> bool:
        """Whether this opset counts axes from the end too."""
        return self.opset >= 11

    # element types

    def type_of(self, variable: str = "T", among: Sequence[str] = ()) -> np.dtype[Any]:
        """The element type of a type variable, or of an input's fixed type; the same each time.

        ``among`` has NumPy's names of the types that may be drawn.
        """
        if variable not in self.types:
            allowed = [helper.tensor_dtype_to_np_dtype(number) for number in self.allowed(variable)]
            chosen = [dtype for dtype in allowed if not among or dtype.name in among]
            if not chosen:
                raise Unfit(f"{self.name} has no such type of {variable}")
            plain = [dtype for dtype in chosen if dtype == np.float32]
            self.types[variable] = plain[0] if plain and self.chance(0.35) else self.one(*chosen)
        return self.types[variable]

    def allowed(self, variable: str) -> list[int]:
        """ONNX's numbers of the element types that a type variable may be; texts and complex numbers are left out."""
        texts = next(
            (item.allowed_type_strs for item in self.schema.type_constraints if item.type_param_str == variable),
            [variable],
        )
        return sorted({number for number in map(element_type, texts) if number is not None})

    def type_of_input(self, index: int) -> np.dtype[Any]:
        """The element type of an input, by its position in the schema."""
        return self.type_of(self.schema.inputs[min(index, len(self.schema.inputs) - 1)].type_str)

    # attributes

    def attribute(self, name: str, *values: Any, default: Any = None, always: bool = False) -> Any:
        """Draw an attribute, or leave it out (``default``) where that is allowed and this version has it."""
        declared = self.schema.attributes.get(name)
        if declared is None or (not declared.required and not always and self.chance(0.35)):
            return default
        self.attributes[name] = self.one(*values)
        return self.attributes[name]

    def set(self, name: str, value: Any) -> None:
        """An attribute's value, which this version must have."""
        if name not in self.schema.attributes:
            raise Unfit(f"{self.name}-{self.version} has no {name}")
        self.attributes[name] = value

    def has(self, name: str) -> bool:
        """Whether this version has an attribute."""
        return name in self.schema.attributes

    # operands

    def has_input(self, name: str) -> bool:
        """Whether this version has an input."""
        return any(item.name == name for item in self.schema.inputs)

    def read(self, values: npt.ArrayLike, dtype: np.dtype[Any] | None = None, constant: bool | None = None) -> _Array:
        """Add an input; a constant one is an initializer, one that is None may be one."""
        array = np.asarray(values) if dtype is None else np.asarray(values).astype(dtype)
        self.operands.append(Operand(array, constant, helper.np_dtype_to_tensor_dtype(array.dtype)))
        return array

    def tensor(
        self, dims: Sequence[int], variable: str = "T", kind: str = "plain", constant: bool | None = None
    ) -> _Array:
        """Add an input of drawn values."""
        return self.read(self.values(dims, self.type_of(variable), kind), constant=constant)

    def skip(self) -> None:
        """Leave an optional input out."""
        self.operands.append(Operand(None))

    def optional(self, name: str, share: float = 0.5) -> bool:
        """Whether an optional input is given, which the caller then adds; else it is left out here."""
        if self.has_input(name) and self.chance(share):
            return True
        if self.has_input(name):
            self.skip()
        return False

    def results(self, *names: str) -> None:
        """Draw which of the optional outputs behind the first are asked for."""
        asked = [name if self.chance() else "" for name in names]
        self.outputs = ["y0", *asked]
        while self.outputs[-1] == "":
            self.outputs.pop()

    # values

    def values(self, dims: Sequence[int], dtype: np.dtype[Any], kind: str = "plain") -> _Array:
        """Random values.

        Args:
            dims: Their dims.
            dtype: Their type.
            kind: ``plain`` for moderate numbers; ``wild`` with infinities, NaN, ties and large whole numbers among them; ``edges``
                with large whole numbers; ``positive``; ``unit`` for -1 to 1; ``ties`` for few different numbers.
        """
        shape = tuple(int(dim) for dim in dims)
        if dtype == np.bool_:
            return self.rng.random(shape) < 0.5
        if is_float(dtype):
            return self._floats(shape, kind).astype(dtype)
        return self._wholes(shape, dtype, kind)

    def _floats(self, shape: tuple[int, ...], kind: str) -> _Array:
        if kind == "unit":
            return self.rng.uniform(-0.95, 0.95, shape)
        if kind == "positive":
            return self.rng.uniform(0.1, 3.0, shape)
        if kind == "ties":
            return self.rng.integers(-2, 3, shape).astype(np.float64)
        values = self.rng.uniform(-2.5, 2.5, shape)
        if kind == "wild":
            values = np.where(self.rng.random(shape) < 0.4, self.rng.choice(_SPECIAL, shape), values)
        return values

    def _wholes(self, shape: tuple[int, ...], dtype: np.dtype[Any], kind: str) -> _Array:
        small = dtype.name in ("int4", "uint4", "int2", "uint2")
        bits = int(dtype.name.lstrip("uint")) if small else 8 * dtype.itemsize
        signed = not dtype.name.startswith("u")
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        least, most = (max(low, -6), min(high, 6)) if signed else (0, min(high, 9))
        if kind in ("positive", "unit"):
            least = 1
        values = self.rng.integers(least, most + 1, shape)
        if kind == "ties":
            values = self.rng.integers(max(least, 0), min(most, 2) + 1, shape)
        if kind in ("wild", "edges"):
            edges = [each for edge in _EDGES for each in (edge, -edge) if low <= each <= high] + [low, high]
            chosen = self.rng.choice(np.array(edges, object), shape)
            values = np.where(self.rng.random(shape) < 0.3, chosen, values.astype(object))
        return np.asarray(values).astype(dtype)
