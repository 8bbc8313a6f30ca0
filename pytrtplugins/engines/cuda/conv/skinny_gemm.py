"""Matrix products with at most 8 rows (skinny GEMM), bound by memory bandwidth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....utils.override import override
from ..device.elements import to_stored
from ..device.generated import GeneratedKernel
from .problem import ConvLaunch, ConvProblem, Operands, Scratch
from .specialized import SpecializedProvider, fixed_kernel, fixed_launch, has_kinds

__all__ = ["SkinnyGemmProvider"]

_FEW, _WARP, _BLOCK = 8, 32, 128
"""Rows that a thread adds at most, threads that share a filter, threads of a block: as few_rows.cu has them."""


class SkinnyGemmProvider(SpecializedProvider):
    """A warp for each filter, on every GPU.

    Args:
        device: Where arrays live.
    """

    name = "few-rows"

    def tactics(self, problem: ConvProblem) -> Sequence[str]:
        """One, for convolutions of at most 8 pixels in all by 1x1 filters."""
        plain = (problem.kernel, problem.strides, problem.pads, problem.groups) == ((1, 1), (1, 1), (0, 0, 0, 0), 1)
        fits = not problem.fused and has_kinds(problem) and not problem.x.pitch % problem.x.vector
        return [self.name] if plain and fits and _rows(problem) <= _FEW else []

    def prepare(self, problem: ConvProblem, tactic: str, operands: Operands, scratch: Scratch) -> ConvLaunch:
        """Weights as (K, C), channels padded with zeros to 16 bytes.

        Raises:
            ValueError: there is no such tactic.
        """
        kernel = self._kernel(problem, tactic)
        k, c, kind, padded = problem.y.dims[1], problem.x.dims[1], problem.x.dtype.numpy, _padded(problem)

        def packed() -> npt.NDArray[Any]:
            rows = operands.channels_last(problem.x.dtype).reshape(k, c)
            return to_stored(np.pad(rows, [(0, 0), (0, padded - c)]))

        weights = operands.on_device(self.device, ("kc", padded, kind), k * padded * kind.itemsize, packed)
        return fixed_launch(self.device, kernel, problem, weights, operands)

    @override
    def _kernel(self, problem: ConvProblem, tactic: str) -> GeneratedKernel:
        if tactic not in self.tactics(problem):
            raise ValueError(f"kernels of {self.name!r} do not have the tactic {tactic!r}")
        numbers, blocks = {"ROWS": _rows(problem), "C": _padded(problem)}, -(-problem.filters * _WARP // _BLOCK)
        return fixed_kernel(self.device, "few_rows", problem, numbers, blocks, _BLOCK)


def _rows(problem: ConvProblem) -> int:
    return math.prod(problem.x.dims) // problem.x.dims[1]


def _padded(problem: ConvProblem) -> int:
    """Channels with what fills 16 bytes."""
    return -(-problem.x.dims[1] // problem.x.vector) * problem.x.vector
