"""The stem's kernel as a choice for a network's first convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....tensor import DType
from ..device.device import CudaDevice, Tensor
from ..device.layout import CODES
from ..device.source import compile_kernel
from .problem import ConvLaunch, ConvProblem, Operands, Scratch
from .stem_kernel import StemKernel, StemShape, pack_stem

__all__ = ["StemProvider"]

_OLDEST = 80


class StemProvider:
    """From the image as it is to NHWC, with the pool: one kernel, on GPUs of compute capability 8.0 and newer."""

    name = "stem"

    def __init__(self, device: CudaDevice) -> None:
        self.device = device

    def tactics(self, problem: ConvProblem) -> Sequence[str]:
        """One, where the kernel fits."""
        if problem.element not in (DType.FLOAT16, *CODES) or self.device.capability < _OLDEST:
            return []
        form = (problem.kernel, problem.strides, problem.pads, problem.dilations, problem.groups)
        if (
            form != ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1)
            or problem.residual is not None
            or problem.reorg
            or problem.blocks
        ):
            return []
        if not problem.y.nhwc:
            return []
        return (
            []
            if problem.activation not in ("linear", "leaky", "prelu") or StemShape.of(problem).unsupported()
            else ["stem"]
        )

    def compile(self, problem: ConvProblem, tactic: str) -> None:
        """Compile the kernel.

        Raises:
            KernelError: it does not compile.
        """
        compile_kernel("stem.cu", StemShape.of(problem).definitions(), self.device.capability)

    def prepare(self, problem: ConvProblem, tactic: str, operands: Operands, scratch: Scratch) -> ConvLaunch:
        """Scales and biases divided by the output's scale."""
        shape = StemShape.of(problem, operands.x_scale)
        kernel = StemKernel(shape, self.device.capability, self.device.multiprocessors)
        ones = np.ones(shape.k, np.float32)
        given = ones if operands.scale is None else operands.scale
        y_scale = np.float32(operands.y_scale)
        device, size = self.device, shape.k * 12 * 4 * shape.multiplied.itemsize
        weights = operands.on_device(device, ("stem", shape.element), size, lambda: pack_stem(shape, operands.weights))
        scale = operands.on_device(device, ["scale / y_scale"], 4 * shape.k, lambda: given / y_scale)
        rows = [operands.bias / y_scale, *operands.slopes_of(problem)]
        bias = operands.on_device(device, ["bias / y_scale"], 4 * shape.k * len(rows), lambda: np.concatenate(rows))

        def launch(x: Tensor, y: Tensor, residual: Tensor | None, stream: Any) -> None:
            kernel.launch(
                x.flat.data.ptr, weights.data.ptr, scale.data.ptr, bias.data.ptr, y.flat.data.ptr, int(stream.ptr)
            )

        return launch
