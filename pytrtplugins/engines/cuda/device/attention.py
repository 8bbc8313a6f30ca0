"""Attention by this engine's own kernels: any dims and strides, float32 sums; in float16 on matrix units."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ....cuda import CudaKernel
from ....tensor import DType
from .device import Tensor
from .nhwc import Launch
from .source import KERNELS

__all__ = ["MATRIX_UNITS", "AttentionMaker", "AttentionProblem", "Operand", "attention"]

MATRIX_UNITS = 80
"""Compute capability that attention_mma.cu needs."""
_THREADS, _ROWS, _MATRIX_ROWS = 128, 16, 64
"""Threads of a block; its rows, in attention.cu and attention_mma.cu."""
_LARGEST, _LARGEST_MATRIX = 256, 128
"""Values of a head that a block has room for, likewise."""


@dataclass(frozen=True)
class Operand:
    """Offset and strides of one tensor of an attention, in values of the memory that it is part of.

    Attributes:
        offset: Its first value.
        strides: Along batch, heads, rows or keys, values of a head; of a bias along keys.
        dtype: Element type.
    """

    offset: int
    strides: tuple[int, int, int, int]
    dtype: DType

    def begins_at(self, flat: Any) -> Any:
        """The memory from the tensor's first value on."""
        return flat[self.offset :]

    def has_vectors(self, count: int) -> bool:
        """Whether values of a head lie side by side, and so many of them are one access from the first of each row on."""
        *others, last = self.strides
        return last == 1 and not any(number % count for number in (self.offset, *others))


@dataclass(frozen=True)
class AttentionProblem:
    """The attention softmax(scale · q kᵀ + bias) v for each batch and head: dims, types and strides.

    Attributes:
        dims: Batch, heads, rows (of q), keys, values of a head of q and k, values of a head of v.
        q: Queries.
        k: Keys.
        v: Values.
        y: The result, as wide as v.
        bias: What is added to the scores, if anything.
        period: Matrices that the bias has along the batch; they repeat.
        scale: What scores are multiplied with.
        zero: Whether rows of which nothing is left give zeros, not NaN.
    """

    dims: tuple[int, int, int, int, int, int]
    q: Operand
    k: Operand
    v: Operand
    y: Operand
    bias: Operand | None
    period: int
    scale: float
    zero: bool

    @classmethod
    def of(cls, attributes: Mapping[str, Any], dtype: DType, bias: DType | None) -> AttentionProblem:
        """Make the problem from the attributes of a step and the types of its tensors."""

        def operand(name: str, kind: DType) -> Operand:
            offset, *strides = attributes[name]
            return Operand(offset, tuple(strides), kind)

        return cls(
            dims=tuple(attributes["dims"]),
            **{name: operand(name, dtype) for name in "qkvy"},
            bias=None if bias is None else operand("bias", bias),
            period=attributes["period"],
            scale=attributes["scale"],
            zero=attributes["empty"] == "zero",
        )


AttentionMaker = Callable[[AttentionProblem, Tensor, Tensor, Tensor, Tensor, Any], Launch]
"""Makes what queues an attention; arguments as those of `attention`."""


def attention(
    problem: AttentionProblem, q: Tensor, k: Tensor, v: Tensor, y: Tensor, bias: Any, matrix_units: bool = False
) -> Launch:
    """Make a function that queues an attention.

    Args:
        problem: Which.
        q: What the problem's strides are for, as k, v and y; memory begins at a multiple of 16 bytes.
        k: Likewise.
        v: Likewise.
        y: Likewise.
        bias: The memory of the bias, or None.
        matrix_units: Whether the GPU has those that attention_mma.cu needs; see `MATRIX_UNITS`.
    """
    if not math.prod(problem.dims[:3]) * problem.dims[5]:
        return lambda stream: None
    if problem.bias is not None:
        bias = problem.bias.begins_at(bias)
    operands = ((problem.q, q), (problem.k, k), (problem.v, v))
    flats = [*(operand.begins_at(tensor.flat) for operand, tensor in operands), bias, problem.y.begins_at(y.flat)]
    fast = matrix_units and _fits_matrix_units(problem)
    kernel, blocks, numbers = (_on_matrix_units if fast else _plain)(problem)
    return lambda stream: kernel.launch(*flats, *numbers, threads=blocks * _THREADS, block=_THREADS, stream=stream)


_Launched = tuple[CudaKernel, int, tuple[Any, ...]]
"""A kernel, its blocks, and its arguments behind the arrays."""


def _plain(problem: AttentionProblem) -> _Launched:
    batch, heads, rows, keys, head, values = problem.dims
    depth = min(_multiple(max(head, values), 16), _LARGEST)
    operands = (problem.q, problem.k, problem.v)
    vectors = [
        operand.has_vectors(4) and size % 4 == 0 for operand, size in zip(operands, (head, head, values), strict=True)
    ]
    strides = [each.strides for each in (*operands, problem.y)]
    numbers = (
        heads,
        rows,
        keys,
        head,
        values,
        *strides,
        *_bias_numbers(problem),
        problem.scale,
        problem.zero,
        *vectors,
    )
    return _kernel("attention", depth), batch * heads * -(-rows // _ROWS) * -(-values // depth), numbers


def _on_matrix_units(problem: AttentionProblem) -> _Launched:
    batch, heads, rows, keys, head, values = problem.dims
    strides = [each.strides[:3] for each in (problem.q, problem.k, problem.v, problem.y)]
    numbers = (heads, rows, keys, head, values, *strides, *_bias_numbers(problem), problem.scale, problem.zero)
    kernel = _kernel("attention_mma", _multiple(max(head, values), 16))
    return kernel, batch * heads * -(-rows // _MATRIX_ROWS), numbers


def _fits_matrix_units(problem: AttentionProblem) -> bool:
    """Whether attention_mma.cu does a problem: float16, 8 values of a head one access, 128 of them at most."""
    *_, head, values = problem.dims
    read = (problem.q, problem.k, problem.v)
    return (
        problem.y.dtype is DType.FLOAT16
        and not (head % 8 or values % 8)
        and max(head, values) <= _LARGEST_MATRIX
        and all(operand.has_vectors(8) for operand in read)
        and problem.y.has_vectors(2)
    )


def _bias_numbers(problem: AttentionProblem) -> tuple[Any, ...]:
    bias = problem.bias
    return (
        (0, 0, 0, 0) if bias is None else bias.strides,
        problem.period,
        bias is not None and bias.dtype is DType.FLOAT16,
    )


def _multiple(number: int, unit: int) -> int:
    return -(-number // unit) * unit


@functools.cache
def _kernel(name: str, depth: int) -> CudaKernel:
    return CudaKernel.from_file(KERNELS / f"{name}.cu", name, options=(f"-DDEPTH={depth}",))
