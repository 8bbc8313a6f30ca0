"""Gradients of a step as CUDA graphs: captured once per input shape, then replayed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["Graphs"]

WARM_UPS = 3  # before a capture: libraries and compilers choose their kernels in them


@dataclass(frozen=True)
class _Captured:
    """A captured graph with its input and gradient buffers."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    output: Tensor
    gradients: list[Tensor | None]


class Graphs:
    """Replays a function that computes gradients, instead of launching its kernels one by one.

    Random numbers follow the seed: a replay takes that of the device's generator as it is then. The graphs share their memory, since
    what one of them leaves there is used before the next is replayed.

    Args:
        function: Takes what all shapes follow from, and tensors; writes the gradients of the module's parameters, and gives a tensor.
        module: What it computes with.
        warm_ups: Calls before a capture, if more are needed than libraries and compilers need.
    """

    def __init__(self, function: Callable[..., Tensor], module: nn.Module, warm_ups: int = 0) -> None:
        self._function, self._module, self._warm_ups = function, module, max(WARM_UPS, warm_ups)
        self._parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._captured: dict[Hashable, _Captured] = {}
        self._memory = torch.cuda.graph_pool_handle()

    def __call__(self, shape: Hashable, *inputs: Tensor) -> Tensor:
        """Compute, and leave the gradients at the parameters."""
        shapes = shape, *(tensor.shape for tensor in inputs)
        if shapes not in self._captured:
            self._captured[shapes] = self._capture(shape, inputs)
        captured = self._captured[shapes]
        for target, source in zip(captured.inputs, inputs, strict=True):
            target.copy_(source)
        captured.graph.replay()
        for parameter, gradient in zip(self._parameters, captured.gradients, strict=True):
            parameter.grad = gradient
        return captured.output.clone()

    def _capture(self, shape: Hashable, inputs: tuple[Tensor, ...]) -> _Captured:
        """Warm up on a side stream, then capture; random numbers and the module's statistics are restored."""
        inputs = tuple(tensor.clone() for tensor in inputs)
        seeds, statistics = torch.cuda.get_rng_state(), [buffer.clone() for buffer in self._module.buffers()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(self._warm_ups):
                self._forget()
                self._function(shape, *inputs)
        torch.cuda.current_stream().wait_stream(side)
        self._forget()
        graph = torch.cuda.CUDAGraph()
        # a loader's threads go on meanwhile: they allocate memory and wait for their copies, which would end a capture of all threads
        with torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"):
            output = self._function(shape, *inputs)
        for buffer, before in zip(self._module.buffers(), statistics, strict=True):
            buffer.copy_(before)
        torch.cuda.set_rng_state(seeds)
        return _Captured(graph, inputs, output, [parameter.grad for parameter in self._parameters])

    def _forget(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None
