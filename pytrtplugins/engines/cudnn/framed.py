"""A convolution with its image and its pool from kernels that do less: through memory that all layers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .conv import ConvLaunch, ConvProblem, Operands, Scratch
from .device import Device, Tensor, tensor_at
from .steps import max_pool, reformat

__all__ = ["FramedProvider"]


class FramedProvider:
    """Reformat, convolve, pool: what every fused kernel has to be faster than.

    Args:
        device: Where arrays live.
        prepare: Makes the launch of the convolution alone, by the kernel that was chosen for it.
    """

    name = "framed"

    def __init__(self, device: Device, prepare: Callable[[ConvProblem, Operands, Scratch], ConvLaunch]) -> None:
        self.device, self._prepare = device, prepare

    def tactics(self, problem: ConvProblem) -> Sequence[str]:
        """One, for problems with an image or a pool."""
        return ["steps"] if problem.framed else []

    def prepare(self, problem: ConvProblem, tactic: str, operands: Operands, scratch: Scratch) -> ConvLaunch:
        """The steps, one after the other."""
        plain, xp = problem.plain, self.device.xp
        image = scratch.region("image", plain.x.bytes) if problem.element is not None else None
        whole = scratch.region("unpooled", plain.y.bytes) if problem.pool else None
        convolve = self._prepare(plain, operands, scratch)

        def launch(x: Tensor, y: Tensor, residual: Tensor | None, stream: Any) -> None:
            inner_x = x if image is None else tensor_at(xp, image(), 0, plain.x)
            inner_y = y if whole is None else tensor_at(xp, whole(), 0, plain.y)
            if image is not None:
                reformat(x, inner_x, y_step=operands.x_step)(stream)
            convolve(inner_x, inner_y, residual, stream)
            if whole is not None:
                max_pool(inner_y, y)(stream)

        return launch
