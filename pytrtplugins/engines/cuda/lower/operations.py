"""Elementwise operators of ONNX → the operations of generated kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....model.ir import add_constant, array_of, dims_of, dtype_of, operand
from ....tensor import DType
from ....utils.optional import ir
from ..device.expression import Number, Operation, computed_in
from ..device.text import C_TYPES
from ..elementwise import ELEMENTWISE
from .rewrite import DOMAIN, codes_scale, codes_type

__all__ = ["Writer", "is_elementwise"]

Read = "ir.Value | Number | int"
"""What an operation of a `Writer` reads: a tensor, a number, or the result of an operation, by its index."""
_FRACTIONS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64)


@dataclass
class Writer:
    """Writes operations, of tensors for now.

    Attributes:
        graph: Where new constants go.
        written: Operation, result's type, and what it reads.
        made: Tensor → the index of the operation that gives it.
    """

    graph: ir.Graph
    written: list[tuple[str, DType, tuple[Any, ...]]] = field(default_factory=list)
    made: dict[ir.Value, int] = field(default_factory=dict)

    def node(self, node: ir.Node) -> None:
        """Write a node that `is_elementwise` found to be one."""
        self.made[node.outputs[0]] = _RULES[node.op_type](self, node)

    def emit(self, op: str, dtype: DType, *reads: Any) -> int:
        """Write an operation, and give its index."""
        self.written.append(
            (op, dtype, tuple(self.made.get(each, each) if not isinstance(each, int) else each for each in reads))
        )
        return len(self.written) - 1

    def finished(self, inputs: list[ir.Value]) -> tuple[Operation, ...]:
        """The operations, once it is known which tensors are the inputs; constants of one value are numbers."""
        places = {value: index for index, value in enumerate(inputs)}

        def found(read: Any) -> Any:
            if isinstance(read, Number):
                return read
            return len(inputs) + read if isinstance(read, int) else places[read]

        return tuple(Operation(op, dtype, tuple(map(found, reads))) for op, dtype, reads in self.written)

    def read(self, value: ir.Value) -> Any:
        """A tensor, or the number that it is."""
        array = array_of(value)
        if array is None or array.size != 1:
            return value
        return Number.of(array.reshape(()), DType.of(array))


def is_elementwise(node: ir.Node) -> bool:
    """Whether a node's operator is one of operations, in types that kernels compute in."""
    if node.domain not in ("", DOMAIN) or node.op_type not in _RULES or len(node.outputs) != 1:
        return False
    if not {dtype_of(value) for value in (*node.inputs, *node.outputs) if value is not None} <= C_TYPES.keys():
        return False
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        return codes_scale(node) is not None and codes_type(node) is DType.INT8
    if node.op_type == "BatchNormalization":
        return all(array_of(value) is not None for value in node.inputs[1:])
    return True


_Rule = Callable[[Writer, "ir.Node"], int]


def _reads(writer: Writer, node: ir.Node) -> list[Any]:
    return [writer.read(value) for value in node.inputs if value is not None]


def _type(value: ir.Value | None) -> DType:
    """The type of a result: computed in float, where it is a smaller one."""
    dtype = None if value is None else dtype_of(value)
    return computed_in(dtype or DType.FLOAT32)


def _plain(op: str) -> _Rule:
    """An operator that is one operation: it reads inputs, and attributes that are numbers."""
    row = ELEMENTWISE[op]

    def write(writer: Writer, node: ir.Node) -> int:
        kind, result = _type(node.outputs[0]), _reads(writer, node)
        if row.variadic:
            return _chained(writer, op, kind, result)
        numbers = [_number(node, name, value, _type(node.inputs[0])) for name, value in row.numbers.items()]
        return writer.emit(op, kind, *result, *numbers)

    return write


def _chained(writer: Writer, op: str, kind: DType, reads: list[Any]) -> int:
    """One operation behind the other, of any number of inputs."""
    result = reads[0]
    for other in reads[1:]:
        result = writer.emit(op, kind, result, other)
    return result if isinstance(result, int) else writer.emit("Cast", kind, result)


def _number(node: ir.Node, name: str, default: float, kind: DType) -> Number:
    """An attribute, float32 as ONNX has it."""
    return Number.of(np.float32(node.attributes.get_float(name, default)), kind)


def _mean(writer: Writer, node: ir.Node) -> int:
    kind = _type(node.outputs[0])
    total = _chained(writer, "Add", kind, _reads(writer, node))
    return writer.emit("Div", kind, total, Number.of(len(node.inputs), kind))


def _cast(writer: Writer, node: ir.Node) -> int:
    dtype = dtype_of(node.outputs[0])
    return writer.emit("Cast", dtype or DType.FLOAT32, *_reads(writer, node))


def _clip(writer: Writer, node: ir.Node) -> int:
    kind, result = _type(node.outputs[0]), writer.read(node.inputs[0])  # type: ignore[arg-type]
    bounds = [operand(node, index) for index in (1, 2)]
    for op, bound, end in zip(("Max", "Min"), bounds, _ends(node), strict=True):
        if bound is not None:
            result = writer.emit(op, kind, result, writer.read(bound))
        elif end is not None:  # what ONNX says of a bound that is left out
            result = writer.emit(op, kind, result, Number.of(end, kind))
    return result if isinstance(result, int) else writer.emit("Cast", kind, result)


def _ends(node: ir.Node) -> tuple[Any, Any]:
    """The least and the largest finite number of a node's type; None of whole numbers."""
    dtype = dtype_of(node.outputs[0])
    if dtype not in (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64):
        return None, None
    limits = np.finfo(dtype.numpy)
    return limits.min, limits.max


def _gelu(writer: Writer, node: ir.Node) -> int:
    op = "GeluTanh" if node.attributes.get_string("approximate", "none") == "tanh" else "Gelu"
    return writer.emit(op, _type(node.outputs[0]), *_reads(writer, node))


def _modulo(writer: Writer, node: ir.Node) -> int:
    op = "Rest" if node.attributes.get_int("fmod", 0) else "Modulo"
    return writer.emit(op, _type(node.outputs[0]), *_reads(writer, node))


def _shift(writer: Writer, node: ir.Node) -> int:
    op = "ShiftLeft" if node.attributes.get_string("direction", "") == "LEFT" else "ShiftRight"
    return writer.emit(op, _type(node.outputs[0]), *_reads(writer, node))


def _is_inf(writer: Writer, node: ir.Node) -> int:
    sides = [bool(node.attributes.get_int(name, 1)) for name in ("detect_positive", "detect_negative")]
    return writer.emit("IsInf", DType.BOOL, *_reads(writer, node), *(Number.of(side, DType.BOOL) for side in sides))


def _batch_norm(writer: Writer, node: ir.Node) -> int:
    x, kind = node.inputs[0], _type(node.outputs[0])
    scale, bias, mean, variance = (array_of(value).astype(kind.numpy) for value in node.inputs[1:5])
    factor = scale / np.sqrt(variance + np.float32(node.attributes.get_float("epsilon", 1e-5)))
    shape = dims_of(x) or ()
    dims = (-1, *[1] * (len(shape) - 2)) if node.attributes.get_int("spatial", 1) else shape[1:]
    name = node.outputs[0].name
    constants = [
        add_constant(writer.graph, f"{name}.{what}", values.reshape(dims))
        for what, values in (("factor", factor), ("offset", bias - mean * factor))
    ]
    factor_read, offset_read = map(writer.read, constants)
    return writer.emit("Add", kind, writer.emit("Mul", kind, writer.read(x), factor_read), offset_read)  # type: ignore[arg-type]


def _quantize(writer: Writer, node: ir.Node) -> int:
    kind, limits = DType.FLOAT32, np.iinfo(np.int8)
    steps = writer.emit("Steps", kind, writer.read(node.inputs[0]), Number.of(codes_scale(node), kind))  # type: ignore[arg-type]
    result = writer.emit("Round", kind, steps)
    for op, limit in (("Max", limits.min), ("Min", limits.max)):
        result = writer.emit(op, kind, result, Number.of(limit, kind))
    return writer.emit("Cast", DType.INT8, result)


def _dequantize(writer: Writer, node: ir.Node) -> int:
    kind = DType.FLOAT32
    code = writer.emit("Cast", kind, writer.read(node.inputs[0]))  # type: ignore[arg-type]
    return writer.emit("Mul", kind, code, Number.of(codes_scale(node), kind))


def _erf(writer: Writer, node: ir.Node) -> int:
    kind, (x,) = _type(node.outputs[0]), _reads(writer, node)
    if kind in _FRACTIONS:
        return writer.emit("Erf", kind, x)
    wide = writer.emit("Erf", DType.FLOAT64, writer.emit("Cast", DType.FLOAT64, x))  # of whole numbers
    return writer.emit("Cast", kind, writer.emit("Cast", DType.FLOAT32, wide))  # where that of 4 is 1


def _shrink(writer: Writer, node: ir.Node) -> int:
    """Whole numbers are moved as float32, whose fraction is then cut off: this is what onnxruntime does."""
    kind, (x,) = _type(node.outputs[0]), _reads(writer, node)
    wide = kind if kind in _FRACTIONS else DType.FLOAT32
    numbers = [_number(node, name, default, wide) for name, default in ELEMENTWISE["Shrink"].numbers.items()]
    moved = writer.emit("Shrink", wide, x if wide is kind else writer.emit("Cast", wide, x), *numbers)
    return moved if wide is kind else writer.emit("Cast", kind, moved)


def _pow(writer: Writer, node: ir.Node) -> int:
    """Squares, and cubes of whole numbers, are products, which wrap as onnxruntime's do."""
    kind, (x, exponent) = _type(node.outputs[0]), _reads(writer, node)
    power = float(exponent.text) if isinstance(exponent, Number) else 0.0
    if power == 2 or (power == 3 and kind not in _FRACTIONS):
        square = writer.emit("Mul", kind, x, x)
        return square if power == 2 else writer.emit("Mul", kind, square, x)
    return writer.emit("Pow", kind, x, exponent)


_RULES: dict[str, _Rule] = {
    **{op: _plain(op) for op in ELEMENTWISE},
    "BatchNormalization": _batch_norm,
    "BitShift": _shift,
    "Cast": _cast,
    "Clip": _clip,
    "DequantizeLinear": _dequantize,
    "Erf": _erf,
    "Gelu": _gelu,
    "IsInf": _is_inf,
    "Mean": _mean,
    "Mod": _modulo,
    "Pow": _pow,
    "QuantizeLinear": _quantize,
    "Shrink": _shrink,
}
"""Operator → what writes its operations: a row of `ELEMENTWISE` is one operation, but where a type or an attribute decides otherwise."""
