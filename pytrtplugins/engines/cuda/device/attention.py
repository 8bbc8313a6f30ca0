"""Attention by this engine's own kernel: any dims and strides, float32 sums."""

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

__all__ = ["AttentionMaker", "AttentionProblem", "Operand", "attention"]

_ROWS, _THREADS = 16, 128
_LARGEST = 256
"""Rows and threads of a block, and values of a head that fit into it: as attention.cu has them."""


@dataclass(frozen=True)
class Operand:
    """How one tensor of an attention lies, from the first value of the memory that it is part of.

    Attributes:
        offset: Its first value.
        strides: Along batch, heads, rows or keys, values of a head; of a bias along keys.
        dtype: Element type.
    """

    offset: int
    strides: tuple[int, int, int, int]
    dtype: DType

    def begins_at(self, flat: Any) -> Any:
        """The memory from the first value on."""
        return flat[self.offset :]

    def reads_four(self, values: int) -> bool:
        """Whether four values of a head are one access, in memory that is aligned to 16 bytes."""
        *others, last = self.strides
        return last == 1 and not any(number % 4 for number in (values, self.offset, *others))


@dataclass(frozen=True)
class AttentionProblem:
    """What is computed: softmax(scale · q kᵀ + bias) v, for each of batch and heads.

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
        """From the attributes of a step, and the types of its tensors."""

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


def attention(problem: AttentionProblem, q: Tensor, k: Tensor, v: Tensor, y: Tensor, bias: Any) -> Launch:
    """What queues an attention.

    Args:
        problem: Which.
        q: What the problem's strides are for, as k, v and y.
        k: Likewise.
        v: Likewise.
        y: Likewise.
        bias: The memory of the bias, or None.
    """
    batch, heads, rows, keys, head, values = problem.dims
    depth = min(-(-max(head, values) // 16) * 16, _LARGEST)
    kernel = _kernel(depth)
    blocks = batch * heads * -(-rows // _ROWS) * -(-values // depth)
    operands = ((problem.q, q), (problem.k, k), (problem.v, v), (problem.y, y))
    flats = [operand.begins_at(tensor.flat) for operand, tensor in operands]
    if problem.bias is not None:
        bias = problem.bias.begins_at(bias)
    numbers = (
        heads, rows, keys, head, values, *(operand.strides for operand, _ in operands),
        (0, 0, 0, 0) if problem.bias is None else problem.bias.strides, problem.period,
        problem.bias is not None and problem.bias.dtype is DType.FLOAT16, problem.scale, problem.zero,
        problem.q.reads_four(head), problem.k.reads_four(head), problem.v.reads_four(values),
    )  # fmt: skip
    if not math.prod(problem.dims[:3]) * values:
        return lambda stream: None
    return lambda stream: kernel.launch(
        *flats[:3], bias, flats[3], *numbers, threads=blocks * _THREADS, block=_THREADS, stream=stream
    )


@functools.cache
def _kernel(depth: int) -> CudaKernel:
    return CudaKernel.from_file(KERNELS / "attention.cu", "attention", options=(f"-DDEPTH={depth}",))
