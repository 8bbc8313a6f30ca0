"""Convolutions of 1x1 pixels, and products of rows, by cuBLASLt; and batches of products of computed matrices."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from ....errors import BuildError
from ....tensor import DType
from ..device.batches import batched
from ..device.cublaslt import ALIGNMENT, CublasLt, Described, Matrix, Product
from ..device.device import Device, Tensor
from ..device.layout import Format
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
