"""Function bodies of QuantizeLinear and DequantizeLinear with 16-bit codes, which OpenVINO drops without saturating."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...utils.optional import onnx
from ...validation.dataflow import walk
from .node import ContribNode, UnknownTypeError, ints, number

__all__ = ["WIDE_CODES", "may_have_wide_codes"]

_NARROW = (2, 3, 17, 18, 19, 20)  # UINT8, INT8 and the types of 8-bit floats in onnx.TensorProto
_LIMITS = {"uint16": (0, 2**16 - 1), "int16": (-(2**15), 2**15 - 1)}


def _operands(node: ContribNode, kind: str) -> str:
    """Statements ``step`` and ``zero``: in float32, along the axis that they belong to."""
    if kind not in _LIMITS or node.attribute("block_size", 0):
        raise UnknownTypeError(f"{kind}, in blocks or not,")  # stays as it is
    along = node.dims(1) not in ((), (1,))
    rank = len(node.dims(0)) if along else 0
    dims = [-1 if axis == node.attribute("axis", 1) % rank else 1 for axis in range(rank)]
    return f"""{ints("dims", dims)}
        step_1 = Cast <to = 1> (x1)
        step = Reshape (step_1, dims)
        {"zero_1 = Cast <to = 1> (x2)" if node.has(2) else ""}
        {"zero = Reshape (zero_1, dims)" if node.has(2) else number("zero", 0)}"""


def _quantize(node: ContribNode) -> str:
    kind = node.dtype(2) if node.has(2) else {4: "uint16", 5: "int16"}.get(node.attribute("output_dtype", 0), "uint8")
    operands = _operands(node, kind)
    low, high = _LIMITS[kind]
    return f"""{operands}
        x = Cast <to = 1> (x0)
        ratio = Div (x, step)
        whole = Round (ratio)
        shifted = Add (whole, zero)
        {number("low", low)}
        {number("high", high)}
        limited = Clip (shifted, low, high)
        y0 = Cast <to = {4 if kind == "uint16" else 5}> (limited)"""


def _dequantize(node: ContribNode) -> str:
    return f"""{_operands(node, node.dtype(0))}
        x = Cast <to = 1> (x0)
        shifted = Sub (x, zero)
        wide = Mul (shifted, step)
        y0 = {node.cast("wide", 1)}"""


WIDE_CODES: Mapping[tuple[str, str], Callable[[ContribNode], str]] = {
    ("", "DequantizeLinear"): _dequantize,
    ("", "QuantizeLinear"): _quantize,
}
"""Domain and operator → function that writes its body for codes of 16 bits."""


def may_have_wide_codes(model: onnx.ModelProto) -> bool:
    """Whether a Q or DQ has codes of more or fewer than 8 bits, or of an unknown type: its zero point says the type."""
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    pairs = (node for node in walk(model.graph.node) if ("", node.op_type) in WIDE_CODES)
    return any(len(node.input) < 3 or kinds.get(node.input[2]) not in _NARROW for node in pairs)
