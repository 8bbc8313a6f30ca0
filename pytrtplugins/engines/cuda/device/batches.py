"""A MatMul of tensors, with ONNX's broadcasting, as calls of batched products of matrices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from .cublaslt import Matrix, Product, stored
from .layout import Format, Strides

__all__ = ["batched"]


def batched(a: Format | Strides, b: Format | Strides, y: Format) -> tuple[Product, list[tuple[int, int, int]]]:
    """Write a MatMul as calls of one batched product; the offsets of a, b and y in each call are in values.

    Batch axes that are contiguous in all three tensors become one; the largest is cuBLASLt's batch, each index of the others is a
    call. Batches of rows that are all multiplied with the same matrix become rows of one product.

    Raises:
        ValueError: neither rows nor columns of a matrix are contiguous.
    """
    rank = max(len(a.dims), len(b.dims), 2)
    a_axes, b_axes = _axes(a, rank, 0), _axes(b, rank, 1)
    (m, k), n = (size for size, _ in a_axes[-2:]), b_axes[-1][0]
    y_strides = _result_strides(a, b, y, rank)
    outer = list(zip(a_axes[:-2], b_axes[:-2], y_strides[:-2], strict=True))
    axes = _merge_axes([(max(p[0], q[0]), p[1], q[1], stride) for p, q, stride in outer])
    a_rows = a_axes[-2][1], a_axes[-1][1]
    if axes and axes[-1][1:] == (m * a_rows[0], 0, m * y_strides[-2]):
        m *= axes.pop()[0]
    *calls, (batch, *steps) = sorted(axes) or [(1, 0, 0, 0)]
    a_matrix, b_matrix, y_matrix = (
        Matrix(form.dtype, *stored(*sides, strides), step)
        for form, sides, strides, step in (
            (a, (m, k), a_rows, steps[0]),
            (b, (k, n), (b_axes[-2][1], b_axes[-1][1]), steps[1]),
            (y, (m, n), (y_strides[-2], y_strides[-1]), steps[2]),
        )
    )
    if y_matrix.transposed:
        raise ValueError("the result is not row-major")
    product = Product(m=m, n=n, k=k, a=a_matrix, b=b_matrix, y=y_matrix, batch=batch)
    offsets = [
        tuple(sum(index * axis[tensor] for index, axis in zip(indices, calls, strict=True)) for tensor in (1, 2, 3))
        for indices in itertools.product(*(range(size) for size, *_ in calls))
    ]
    return product, offsets  # type: ignore[return-value]


def _axes(form: Format | Strides, rank: int, side: int) -> list[tuple[int, int]]:
    """Size and stride of each axis of a factor, with leading axes of 1 up to a rank; the stride is 0 where an axis is broadcast.

    Args:
        form: Format of the factor.
        rank: Number of axes, at least 2.
        side: Where a vector gets its second axis: 0 before its own, a row; 1 behind it, a column.
    """
    axes = [(size, stride if size > 1 else 0) for size, stride in zip(form.dims, form.strides, strict=True)]
    if len(axes) == 1:
        axes = [(1, 0), *axes] if side == 0 else [*axes, (1, 0)]
    return [(1, 0)] * (rank - len(axes)) + axes


def _result_strides(a: Format | Strides, b: Format | Strides, y: Format, rank: int) -> list[int]:
    """Strides of the result with the axes of size 1 that MatMul removes for factors of one axis, with leading zeros up to a rank."""
    strides = list(y.strides)
    if len(b.dims) == 1:
        strides.append(1)
    if len(a.dims) == 1:
        strides.insert(len(strides) - 1, y.dims[-1] if len(b.dims) > 1 else 1)
    return [0] * (rank - len(strides)) + strides


def _merge_axes(axes: Sequence[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Merge neighbouring batch axes that are contiguous in a, b and y: (size, stride of a, of b, of y), the outermost first."""
    merged: list[tuple[int, int, int, int]] = []
    for size, stride_a, stride_b, stride_y in axes:
        if size == 1:
            continue
        is_contiguous = merged and merged[-1][1:] == (stride_a * size, stride_b * size, stride_y * size)
        merged.append((size * merged.pop()[0] if is_contiguous else size, stride_a, stride_b, stride_y))
    return merged
