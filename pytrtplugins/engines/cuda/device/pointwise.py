"""Kernels of pointwise groups: an expression and the tensors' formats → CUDA C++."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from ....tensor import DType
from .device import Device
from .expression import OPERATIONS, Expression, Number, Operand, computed_in
from .generated import GeneratedKernel
from .layout import Format
from .loops import Axis, Loops, aligned_strides, collapsed, padded_channels
from .source import sources

__all__ = [
    "C_TYPES",
    "library_text",
    "operand_text",
    "operation_line",
    "operation_lines",
    "pointwise_kernel",
    "pointwise_loops",
    "pointwise_text",
]

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
_MAX_LANES = 8
_THREADS = 128


def pointwise_loops(inputs: Sequence[Format], outputs: Sequence[Format]) -> Loops:
    """The loops over outputs of the same dims, which the inputs are broadcast to, in the order of the first output's memory."""
    tensors, lead = [*inputs, *outputs], len(inputs)
    dims = outputs[0].dims
    strides = [*(aligned_strides(form, dims) for form in inputs), *(form.strides for form in outputs)]
    axes = [Axis(size, tuple(each[index] for each in strides)) for index, size in enumerate(dims)]
    order = sorted(range(len(dims)), key=lambda index: (-outputs[0].strides[index], index))
    images = [form for form in outputs if form.nhwc]
    valid = dims[1] if images else 0
    padded = max(map(padded_channels, images), default=0)
    if padded > valid:  # a pixel is a run of its own then
        channels = Axis(padded, axes[1].strides)
        return _with_lanes([*collapsed([axes[index] for index in order if index != 1]), channels], valid, tensors, lead)
    merged = collapsed([axes[index] for index in order]) or [Axis(1, (0,) * len(tensors))]
    return _with_lanes(merged, merged[-1].size, tensors, lead)


def _with_lanes(axes: Sequence[Axis], valid: int, tensors: Sequence[Format], lead: int) -> Loops:
    """As many values a thread as make 16 bytes of the smallest, where the first output lies so."""
    *outer, inner = axes

    def packed(tensor: int, lanes: int) -> bool:
        rows = (axis.strides[tensor] for axis in outer)
        return inner.strides[tensor] == 1 and all(stride % lanes == 0 for stride in rows)

    sizes = [form.dtype.itemsize for form, stride in zip(tensors, inner.strides, strict=True) if stride]
    lanes = min(_MAX_LANES, 16 // min(sizes, default=4))
    while lanes > 1 and not (packed(lead, lanes) and lanes <= inner.size):
        lanes //= 2
    return Loops(tuple(outer), inner, lanes, valid, tuple(packed(tensor, lanes) for tensor in range(len(tensors))))


def pointwise_text(expression: Expression, inputs: Sequence[Format], outputs: Sequence[Format]) -> str:
    """The source of the kernel ``pointwise``, whose parameters are the addresses of inputs and outputs.

    Args:
        expression: What is computed.
        inputs: How its inputs lie; they are broadcast to the outputs' dims.
        outputs: How its results lie, all of the same dims.
    """
    loops = pointwise_loops(inputs, outputs)
    body = [*loops.place(), *_counts(loops)]
    for index, form in enumerate(inputs):
        body += _load(loops, index, form)
    names = [C_TYPES[form.dtype] for form in outputs]
    body += [f"Pack<{name}, {loops.lanes}> q{index};" for index, name in enumerate(names)]
    body += ["#pragma unroll", f"for (int lane = 0; lane < {loops.lanes}; ++lane) {{"]
    for index, form in enumerate(inputs):
        lane = ".values[lane]" if loops.inner.strides[index] else ""
        body.append(f"    {C_TYPES[computed_in(form.dtype)]} const v{index} = p{index}{lane};")
    body += [f"    {line}" for line in operation_lines(expression)]
    for index, (value, name) in enumerate(zip(expression.results, names, strict=True)):
        padded = loops.valid < loops.inner.size
        given = f"static_cast<{name}>(v{value})"
        body.append(f"    q{index}.values[lane] = {f'lane < count ? {given} : {name}()' if padded else given};")
    body.append("}")
    for index, form in enumerate(outputs):
        body += _store(loops, len(inputs) + index, index, form)
    parameters = [f"const void* x{index}" for index in range(len(inputs))]
    parameters += [f"void* y{index}" for index in range(len(outputs))]
    lines = "\n".join(f"        {line}" for line in body)
    return (
        f"{library_text()}\n"
        f'extern "C" __global__ void __launch_bounds__({_THREADS}) pointwise({", ".join(parameters)}) {{\n'
        "    begin_kernel();\n"
        f"    for (unsigned item = blockIdx.x * blockDim.x + threadIdx.x; item < {loops.items}u; item += gridDim.x * blockDim.x) {{\n"
        f"{lines}\n    }}\n}}\n"
    )


def pointwise_kernel(
    device: Device, expression: Expression, inputs: Sequence[Format], outputs: Sequence[Format]
) -> GeneratedKernel:
    """The kernel on a device; arguments as for `pointwise_text`, no output empty."""
    text, items = pointwise_text(expression, inputs, outputs), pointwise_loops(inputs, outputs).items
    return GeneratedKernel(device, text, "pointwise", -(-items // _THREADS), _THREADS)


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
    return sources("early.cu", "pointwise.cu")


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


def _counts(loops: Loops) -> list[str]:
    """C: how many of a thread's values there are."""
    if loops.valid % loops.lanes == 0 and loops.valid == loops.inner.size:
        return [f"constexpr int count = {loops.lanes};"]
    return [_limited("count", loops, loops.valid)]


def _limited(name: str, loops: Loops, end: int) -> str:
    left = f"{end} - static_cast<int>(first)"
    return f"int const {name} = {left} < {loops.lanes} ? {left} : {loops.lanes};"


def _load(loops: Loops, index: int, form: Format) -> list[str]:
    name, stride, at = C_TYPES[form.dtype], loops.inner.strides[index], loops.offset(index)
    source = f"static_cast<const {name}*>(x{index}) + ({at})"
    if not stride:
        return [f"{name} const p{index} = *({source});"]
    if loops.packed[index]:
        return [f"Pack<{name}, {loops.lanes}> const p{index} = load_pack<{loops.lanes}>({source}, count);"]
    return [f"Pack<{name}, {loops.lanes}> const p{index} = load_lanes<{loops.lanes}>({source}, {stride}u, count);"]


def _store(loops: Loops, tensor: int, index: int, form: Format) -> list[str]:
    name, stride, lines, count = C_TYPES[form.dtype], loops.inner.strides[tensor], list[str](), "count"
    if loops.valid < loops.inner.size and form.nhwc:  # with its padding
        count = f"count{index}"
        lines.append(_limited(count, loops, padded_channels(form)))
    target = f"static_cast<{name}*>(y{index}) + ({loops.offset(tensor)})"
    if loops.packed[tensor]:
        return [*lines, f"store_pack<{loops.lanes}>({target}, q{index}, {count});"]
    return [*lines, f"store_lanes<{loops.lanes}>({target}, {stride}u, q{index}, {count});"]
