"""Function bodies of 8-bit operators: the operator on floats, between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from .node import ContribNode, NotWritableError, ints, number

__all__ = ["INTEGER", "QUANTIZED", "dequantized"]


def dequantized(node: ContribNode, result: str, codes: int, scale: int, zero: int, axis: int = 1) -> str:
    """Statements that dequantize an input; the zero point may be omitted."""
    point = f"{node.scale(zero)}\n" if node.has(zero) else ""
    pair = f"s{scale}, s{zero}" if node.has(zero) else f"s{scale}"
    along = f"<axis = {axis}>" if node.dims(scale) not in ((), (1,)) else ""
    return f"{node.scale(scale)}\n{point}{result} = DequantizeLinear {along} (x{codes}, {pair})"


def _quantize(node: ContribNode, source: str, scale: int, zero: int, result: str = "y0") -> str:
    """Statements that give a result in codes of the type of the first input's zero point, or of the first input."""
    if node.has(zero):
        point = node.scale(zero)
    else:
        kind = node.cast("zero_int")
        point = f"zero_int = Constant <value = int32 {{0}}> ()\ns{zero} = {kind}"
    return f"{node.scale(scale)}\n{point}\n{result} = QuantizeLinear ({source}, s{scale}, s{zero})"


def _one(node: ContribNode, call: str, scale: int = 3, zero: int = 4) -> str:
    """An operator of one input; ``call`` has ``x`` and gives ``y``."""
    return f"{dequantized(node, 'x', 0, 1, 2)}\n{call}\n{_quantize(node, 'y', scale, zero)}"


def _two(node: ContribNode, op_type: str) -> str:
    return f"""
        {dequantized(node, "a", 0, 1, 2)}
        {dequantized(node, "b", 3, 4, 5)}
        y = {op_type} (a, b)
        {_quantize(node, "y", 6, 7)}"""


def _leaky_relu(node: ContribNode) -> str:
    return _one(node, f"y = LeakyRelu <alpha = {float(node.attribute('alpha', 0.01))!r}> (x)")


def _sigmoid(node: ContribNode) -> str:
    return _one(node, "y = Sigmoid (x)")


def _softmax(node: ContribNode) -> str:
    """Softmax; an attribute says that it has the form before opset 13, over an axis and all after it."""
    axis, opset = node.attribute("axis", -1), node.attribute("opset", 13)
    if opset >= 13:
        return _one(node, f"y = Softmax <axis = {axis}> (x)")
    rows = f"""flat = Flatten <axis = {axis % len(node.dims(0))}> (x)
        soft = Softmax <axis = -1> (flat)
        shape = Shape (x)
        y = Reshape (soft, shape)"""
    return _one(node, rows)


def _where(node: ContribNode) -> str:
    return f"""
        {dequantized(node, "a", 1, 2, 3)}
        {dequantized(node, "b", 4, 5, 6)}
        y = Where (x0, a, b)
        {_quantize(node, "y", 7, 8)}"""


def _concat(node: ContribNode) -> str:
    parts = range(2, len(node.node.input), 3)
    node.check_reads(f"x{index}" for index in range(max(parts, default=-1) + 3))
    floats = "\n".join(dequantized(node, f"part{index}", index, index + 1, index + 2) for index in parts)
    joined = ", ".join(f"part{index}" for index in parts)
    return f"{floats}\ny = Concat <axis = {node.attribute('axis', 1)}> ({joined})\n{_quantize(node, 'y', 0, 1)}"


def _reduce_mean(node: ContribNode) -> str:
    rank, keeps = len(node.dims(0)), node.attribute("keepdims", 1)
    axes = sorted(axis % rank for axis in node.attribute("axes", None) or range(rank))
    return _one(
        node,
        f"""{ints("axes", axes)}
        sum = ReduceSum <keepdims = {keeps}> (x, axes)
        shape = Shape (x)
        sizes = Gather (shape, axes)
        count_int = ReduceProd <keepdims = 0> (sizes)
        count = Cast <to = 1> (count_int)
        y = Div (sum, count)""",
    )


def _pool(node: ContribNode, op_type: str) -> str:
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    if node.attribute("ceil_mode", 0) and node.attribute("count_include_pad", 0):
        raise NotWritableError("it counts what lies behind the padding, as AveragePool does not")
    call = f"{op_type} {node.attributes(*names)}"
    if not node.attribute("channels_last", 0):
        return _one(node, f"y = {call} (x)")
    rank = len(node.dims(0))
    return _one(
        node,
        f"""inside = Transpose <perm = {[0, rank - 1, *range(1, rank - 1)]}> (x)
        pooled = {call} (inside)
        y = Transpose <perm = {[0, *range(2, rank), 1]}> (pooled)""",
    )


def _conv(node: ContribNode) -> str:
    """The bias is int32 in steps of the product of both scales."""
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    last = bool(node.attribute("channels_last", 0))
    bias = (
        """steps = Mul (s1, s4)
        bias_int = Cast <to = 1> (x8)
        bias = Mul (bias_int, steps)"""
        if node.has(8)
        else ""
    )
    body = f"""
        {dequantized(node, "x", 0, 1, 2)}
        {dequantized(node, "w", 3, 4, 5, axis=0)}
        {bias}"""
    call = f"Conv {node.attributes(*names)}"
    operands = f"w{', bias' if bias else ''}"
    if not last:
        return f"{body}\ny = {call} (x, {operands})\n{_quantize(node, 'y', 6, 7)}"
    rank = len(node.dims(0))
    return f"""{body}
        inside = Transpose <perm = {[0, rank - 1, *range(1, rank - 1)]}> (x)
        conv = {call} (inside, {operands})
        y = Transpose <perm = {[0, *range(2, rank), 1]}> (conv)
        {_quantize(node, "y", 6, 7)}"""


def _matmul(node: ContribNode) -> str:
    return f"""
        {dequantized(node, "a", 0, 1, 2, axis=-2)}
        {dequantized(node, "b", 3, 4, 5, axis=-1)}
        y = MatMul (a, b)
        {_quantize(node, "y", 6, 7)}"""


def _gemm(node: ContribNode) -> str:
    """The summand is int32 in steps of alpha times the product of both scales."""
    alpha = float(node.attribute("alpha", 1.0))
    summand = (
        f"""steps_pair = Mul (s1, s4)
        {number("alpha", alpha)}
        steps = Mul (steps_pair, alpha)
        c_int = Cast <to = 1> (x6)
        c = Mul (c_int, steps)"""
        if node.has(6)
        else ""
    )
    result = _quantize(node, "y", 7, 8) if node.has(7) else "y0 = Identity (y)"
    return f"""
        {dequantized(node, "a", 0, 1, 2)}
        {dequantized(node, "b", 3, 4, 5, axis=0 if node.attribute("transB", 0) else 1)}
        {summand}
        y = Gemm {node.attributes("alpha", "transA", "transB")} (a, b{", c" if summand else ""})
        {result}"""


def _product_to_float(node: ContribNode) -> str:
    """MatMulIntegerToFloat."""
    return f"""
        {dequantized(node, "a", 0, 2, 4, axis=-2)}
        {dequantized(node, "b", 1, 3, 5, axis=-1)}
        product = MatMul (a, b)
        y0 = {"Add (product, x6)" if node.has(6) else "Identity (product)"}"""


def _dynamic_product(node: ContribNode) -> str:
    """DynamicQuantizeMatMul."""
    return f"""
        codes, step, zero = DynamicQuantizeLinear (x0)
        a = DequantizeLinear (codes, step, zero)
        {dequantized(node, "b", 1, 2, 3, axis=-1)}
        product = MatMul (a, b)
        y0 = {"Add (product, x4)" if node.has(4) else "Identity (product)"}"""


def _pair(node: ContribNode, op_type: str) -> str:
    """QuantizeLinear and DequantizeLinear, which ONNX has for 4 and 16 bits since opset 21."""
    along = f"<axis = {node.attribute('axis', 1)}>" if node.dims(1) not in ((), (1,)) else ""
    zero = node.scale(2) if node.has(2) else ""
    return f"{node.scale(1)}\n{zero}\ny0 = {op_type} {along} (x0, s1{', s2' if zero else ''})"


QUANTIZED: Mapping[str, Callable[[ContribNode], str]] = {
    "DequantizeLinear": partial(_pair, op_type="DequantizeLinear"),
    "DynamicQuantizeMatMul": _dynamic_product,
    "MatMulIntegerToFloat": _product_to_float,
    "QGemm": _gemm,
    "QLinearAdd": partial(_two, op_type="Add"),
    "QLinearAveragePool": partial(_pool, op_type="AveragePool"),
    "QLinearConcat": _concat,
    "QLinearConv": _conv,
    "QLinearGlobalAveragePool": partial(_pool, op_type="GlobalAveragePool"),
    "QLinearLeakyRelu": _leaky_relu,
    "QLinearMul": partial(_two, op_type="Mul"),
    "QLinearReduceMean": _reduce_mean,
    "QLinearSigmoid": _sigmoid,
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _where,
    "QuantizeLinear": partial(_pair, op_type="QuantizeLinear"),
}
INTEGER: Mapping[str, Callable[[ContribNode], str]] = {"QLinearConv": _conv, "QLinearMatMul": _matmul}
"""Those of ONNX's own domain."""
