"""Run a fused convolution as several kernels, through a shared workspace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....layers import Reorg
from ....plugin.runner import PluginRunner
from ....tensor import TensorDesc
from ..device.device import Device, Tensor, bytes_of, tensor_at
from ..device.expression import Expression
from ..device.layout import Format, as_bytes, channels_last
from ..device.moves import Source, blocks_of, sliced
from ..device.pointwise import pointwise_kernel
from ..device.pool import pool
from ..device.reformat import reformat
from ..device.window import Window
from .problem import ConvLaunch, ConvProblem, Operands, Scratch

__all__ = ["UnfusedProvider"]


class UnfusedProvider:
    """Reformat, convolve, pool, reorg or blocks, reformat: what every fused kernel has to be faster than.

    Args:
        device: Where arrays live.
        prepare: Makes the launch of the convolution alone, by the kernel that was chosen for it.
    """

    name = "unfused"

    def __init__(self, device: Device, prepare: Callable[[ConvProblem, Operands, Scratch], ConvLaunch]) -> None:
        self.device, self._prepare = device, prepare

    def tactics(self, problem: ConvProblem) -> Sequence[str]:
        """One, for problems with anything around the convolution."""
        return ["steps"] if problem.fused else []

    def prepare(self, problem: ConvProblem, tactic: str, operands: Operands, scratch: Scratch) -> ConvLaunch:
        """The steps, one after the other."""
        plain, xp = problem.unfused, self.device.xp
        image = scratch.region("image", plain.x.bytes) if problem.element is not None else None
        whole = scratch.region("whole", plain.y.bytes) if problem.reshaped else None
        finish = self._finish(problem, scratch)
        convert = None if image is None else reformat(self.device, problem.x, plain.x, y_scale=operands.x_scale)
        convolve = self._prepare(plain, operands, scratch)

        def launch(x: Tensor, y: Tensor, residual: Tensor | None, stream: Any) -> None:
            inner_x = x if image is None else tensor_at(xp, image(), 0, plain.x)
            inner_y = y if whole is None else tensor_at(xp, whole(), 0, plain.y)
            if convert is not None:
                convert(x, inner_x, stream)
            convolve(inner_x, inner_y, residual, stream)
            if whole is not None:
                finish(inner_y, y, stream)

        return launch

    def _finish(self, problem: ConvProblem, scratch: Scratch) -> Callable[[Tensor, Tensor, Any], None]:
        """From the convolution's output to what is wanted."""
        if problem.pool and problem.y.nhwc:
            return pool(self.device, problem.unfused.y, problem.y, Window())
        if problem.pool:
            return self._pool_linear(problem, scratch)
        if problem.blocks:
            return self._finish_blocks(problem)
        if not problem.reorg:
            return reformat(self.device, problem.unfused.y, problem.y)
        plugin, moved = Reorg(stride=problem.reorg), channels_last(problem.y.dims, problem.y.dtype, dense=True)
        runner = PluginRunner(plugin, allocate=None)
        runner.prepare([_desc(problem.unfused.y)], [_desc(moved)])
        region, convert = scratch.region("moved", moved.bytes), reformat(self.device, moved, problem.y)

        def reorg(whole: Tensor, y: Tensor, stream: Any) -> None:
            inner = tensor_at(self.device.xp, region(), 0, moved)
            x, z = (tensor.flat.reshape(tensor.format.dims) for tensor in map(bytes_of, (whole, inner)))
            runner.enqueue([x], [z], stream)
            convert(inner, y, stream)

        return reorg

    def _finish_blocks(self, problem: ConvProblem) -> Callable[[Tensor, Tensor, Any], None]:
        """Bytes are copied by a generated kernel, FP8's too."""
        given, wanted = map(as_bytes, (problem.unfused.y, problem.y))
        whole = blocks_of(Source(given.dims, 0), problem.blocks)
        move = sliced(whole, (0, 0, *problem.cut[:2]), wanted.dims, [1] * 4)
        kernel = pointwise_kernel(self.device, Expression(1, (), (0,)), [given], [wanted], [move])

        kernel.load()

        def finish(whole: Tensor, y: Tensor, stream: Any) -> None:
            kernel.launch([whole.flat, y.flat], stream)

        return finish

    def _pool_linear(self, problem: ConvProblem, scratch: Scratch) -> Callable[[Tensor, Tensor, Any], None]:
        pooled = channels_last(problem.y.dims, problem.y.dtype)
        region, launch = scratch.region("moved", pooled.bytes), pool(self.device, problem.unfused.y, pooled, Window())
        convert = reformat(self.device, pooled, problem.y)

        def pool_linear(whole: Tensor, y: Tensor, stream: Any) -> None:
            inner = tensor_at(self.device.xp, region(), 0, pooled)
            launch(whole, inner, stream)
            convert(inner, y, stream)

        return pool_linear


def _desc(form: Format) -> TensorDesc:
    return TensorDesc("", form.dims, as_bytes(form).dtype, "nhwc")
