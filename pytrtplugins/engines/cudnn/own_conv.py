"""This engine's own convolution kernels as choices: Hopper's and the portable ones, with pools where they fit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ...errors import PytrtpluginsError
from ...tensor import DType
from .conv import ConvLaunch, ConvProblem, Operands, Scratch
from .device import CudaDevice, Tensor
from .kernels.launcher import Addresses, ConvKernel
from .kernels.packing import pack_filters, pack_weights
from .kernels.shape import ConvShape
from .kernels.source import compile_cubin
from .kernels.tactics import Tactic, hopper_tactics, mma_tactics

__all__ = ["OwnProvider", "conv_shape"]

_SLOPES = ("linear", "leaky")


class OwnProvider:
    """One family of kernels, ``"hopper"`` or ``"mma"``; a tactic is the name of its sizes.

    Args:
        device: The GPU.
        family: Which.
        most: How many sizes are tried for a problem.
    """

    def __init__(self, device: CudaDevice, family: str, most: int = 12) -> None:
        self.device, self.name, self.most = device, family, most

    def tactics(self, problem: ConvProblem) -> Sequence[str]:
        """Sizes that fit, compiled side by side; none for float32, groups, images, and activations but linear and leaky."""
        shape = conv_shape(problem)
        if shape is None or shape.problem():
            return []
        if self.name == "hopper":
            found = hopper_tactics(shape, most=self.most) if self.device.capability == 90 else []
        else:
            found = mma_tactics(shape, self.device.capability, self.most)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            compiled = pool.map(lambda tactic: self._compiles(shape, tactic), found)
            return [tactic.name for tactic, works in zip(found, compiled, strict=True) if works]

    def prepare(self, problem: ConvProblem, tactic: str, operands: Operands, scratch: Scratch) -> ConvLaunch:
        """Scales and biases divided by the output's step, so that sums become codes at once.

        Raises:
            ValueError: there is no such tactic.
        """
        sizes, shape = Tactic.parse(self.name, tactic), conv_shape(problem)
        if shape is None:
            raise ValueError(f"{self.name!r} cannot run {problem.key}")
        kernel, step, device = (
            ConvKernel(shape, sizes, self.device.capability),
            np.float32(operands.y_step),
            self.device,
        )
        given = None if operands.scale is None else operands.scale / step
        form = (sizes.family, sizes.tile_n, sizes.depth, sizes.columns, shape.k, shape.c)
        weights = operands.on_device(device, form, lambda: pack_weights(shape, sizes, operands.weights))
        filters = ("filters", sizes.tiles(shape)[1] * sizes.tile_n)
        scale = operands.on_device(
            device, (*filters, "scale"), lambda: pack_filters(given, sizes, shape, float(1 / step))
        )
        bias = operands.on_device(
            device, (*filters, "bias"), lambda: pack_filters(operands.bias / step, sizes, shape, 0.0)
        )
        residual_scale = float(np.float32(operands.residual_step) / step)

        def launch(x: Tensor, y: Tensor, residual: Tensor | None, stream: Any) -> None:
            added = 0 if residual is None else int(residual.flat.data.ptr)
            at = Addresses(
                int(x.flat.data.ptr), int(weights.data.ptr), int(scale.data.ptr), int(bias.data.ptr),
                int(y.flat.data.ptr), added,
            )  # fmt: skip
            kernel.launch(at, int(stream.ptr), residual_scale)

        return launch

    def _compiles(self, shape: ConvShape, tactic: Tactic) -> bool:
        constants = dict(tactic.definitions(shape))
        if tactic.family == "mma":
            constants["DEPENDENT"] = int(self.device.capability >= 90)
        architecture = "90a" if tactic.family == "hopper" else str(self.device.capability)
        try:
            compile_cubin(f"conv_{tactic.family}.cu", constants, architecture)
        except PytrtpluginsError:
            return False
        return True


def conv_shape(problem: ConvProblem) -> ConvShape | None:
    """The problem in the kernels' own terms; None where they have none for it."""
    x, y, residual = problem.x, problem.y, problem.residual
    if problem.element is not None or problem.groups != 1 or x.dtype not in (DType.FLOAT16, DType.INT8):
        return None
    if problem.activation not in _SLOPES or problem.residual_activation not in _SLOPES or not x.nhwc:
        return None
    (n, c, h, w), (_, _, oh, ow) = x.dims, problem.plain.y.dims
    channels = -(-c // x.vector) * x.vector
    slopes = [
        bounds[0] if kind == "leaky" else 1.0
        for kind, bounds in (
            (problem.activation, problem.bounds),
            (problem.residual_activation, problem.residual_bounds),
        )
    ]
    return ConvShape(
        n, h, w, channels, x.pitch, problem.filters, oh, ow, y.pitch, problem.kernel, problem.strides,
        problem.pads[:2], problem.dilations, x.dtype, y.dtype, slopes[0], None if residual is None else residual.dtype,
        0 if residual is None else residual.pitch, slopes[1], problem.pool,
        problem.reorg, not y.nhwc,
    )  # fmt: skip
