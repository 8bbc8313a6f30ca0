"""Parts of a generated kernel's source: types, numbers and operations in C++, and the functions that they call."""

from __future__ import annotations

import functools
import math

from ....tensor import DType
from .expression import OPERATIONS, Expression, Number, Operand, computed_in
from .source import sources

__all__ = ["C_TYPES", "library_text", "operand_text", "operation_line", "operation_lines"]

C_TYPES = {
    DType.FLOAT32: "float",
    DType.FLOAT16: "__half",
    DType.BFLOAT16: "bfloat16",
    DType.FLOAT64: "double",
    DType.INT8: "int8_t",
    DType.INT16: "int16_t",
    DType.INT32: "int32_t",
    DType.INT64: "int64_t",
    DType.UINT8: "uint8_t",
    DType.UINT16: "uint16_t",
    DType.UINT32: "uint32_t",
    DType.UINT64: "uint64_t",
    DType.BOOL: "bool",
}


def operation_lines(expression: Expression) -> list[str]:
    """C: the operations in order, the values of the inputs being ``v0``, ``v1``, …."""
    return [operation_line(expression, index) for index in range(len(expression.operations))]


def operation_line(expression: Expression, index: int) -> str:
    """C: one of them."""
    each = expression.operations[index]
    given = OPERATIONS[each.op].format(*map(operand_text, each.operands))
    if each.op == "Cast" and each.dtype is not computed_in(each.dtype):
        given = f"static_cast<float>(static_cast<{C_TYPES[each.dtype]}>(static_cast<float>({given})))"
    return f"{C_TYPES[computed_in(each.dtype)]} const v{expression.inputs + index} = {given};"


@functools.cache
def library_text() -> str:
    """The functions that generated kernels call."""
    return sources("early.cu", "codes.cu", "pointwise.cu")


def operand_text(operand: Operand) -> str:
    """C: a value that an operation reads."""
    if not isinstance(operand, Number):
        return f"v{operand}"
    name, kind = C_TYPES[operand.dtype], operand.dtype.numpy.kind
    if kind == "b":
        return operand.text.lower()
    if kind != "f":
        number = int(operand.text)  # of which the lowest has no text of its own in C
        text = f"{number + 1}ll - 1" if number < 0 else f"{number}{'ull' if kind == 'u' else 'll'}"
        return f"static_cast<{name}>({text})"
    value = float(operand.text)
    if math.isfinite(value):
        return f"static_cast<{name}>({value!r})"
    bits = "0x7FC00000" if math.isnan(value) else "0x7F800000" if value > 0 else "0xFF800000"
    return f"static_cast<{name}>(__int_as_float({bits}))"
