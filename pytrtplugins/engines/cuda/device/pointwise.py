"""Kernels of pointwise groups, and of what only moves values: an expression and the tensors' formats → CUDA C++."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from .device import Device
from .expression import Expression, computed_in
from .generated import GeneratedKernel
from .index import Index
from .layout import Format, Strides
from .loops import Axis, Loops, aligned_strides, collapsed, padded_channels
from .moves import Move
from .operands import Operand, operands, results
from .text import C_TYPES, library_text, operation_lines

__all__ = [
    "THREADS",
    "count_lines",
    "element_text",
    "pointwise_kernel",
    "pointwise_loops",
    "pointwise_text",
    "store_lines",
]

_MAX_LANES = 8
THREADS = 128
"""Of a block."""


def pointwise_loops(
    inputs: Sequence[Format | Strides], outputs: Sequence[Format | Strides], lanes: int = _MAX_LANES
) -> Loops:
    """The loops over outputs of the same dims, which the inputs are broadcast to, in the order of the first output's memory.

    Args:
        inputs: How they lie.
        outputs: How they lie.
        lanes: Values that a thread has, at most.
    """
    tensors, lead = [*inputs, *outputs], len(inputs)
    dims = outputs[0].dims
    strides = [*(aligned_strides(form, dims) for form in inputs), *(form.strides for form in outputs)]
    axes = [Axis(size, tuple(each[index] for each in strides), ((index, size),)) for index, size in enumerate(dims)]
    order = sorted(range(len(dims)), key=lambda index: (-outputs[0].strides[index], index))
    images = [form for form in outputs if isinstance(form, Format) and form.nhwc]
    valid = dims[1] if images else 0
    padded = max(map(padded_channels, images), default=0)
    if padded > valid:  # a pixel is a run of its own then
        channels = Axis(padded, axes[1].strides, ((1, padded),))
        axes = [*collapsed([axes[index] for index in order if index != 1]), channels]
        return _with_lanes(axes, valid, tensors, lead, lanes)
    merged = collapsed([axes[index] for index in order]) or [Axis(1, (0,) * len(tensors))]
    return _with_lanes(merged, merged[-1].size, tensors, lead, lanes)


def _with_lanes(axes: Sequence[Axis], valid: int, tensors: Sequence[Format | Strides], lead: int, most: int) -> Loops:
    """As many values a thread as make 16 bytes of the smallest, where the first output lies so."""
    *outer, inner = axes

    def packed(tensor: int, lanes: int) -> bool:
        rows = (axis.strides[tensor] for axis in outer)
        return inner.strides[tensor] == 1 and all(stride % lanes == 0 for stride in rows)

    sizes = [form.dtype.itemsize for form, stride in zip(tensors, inner.strides, strict=True) if stride]
    lanes = min(most, 16 // min(sizes, default=4))
    while lanes > 1 and not (packed(lead, lanes) and lanes <= inner.size):
        lanes //= 2
    return Loops(tuple(outer), inner, lanes, valid, tuple(packed(tensor, lanes) for tensor in range(len(tensors))))


def pointwise_text(
    expression: Expression,
    inputs: Sequence[Format],
    outputs: Sequence[Format],
    reads: Sequence[Move] = (),
    writes: Mapping[int, Move] = MappingProxyType({}),
) -> str:
    """The source of the kernel ``pointwise``, whose parameters are the addresses of inputs and outputs.

    Args:
        expression: What is computed.
        inputs: How tensors lie that are read.
        outputs: How its results lie, all of the same dims.
        reads: What the expression is computed of, which is broadcast to the outputs' dims: moves of the inputs, by their
            places; none: the inputs are.
        writes: Result → where in that output each of its values goes; the others go where they lie.
    """
    read, written = operands(inputs, reads, outputs[0]), results(outputs, writes)
    loops = _loops(read, written)
    rank = len(written[0].form.dims)
    body = [*loops.place(), *count_lines(loops)]
    for index, operand in enumerate(read):
        body += _load(loops, index, operand, rank)
    names = [C_TYPES[form.dtype] for form in outputs]
    body += [f"Pack<{name}, {loops.lanes}> q{index};" for index, name in enumerate(names)]
    body += ["#pragma unroll", f"for (int lane = 0; lane < {loops.lanes}; ++lane) {{"]
    for index, operand in enumerate(read):
        lane = ".values[lane]" if loops.inner.strides[index] else ""
        body.append(f"    {C_TYPES[computed_in(operand.dtype)]} const v{index} = p{index}{lane};")
    body += [f"    {line}" for line in operation_lines(expression)]
    for index, (value, name) in enumerate(zip(expression.results, names, strict=True)):
        padded = loops.valid < loops.inner.size
        given = f"static_cast<{name}>(v{value})"
        if value < len(read) and loops.inner.strides[value] and read[value].dtype is outputs[index].dtype:
            given = f"p{value}.values[lane]"  # the same bits
        body.append(f"    q{index}.values[lane] = {f'lane < count ? {given} : {name}()' if padded else given};")
    body.append("}")
    for index, result in enumerate(written):
        body += store_lines(loops, len(read) + index, index, result, rank)
    parameters = [f"const void* x{index}" for index in range(len(inputs))]
    parameters += [f"void* y{index}" for index in range(len(outputs))]
    return element_text("pointwise", parameters, loops.items, body, library_text())


def element_text(name: str, parameters: Sequence[str], items: int, body: Sequence[str], library: str) -> str:
    """The source of a kernel that does the same for each item.

    Args:
        name: The kernel's.
        parameters: C: as they are declared.
        items: How many there are.
        body: C: what is done for ``item``.
        library: C++: functions that the body calls.
    """
    lines = "\n".join(f"        {line}" for line in body)
    return (
        f"{library}\n"
        f'extern "C" __global__ void __launch_bounds__({THREADS}) {name}({", ".join(parameters)}) {{\n'
        "    begin_kernel();\n"
        f"    for (unsigned item = blockIdx.x * blockDim.x + threadIdx.x; item < {items}u; item += gridDim.x * blockDim.x) {{\n"
        f"{lines}\n    }}\n}}\n"
    )


def pointwise_kernel(
    device: Device,
    expression: Expression,
    inputs: Sequence[Format],
    outputs: Sequence[Format],
    reads: Sequence[Move] = (),
    writes: Mapping[int, Move] = MappingProxyType({}),
) -> GeneratedKernel:
    """The kernel on a device; arguments as for `pointwise_text`, no output empty."""
    text = pointwise_text(expression, inputs, outputs, reads, writes)
    items = _loops(operands(inputs, reads, outputs[0]), results(outputs, writes)).items
    return GeneratedKernel(device, text, "pointwise", -(-items // THREADS), THREADS)


def _loops(read: Sequence[Operand], written: Sequence[Operand]) -> Loops:
    """Loops whose threads have no more values than lie in runs, but for the 4 bytes that are written at once."""
    forms, outputs = ([each.form for each in some] for some in (read, written))
    rank, loops = len(outputs[0].dims), pointwise_loops(forms, outputs)
    runs = [
        operand.run(loops.lanes, lambda run, lane: loops.at(rank, run, lane))
        for index, operand in enumerate((*read, *written))
        if operand.parameter is None and loops.inner.strides[index]
    ]
    most = max(min(runs, default=loops.lanes), 4 // outputs[0].dtype.itemsize)
    return loops if most >= loops.lanes else pointwise_loops(forms, outputs, most)


def count_lines(loops: Loops) -> list[str]:
    """C: how many of a thread's values there are."""
    if loops.valid % loops.lanes == 0 and loops.valid == loops.inner.size:
        return [f"constexpr int count = {loops.lanes};"]
    return [_limited("count", loops, loops.valid)]


def _limited(name: str, loops: Loops, end: int) -> str:
    left = f"{end} - static_cast<int>(first)"
    return f"int const {name} = {left} < {loops.lanes} ? {left} : {loops.lanes};"


def _load(loops: Loops, index: int, operand: Operand, rank: int) -> list[str]:
    name, stride = C_TYPES[operand.dtype], loops.inner.strides[index]
    if operand.parameter is None:
        if not stride:
            return [f"{name} const p{index} = {operand.scalar(loops.at(rank, 1, Index()))};"]
        return operand.load(f"p{index}", loops.lanes, "count", lambda run, lane: loops.at(rank, run, lane))
    source = f"static_cast<const {name}*>(x{operand.parameter}) + ({loops.offset(index)})"
    if not stride:
        return [f"{name} const p{index} = *({source});"]
    if loops.packed[index]:
        return [f"Pack<{name}, {loops.lanes}> const p{index} = load_pack<{loops.lanes}>({source}, count);"]
    return [f"Pack<{name}, {loops.lanes}> const p{index} = load_lanes<{loops.lanes}>({source}, {stride}u, count);"]


def store_lines(loops: Loops, tensor: int, index: int, result: Operand, rank: int) -> list[str]:
    """C: write the pack ``q{index}`` of a thread to the output ``y{index}``, which is the tensor of this number in the loops."""
    name, stride, lines, count = C_TYPES[result.dtype], loops.inner.strides[tensor], list[str](), "count"
    if result.parameter is None:
        return result.store(f"q{index}", loops.lanes, count, lambda run, lane: loops.at(rank, run, lane))
    form = result.form
    if loops.valid < loops.inner.size and isinstance(form, Format) and form.nhwc:  # with its padding
        count = f"count{index}"
        lines.append(_limited(count, loops, padded_channels(form)))
    target = f"static_cast<{name}*>(y{index}) + ({loops.offset(tensor)})"
    if loops.packed[tensor]:
        return [*lines, f"store_pack<{loops.lanes}>({target}, q{index}, {count});"]
    return [*lines, f"store_lanes<{loops.lanes}>({target}, {stride}u, q{index}, {count});"]
