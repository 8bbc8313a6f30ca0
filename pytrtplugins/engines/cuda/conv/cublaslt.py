"""Products by cuBLASLt: 1x1 convolutions, layers on rows, and batched MatMuls of two computed tensors."""

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

_MAX_ALGORITHMS = {"fused": 8, "plain": 4}
"""Algorithms that are timed, by form: the epilogue in the kernel, or the sums alone."""
_MAX_WORKSPACE = 32 << 20
_PAIRS = ((DType.FLOAT32, DType.FLOAT32), (DType.FLOAT16, DType.FLOAT16), (DType.FLOAT16, DType.FLOAT32))
"""Element types of the factors and of the result for which cuBLASLt fuses an epilogue."""


class CublasLtProvider:
    """cuBLASLt's algorithms for a problem, as its heuristics order them.

    A tactic is ``fused:NUMBER``, or, where cuBLASLt does not have the epilogue, ``plain:NUMBER``: the sums alone, then a kernel of
    the epilogue.

    Args:
        device: The GPU.
    """

    name = "cublaslt"

    def __init__(self, device: Device) -> None:
        self.device, self.library = device, CublasLt()

    def tactics(self, problem: ConvProblem) -> Sequence[str]:
        """The tactics of a problem; none for int8 and FP8, larger filters, strides, pads and groups."""
        if not _fits(problem):
            return []
        form = "fused" if _can_fuse(problem) else "plain"
        try:
            product = self.library.described(_product(problem, form))
            algorithms = product.algorithms(_MAX_ALGORITHMS[form], _MAX_WORKSPACE)
        except BuildError:  # none for these sizes
            return []
        return [f"{form}:{number}" for number in range(len(algorithms))]

    def prepare(self, problem: ConvProblem, tactic: str, operands: Operands, scratch: Scratch) -> ConvLaunch:
        """Make the launch of a tactic; weights are (K, C).

        Raises:
            BuildError: cuBLASLt has no such algorithm.
        """
        form, _, number = tactic.partition(":")
        if (
            form not in _MAX_ALGORITHMS
            or not number.isdigit()
            or not _fits(problem)
            or (form == "fused" and not _can_fuse(problem))
        ):
            raise BuildError(f"engine 'cuda': cuBLASLt has no tactic {tactic!r}", engine="cuda")
        weights = self._weights(problem, operands)
        kept, address = [weights], 0
        if form == "fused":
            kind = problem.y.dtype.numpy
            size = operands.bias.size * kind.itemsize
            bias = operands.on_device(self.device, ("bias", kind), size, lambda: operands.bias.astype(kind))
            kept, address = [weights, bias], _address(bias)
        described = self.library.described(_product(problem, form), address)
        algorithm, workspace = self._algorithm(described, _MAX_ALGORITHMS[form], int(number), scratch)
        weights_address = _address(weights)

        def run(x: Tensor, y: Any, residual: Tensor | None, stream: Any) -> None:
            residual_address = 0 if residual is None else _address(residual.flat)
            addresses = (_address(x.flat), weights_address, _address(y), residual_address)
            described.launch(algorithm, addresses, workspace(), int(stream.ptr))

        run.kept = kept  # type: ignore[attr-defined]
        if form == "fused":
            return lambda x, y, residual, stream: run(x, y.flat, residual, stream)
        return self._plain(problem, operands, run, scratch)

    def product(self, a: Tensor, b: Tensor, y: Tensor, scratch: Scratch) -> Launch:
        """A function that queues a MatMul of two computed tensors on a stream; ranks and broadcasting are ONNX's.

        Args:
            a: First factor.
            b: Second factor, of the type of the first.
            y: The result, linear.
            scratch: Allocates the memory that the algorithm needs.

        Raises:
            BuildError: cuBLASLt has no algorithm for it.
        """
        product, offsets = batched(a.format, b.format, y.format)
        size = a.format.dtype.itemsize
        bases = _address(a.flat), _address(b.flat), _address(y.flat)
        calls = [(*(base + offset * size for base, offset in zip(bases, call, strict=True)), 0) for call in offsets]
        align_a, align_b, align_y, _ = (math.gcd(*addresses, ALIGNMENT) for addresses in zip(*calls, strict=True))
        matrices = replace(product.a, alignment=align_a), replace(product.b, alignment=align_b)
        product = replace(product, a=matrices[0], b=matrices[1], y=replace(product.y, alignment=align_y))
        described = self.library.described(product)
        algorithm, workspace = self._algorithm(described, 1, 0, scratch)
        kept = a, b, y

        def launch(stream: Any) -> None:
            for addresses in calls:
                described.launch(algorithm, addresses, workspace(), int(stream.ptr))

        launch.kept = kept  # type: ignore[attr-defined]
        return launch

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _plain(
        self, problem: ConvProblem, operands: Operands, run: Callable[..., None], scratch: Scratch
    ) -> ConvLaunch:
        """The launch of the sums alone, and of the epilogue behind it."""
        k, kind = problem.y.dims[1], DType.FLOAT32.numpy  # sums are rounded once, after the epilogue
        size = _pixels(problem.y) * k * kind.itemsize
        region, finish = scratch.region("sums", size), finishing(self.device, problem, operands, k)

        def launch(x: Tensor, y: Tensor, residual: Tensor | None, stream: Any) -> None:
            sums = region()[:size].view(kind)
            run(x, sums, None, stream)
            finish(sums, y, residual, stream)

        return launch

    def _weights(self, problem: ConvProblem, operands: Operands) -> Any:
        """The weights on the device, (K, C), in the type of the input."""
        kind, (k, c) = problem.x.dtype.numpy, (problem.y.dims[1], problem.x.dims[1])

        def weight_matrix() -> npt.NDArray[Any]:
            return operands.channels_last(problem.x.dtype).reshape(k, c)

        return operands.on_device(self.device, ("kc", kind), k * c * kind.itemsize, weight_matrix)

    def _algorithm(
        self, described: Described, count: int, number: int, scratch: Scratch
    ) -> tuple[Any, Callable[[], tuple[int, int]]]:
        """The algorithm of a number among ``count``, and a function that returns address and bytes of its workspace."""
        algorithms = described.algorithms(count, _MAX_WORKSPACE)
        if number >= len(algorithms):
            raise BuildError(f"engine 'cuda': cuBLASLt has no algorithm {number} here", engine="cuda")
        algorithm, size = algorithms[number]
        region = scratch.region("cublaslt", size)

        @functools.cache
        def workspace() -> tuple[int, int]:
            return _address(region()), size

        return algorithm, workspace


def _fits(problem: ConvProblem) -> bool:
    """Whether a problem is one product of float matrices: 1x1 filters, no strides, pads or groups."""
    plain = (problem.kernel, problem.strides, problem.pads, problem.groups) == ((1, 1), (1, 1), (0, 0, 0, 0), 1)
    floats = {problem.x.dtype, problem.y.dtype} <= {DType.FLOAT32, DType.FLOAT16}
    return plain and floats and not problem.fused and problem.filters == problem.y.dims[1]


def _can_fuse(problem: ConvProblem) -> bool:
    """Whether cuBLASLt has the whole epilogue of a problem; it adds a residual before the activation."""
    first = _activation(problem.activation, problem.bounds)
    if problem.residual is not None:
        second = _activation(problem.residual_activation, problem.residual_bounds)
        if first != "linear" or second not in ("linear", "relu") or problem.residual.dtype is not problem.y.dtype:
            return False
    return bool(first) and (problem.x.dtype, problem.y.dtype) in _PAIRS


def _activation(name: str, bounds: tuple[float, float]) -> str:
    """The activation of `Product` for one of a problem; empty where cuBLASLt does not have it."""
    if name == "leaky":
        return "relu" if bounds[0] == 0 else ""
    return name if name in ("linear", "gelu_tanh") else ""


def _pixels(form: Format) -> int:
    """Number of pixels of an image, or of rows: the values without channels."""
    return math.prod(form.dims) // form.dims[1]


def _product(problem: ConvProblem, form: str) -> Product:
    """A 1x1 convolution as a product: pixels are the rows of a, the weights (K, C) are b transposed."""
    (c, k), x, y, residual = (problem.x.dims[1], problem.y.dims[1]), problem.x, problem.y, problem.residual
    weights, tf32 = Matrix(x.dtype, c, transposed=True), problem.tensor_cores
    sums = Product(m=_pixels(x), n=k, k=c, a=Matrix(x.dtype, x.pitch), b=weights, y=Matrix(DType.FLOAT32, k), tf32=tf32)
    if form == "plain":
        return sums
    added = None if residual is None else Matrix(residual.dtype, residual.pitch)
    last = problem.activation, problem.bounds
    if residual is not None:
        last = problem.residual_activation, problem.residual_bounds
    return replace(sums, y=Matrix(y.dtype, y.pitch), c=added, bias=True, activation=_activation(*last))


def _address(array: Any) -> int:
    """The address of an array on the GPU."""
    return int(array.data.ptr)
