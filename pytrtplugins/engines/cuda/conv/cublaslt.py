"""Convolutions of 1x1 pixels, and products of rows, by cuBLASLt; and batches of products of computed matrices."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from ....errors import BuildError
from ....tensor import DType
from ..device.cublaslt import ALIGNMENT, CublasLt, Described, Matrix, Product, stored
from ..device.device import Device, Tensor
from ..device.layout import Format, Strides
from ..device.nhwc import Launch
from .problem import ConvLaunch, ConvProblem, Operands, Scratch, finishing

__all__ = ["CublasLtProvider"]

_ALGORITHMS = {"fused": 8, "plain": 4}
_WORKSPACE = 32 << 20
_PAIRS = ((DType.FLOAT32, DType.FLOAT32), (DType.FLOAT16, DType.FLOAT16), (DType.FLOAT16, DType.FLOAT32))
"""Element types of factors and result."""


class CublasLtProvider:
    """cuBLASLt's algorithms for a problem, as its heuristics order them.

    A tactic is ``fused:NUMBER``, or, where the epilogue is none of cuBLASLt's, ``plain:NUMBER``: the sums alone and our
    epilogue behind.

    Args:
        device: The GPU.
    """

    name = "cublaslt"

    def __init__(self, device: Device) -> None:
        self.device, self.library = device, CublasLt()

    def tactics(self, problem: ConvProblem) -> Sequence[str]:
        """None for codes, larger filters, strides, pads and groups."""
        if not _fits(problem):
            return []
        form = "fused" if _can_fuse(problem) else "plain"
        try:
            found = self.library.described(_product(problem, form)).algorithms(_ALGORITHMS[form], _WORKSPACE)
        except BuildError:  # it has none for these sizes
            return []
        return [f"{form}:{number}" for number in range(len(found))]

    def prepare(self, problem: ConvProblem, tactic: str, operands: Operands, scratch: Scratch) -> ConvLaunch:
        """Weights as (K, C).

        Raises:
            BuildError: cuBLASLt has no such algorithm.
        """
        form, _, number = tactic.partition(":")
        if (
            form not in _ALGORITHMS
            or not number.isdigit()
            or not _fits(problem)
            or (form == "fused" and not _can_fuse(problem))
        ):
            raise BuildError(f"engine 'cuda': cuBLASLt has no tactic {tactic!r}", engine="cuda")
        weights = self._matrix(problem, operands)
        kept, address = [weights], 0
        if form == "fused":
            kind = problem.y.dtype.numpy
            size = operands.bias.size * kind.itemsize
            bias = operands.on_device(self.device, ("bias", kind), size, lambda: operands.bias.astype(kind))
            kept, address = [weights, bias], _address(bias)
        described = self.library.described(_product(problem, form), address)
        algorithm, workspace = self._algorithm(described, _ALGORITHMS[form], int(number), scratch)
        at_weights = _address(weights)

        def run(x: Tensor, y: Any, residual: Tensor | None, stream: Any) -> None:
            added = 0 if residual is None else _address(residual.flat)
            at = (_address(x.flat), at_weights, _address(y), added)
            described.launch(algorithm, at, workspace(), int(stream.ptr))

        run.kept = kept  # type: ignore[attr-defined]
        if form == "fused":
            return lambda x, y, residual, stream: run(x, y.flat, residual, stream)
        return self._plain(problem, operands, run, scratch)

    def product(self, a: Tensor, b: Tensor, y: Tensor, scratch: Scratch) -> Launch:
        """What queues a product of two computed tensors, of any rank, broadcast as ONNX says it.

        Args:
            a: First factor.
            b: Second factor, of its type.
            y: The result, linear.
            scratch: Gives the memory that the algorithm needs.

        Raises:
            BuildError: cuBLASLt has no algorithm for it.
        """
        product, places = batched(a.format, b.format, y.format)
        size = a.format.dtype.itemsize
        first = _address(a.flat), _address(b.flat), _address(y.flat)
        calls = [(*(base + place * size for base, place in zip(first, each, strict=True)), 0) for each in places]
        of_a, of_b, of_y, _ = (math.gcd(*addresses, ALIGNMENT) for addresses in zip(*calls, strict=True))
        matrices = replace(product.a, alignment=of_a), replace(product.b, alignment=of_b)
        product = replace(product, a=matrices[0], b=matrices[1], y=replace(product.y, alignment=of_y))
        described = self.library.described(product)
        algorithm, workspace = self._algorithm(described, 1, 0, scratch)
        kept = a, b, y

        def launch(stream: Any) -> None:
            for at in calls:
                described.launch(algorithm, at, workspace(), int(stream.ptr))

        launch.kept = kept  # type: ignore[attr-defined]
        return launch

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _plain(
        self, problem: ConvProblem, operands: Operands, run: Callable[..., None], scratch: Scratch
    ) -> ConvLaunch:
        k, kind = problem.y.dims[1], DType.FLOAT32.numpy  # so that they are rounded once, behind the epilogue
        size = _rows(problem.y) * k * kind.itemsize
        region, finish = scratch.region("sums", size), finishing(self.device, problem, operands, k)

        def launch(x: Tensor, y: Tensor, residual: Tensor | None, stream: Any) -> None:
            sums = region()[:size].view(kind)
            run(x, sums, None, stream)
            finish(sums, y, residual, stream)

        return launch

    def _matrix(self, problem: ConvProblem, operands: Operands) -> Any:
        kind, (k, c) = problem.x.dtype.numpy, (problem.y.dims[1], problem.x.dims[1])

        def packed() -> npt.NDArray[Any]:
            return operands.weights.reshape(k, c).astype(kind)

        return operands.on_device(self.device, ("kc", kind), k * c * kind.itemsize, packed)

    def _algorithm(
        self, described: Described, count: int, number: int, scratch: Scratch
    ) -> tuple[Any, Callable[[], tuple[int, int]]]:
        """An algorithm, and what gives its memory's address and bytes."""
        found = described.algorithms(count, _WORKSPACE)
        if number >= len(found):
            raise BuildError(f"engine 'cuda': cuBLASLt has no algorithm {number} here", engine="cuda")
        algorithm, size = found[number]
        region = scratch.region("cublaslt", size)

        @functools.cache
        def workspace() -> tuple[int, int]:
            return _address(region()), size

        return algorithm, workspace


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


def _fits(problem: ConvProblem) -> bool:
    plain = (problem.kernel, problem.strides, problem.pads, problem.groups) == ((1, 1), (1, 1), (0, 0, 0, 0), 1)
    floats = {problem.x.dtype, problem.y.dtype} <= {DType.FLOAT32, DType.FLOAT16}
    return plain and floats and not problem.fused and problem.filters == problem.y.dims[1]


def _can_fuse(problem: ConvProblem) -> bool:
    """Whether the whole epilogue is one of cuBLASLt's: a residual is added before the activation there."""
    first = _activation(problem.activation, problem.bounds)
    if problem.residual is not None:
        second = _activation(problem.residual_activation, problem.residual_bounds)
        if first != "linear" or second not in ("linear", "relu") or problem.residual.dtype is not problem.y.dtype:
            return False
    return bool(first) and (problem.x.dtype, problem.y.dtype) in _PAIRS


def _activation(name: str, bounds: tuple[float, float]) -> str:
    """The name that cuBLASLt has for an activation; empty for those that it does not have."""
    if name == "leaky":
        return "relu" if bounds[0] == 0 else ""
    return name if name in ("linear", "gelu_tanh") else ""


def _rows(form: Format) -> int:
    return math.prod(form.dims) // form.dims[1]


def _product(problem: ConvProblem, form: str) -> Product:
    """The convolution as a product: pixels are rows, weights (K, C) the second factor's columns."""
    (c, k), x, y, residual = (problem.x.dims[1], problem.y.dims[1]), problem.x, problem.y, problem.residual
    weights, tf32 = Matrix(x.dtype, c, transposed=True), problem.tensor_cores
    sums = Product(m=_rows(x), n=k, k=c, a=Matrix(x.dtype, x.pitch), b=weights, y=Matrix(DType.FLOAT32, k), tf32=tf32)
    if form == "plain":
        return sums
    added = None if residual is None else Matrix(residual.dtype, residual.pitch)
    last = problem.activation, problem.bounds
    if residual is not None:
        last = problem.residual_activation, problem.residual_bounds
    return replace(sums, y=Matrix(y.dtype, y.pitch), c=added, bias=True, activation=_activation(*last))


def _address(array: Any) -> int:
    """Where an array of the GPU is."""
    return int(array.data.ptr)
