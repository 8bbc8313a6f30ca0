"""Products of a few rows with a matrix: what ends a classifier, at the speed at which the matrix is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....cuda import CudaKernel
from ..device.device import Device, Tensor
from ..device.elements import to_stored
from ..device.layout import KIND
from ..device.source import KERNELS
from .problem import ConvLaunch, ConvProblem, Operands, Scratch, epilogue_numbers, epilogue_operands

__all__ = ["FewRowsProvider"]

_SOURCE = "\n".join((KERNELS / name).read_text("utf-8") for name in ("nhwc.cu", "few_rows.cu"))
_KERNEL = CudaKernel.from_source(_SOURCE, "few_rows")
_FEW, _WARP, _BLOCK = 8, 32, 128
"""Rows that a thread adds, threads that share a filter, threads of a block: as few_rows.cu has them."""


class FewRowsProvider:
    """A warp for each filter, on every GPU.

    Args:
        device: Where arrays live.
    """

    name = "few-rows"

    def __init__(self, device: Device) -> None:
        self.device = device

    def tactics(self, problem: ConvProblem) -> Sequence[str]:
        """One, for convolutions of at most 8 pixels in all by 1x1 filters."""
        plain = (problem.kernel, problem.strides, problem.pads, problem.groups) == ((1, 1), (1, 1), (0, 0, 0, 0), 1)
        fits = not problem.fused and problem.x.dtype in KIND and problem.filters == problem.y.dims[1]
        return (
            [self.name] if plain and fits and _rows(problem) <= _FEW and not problem.x.pitch % problem.x.vector else []
        )

    def prepare(self, problem: ConvProblem, tactic: str, operands: Operands, scratch: Scratch) -> ConvLaunch:
        """Weights as (K, C), channels padded with zeros to 16 bytes.

        Raises:
            ValueError: there is no such tactic.
        """
        if tactic not in self.tactics(problem):
            raise ValueError(f"kernels of {self.name!r} do not have the tactic {tactic!r}")
        k, c, kind = problem.y.dims[1], problem.x.dims[1], problem.x.dtype.numpy
        padded = -(-c // problem.x.vector) * problem.x.vector

        def packed() -> npt.NDArray[Any]:
            return to_stored(np.pad(operands.weights.reshape(k, c), [(0, 0), (0, padded - c)]).astype(kind))

        weights = operands.on_device(self.device, ("kc", padded, kind), k * padded * kind.itemsize, packed)
        scale, bias = epilogue_operands(self.device, operands)
        numbers = (_rows(problem), padded, problem.x.pitch, k, problem.y.pitch, *epilogue_numbers(problem, operands))
        threads = -(-k * _WARP // _BLOCK) * _BLOCK

        def launch(x: Tensor, y: Tensor, residual: Tensor | None, stream: Any) -> None:
            added = None if residual is None else residual.flat
            _KERNEL.launch(
                x.flat, weights, scale, bias, added, y.flat, *numbers, threads=threads, block=_BLOCK, stream=stream
            )

        return launch


def _rows(problem: ConvProblem) -> int:
    return math.prod(problem.x.dims) // problem.x.dims[1]
