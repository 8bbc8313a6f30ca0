"""Handwritten convolution kernels as choices: Hopper's two, the portable ones and float32's, with pools where they fit."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device.device import CudaDevice, Tensor
from ..device.source import compile_kernel
from .hopper import halo_tactics, hopper_tactics
from .launcher import Addresses, ConvKernel
from .packing import pack_biases, pack_filters, pack_weights
from .problem import ConvLaunch, ConvProblem, Operands, Scratch
from .shape import ConvShape
from .tactics import Tactic, mma_tactics, simt_tactics

__all__ = ["HandwrittenProvider"]

_ALL = 1 << 30


class HandwrittenProvider:
    """One family of kernels, ``"hopper"``, ``"halo"``, ``"mma"`` or, for float32, ``"simt"``; a tactic is the name of its sizes.

    Args:
        device: The GPU.
        family: Which.
        max_tactics: How many sizes are tried for a problem.
    """

    def __init__(self, device: CudaDevice, family: str, max_tactics: int = 12) -> None:
        self.device, self.name, self.max_tactics = device, family, max_tactics

    def tactics(self, problem: ConvProblem) -> Sequence[str]:
        """Sizes that fit; none for TF32, depthwise convolutions, images that are rounded."""
        return [tactic.name for tactic in self._fitting(ConvShape.of(problem), self.max_tactics)]

    def compile(self, problem: ConvProblem, tactic: str) -> None:
        """Compile a size.

        Raises:
            KernelError: it does not compile.
            ValueError: there is no such tactic.
        """
        sizes, shape = self._sizes(problem, tactic)
        compile_kernel(f"conv_{sizes.family}.cu", sizes.definitions(shape), self.device.capability)

    def prepare(self, problem: ConvProblem, tactic: str, operands: Operands, scratch: Scratch) -> ConvLaunch:
        """Scales and biases divided by the output's scale, so that sums become codes at once.

        Raises:
            ValueError: there is no such tactic.
        """
        sizes, shape = self._sizes(problem, tactic)
        device, y_scale = self.device, np.float32(operands.y_scale)
        kernel = ConvKernel(shape, sizes, device.capability, float(y_scale), device.multiprocessors)
        given = None if operands.scale is None else operands.scale / y_scale
        tiles = sizes.tiles(shape)[1]
        form = (sizes.family, sizes.tile_n, sizes.depth, sizes.columns, shape.k, shape.c)
        size = tiles * sizes.tile_n * sizes.steps(shape) * sizes.depth
        weights = operands.on_device(
            device, form, size, lambda: pack_weights(shape, sizes, operands.channels_last(shape.x_type))
        )
        padded = tiles * sizes.tile_n
        scale = operands.on_device(
            device,
            ("scale / y_scale", padded),
            4 * padded,
            lambda: pack_filters(given, sizes, shape, float(1 / y_scale)),
        )
        rows = [operands.bias / y_scale, *operands.slopes_of(problem)]
        bias = operands.on_device(
            device,
            ("bias / y_scale", padded),
            4 * padded * len(rows),
            lambda: pack_biases(rows, sizes, shape),
        )
        residual_scale = float(np.float32(operands.residual_scale) / y_scale)

        def launch(x: Tensor, y: Tensor, residual: Tensor | None, stream: Any) -> None:
            added = 0 if residual is None else int(residual.flat.data.ptr)
            at = Addresses(
                int(x.flat.data.ptr), int(weights.data.ptr), int(scale.data.ptr), int(bias.data.ptr),
                int(y.flat.data.ptr), added,
            )  # fmt: skip
            kernel.launch(at, int(stream.ptr), residual_scale)

        return launch

    def _sizes(self, problem: ConvProblem, tactic: str) -> tuple[Tactic, ConvShape]:
        """The sizes of a tactic, which a file or the disk may name, once it is known that they fit the problem."""
        sizes, shape = Tactic.parse(self.name, tactic), ConvShape.of(problem)
        if shape is None or sizes not in self._fitting(shape, _ALL):
            raise ValueError(f"kernels of {self.name!r} do not have the tactic {tactic!r}")
        return sizes, shape

    def _fitting(self, shape: ConvShape | None, max_tactics: int) -> Sequence[Tactic]:
        return _fitting(self.name, self.device.capability, self.device.multiprocessors, shape, max_tactics)


@functools.lru_cache(4096)
def _fitting(
    family: str, capability: int, multiprocessors: int, shape: ConvShape | None, max_tactics: int
) -> Sequence[Tactic]:
    if shape is None or shape.unsupported():
        return []
    if family == "mma":
        return mma_tactics(shape, capability, max_tactics)
    if family == "simt":
        return simt_tactics(shape, capability, multiprocessors, max_tactics)
    if capability != 90:
        return []
    tactics = halo_tactics if family == "halo" else hopper_tactics
    return tactics(shape, multiprocessors, max_tactics)
