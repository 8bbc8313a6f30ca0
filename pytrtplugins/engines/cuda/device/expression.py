"""Expressions: the operations that a generated kernel computes for each element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....errors import BuildError
from ....tensor import DType
from ..elementwise import ELEMENTWISE

__all__ = ["COMPUTED", "OPERATIONS", "REDUCTIONS", "Expression", "Number", "Operand", "Operation", "computed_in"]

OPERATIONS = {
    **{name: row.text for name, row in ELEMENTWISE.items()},
    "Cast": "{0}",
    "IsInf": "is_infinite({0}, {1}, {2})",
    "Modulo": "modulo({0}, {1})",
    "Rest": "rest({0}, {1})",
    "ShiftLeft": "shift_left({0}, {1})",
    "ShiftRight": "shift_right({0}, {1})",
    "Steps": "in_steps({0}, {1})",
}
"""Operation → its C expression, of functions of pointwise.cu and codes.cu. Names are ONNX's where one operator is one operation."""

REDUCTIONS = {
    "ReduceMax": ("Larger", "-__int_as_float(0x7F800000)"),
    "ReduceMin": ("Smaller", "__int_as_float(0x7F800000)"),
    "ReduceProd": ("Multiplied", "1.0f"),
    "ReduceSum": ("Added", "0.0f"),
}
"""Operation on all elements of a row → how two values become one, a type of rows.cu, and what it begins with. In float32."""

COMPUTED = {DType.FLOAT16: DType.FLOAT32, DType.BFLOAT16: DType.FLOAT32}
"""Element type → the type that it is computed in, where that is another."""


def computed_in(dtype: DType) -> DType:
    """The arithmetic type in which a kernel computes values of an element type."""
    return COMPUTED.get(dtype, dtype)


@dataclass(frozen=True)
class Number:
    """A constant operand.

    Attributes:
        dtype: The type it is computed in.
        text: As Python writes it: ``"0.5"``, ``"-7"``, ``"nan"``, ``"True"``.
    """

    dtype: DType
    text: str

    @classmethod
    def of(cls, value: object, dtype: DType) -> Number:
        """A number, rounded to its type."""
        kind = computed_in(dtype)
        return cls(kind, repr(np.asarray(value).astype(kind.numpy).item()))


Operand = int | Number
"""A number, or which value: inputs come first, then the results of operations."""


@dataclass(frozen=True)
class Operation:
    """One operation of an expression.

    Attributes:
        op: Of `OPERATIONS` or `REDUCTIONS`.
        dtype: Its result's type; ``Cast`` to float16 or bfloat16 rounds to it.
        operands: What it reads.
    """

    op: str
    dtype: DType
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Expression:
    """Operations on the elements of some inputs.

    Attributes:
        inputs: How many there are.
        operations: In order; each reads inputs and results of earlier ones.
        results: Which values are written, in the order of the outputs.
    """

    inputs: int
    operations: tuple[Operation, ...]
    results: tuple[int, ...]

    def lines(self) -> list[str]:
        """A text for each operation, as a node's attribute holds it: ``"HardSigmoid float32 0 float32:0.2 float32:0.5"``."""
        return [
            " ".join([each.op, each.dtype.value, *(_operand_text(operand) for operand in each.operands)])
            for each in self.operations
        ]

    @classmethod
    def parse(cls, inputs: int, lines: Sequence[str], results: Sequence[int]) -> Expression:
        """The expression of a node.

        Args:
            inputs: How many the node has.
            lines: Of `lines`.
            results: Which values the node's outputs are.

        Raises:
            BuildError: they are none.
        """
        try:
            operations = tuple(_parsed(line, inputs + index) for index, line in enumerate(lines))
            if not all(0 <= value < inputs + len(operations) for value in results):
                raise ValueError(f"results {list(results)}")
        except (ValueError, KeyError) as error:
            raise BuildError(f"engine 'cuda': a node Pointwise is damaged ({error!r:.200})", engine="cuda") from error
        return cls(inputs, operations, tuple(results))


def _operand_text(operand: Operand) -> str:
    return f"{operand.dtype.value}:{operand.text}" if isinstance(operand, Number) else str(operand)


def _parsed(line: str, known: int) -> Operation:
    op, dtype, *operands = line.split(" ")
    arity = 1 if op in REDUCTIONS else len({part[0] for part in OPERATIONS[op].split("{")[1:]})
    if len(operands) != arity:
        raise ValueError(line)
    return Operation(op, DType(dtype), tuple(_parsed_operand(text, known) for text in operands))


def _parsed_operand(text: str, known: int) -> Operand:
    dtype, colon, number = text.rpartition(":")
    if not colon:
        if not 0 <= int(number) < known:
            raise ValueError(text)
        return int(number)
    kind = DType(dtype)
    value = number == "True" if kind is DType.BOOL else float(number) if kind.numpy.kind == "f" else int(number)
    return Number.of(value, kind)
