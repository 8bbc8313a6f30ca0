"""Split a product of tensors, broadcast as ONNX says it, into batches of products of matrices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from .cublaslt import Matrix, Product, stored
from .layout import Format, Strides

__all__ = ["batched"]


def batched(a: Format | Strides, b: Format | Strides, y: Format) -> tuple[Product, list[tuple[int, int, int]]]:
    """One of the products that make up another, and where the factors and the result of each begin, in values.

    Batch axes that lie evenly in all three tensors are one; the largest is cuBLASLt's own, the others are calls. Rows of a first
    factor that are all multiplied with the same matrix are rows of one product.

    Raises:
        ValueError: a matrix has gaps along both its axes.
    """
    rank = max(len(a.dims), len(b.dims), 2)
    a_axes, b_axes = _axes(a, rank, 0), _axes(b, rank, 1)
    (m, k), n = (size for size, _ in a_axes[-2:]), b_axes[-1][0]
    y_strides = _result_strides(a, b, y, rank)
    outer = list(zip(a_axes[:-2], b_axes[:-2], y_strides[:-2], strict=True))
    axes = _merged([(max(p[0], q[0]), p[1], q[1], stride) for p, q, stride in outer])
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
    indices = itertools.product(*(range(size) for size, *_ in calls))
    places = [
        tuple(sum(index * axis[part] for index, axis in zip(each, calls, strict=True)) for part in (1, 2, 3))
        for each in indices
    ]
    return product, places  # type: ignore[return-value]


def _axes(form: Format | Strides, rank: int, side: int) -> list[tuple[int, int]]:
    """Sizes and strides of a factor, which has at least two axes then; 0 along an axis that is repeated.

    Args:
        form: How it lies.
        rank: How many axes.
        side: Where an axis comes to a vector: 0 before it, 1 behind.
    """
    axes = [(size, stride if size > 1 else 0) for size, stride in zip(form.dims, form.strides, strict=True)]
    if len(axes) == 1:
        axes = [(1, 0), *axes] if side == 0 else [*axes, (1, 0)]
    return [(1, 0)] * (rank - len(axes)) + axes


def _result_strides(a: Format | Strides, b: Format | Strides, y: Format, rank: int) -> list[int]:
    """The result's strides with the axes of 1 that factors of one axis take out of it."""
    strides = list(y.strides)
    if len(b.dims) == 1:
        strides.append(1)
    if len(a.dims) == 1:
        strides.insert(len(strides) - 1, y.dims[-1] if len(b.dims) > 1 else 1)
    return [0] * (rank - len(strides)) + strides


def _merged(axes: Sequence[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Axes (size, strides), the outermost first, those as one that lie as one in all tensors."""
    found: list[tuple[int, int, int, int]] = []
    for size, of_a, of_b, of_y in axes:
        if size == 1:
            continue
        evenly = found and found[-1][1:] == (of_a * size, of_b * size, of_y * size)
        found.append((size * found.pop()[0] if evenly else size, of_a, of_b, of_y))
    return found
