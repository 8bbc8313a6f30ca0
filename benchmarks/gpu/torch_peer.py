"""PyTorch: the network called as it is, as one CUDA graph, or compiled with max-autotune."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from .ceilings import kernels
from .clock import Clock
from .running import Running
from .subject import Subject


def pytorch(precision: str, how: str) -> Callable[[Subject, Clock, int], Running]:
    """PyTorch: ``eager``, one CUDA ``graph``, or ``max-autotune`` by torch.compile in one CUDA graph."""

    def make(subject: Subject, clock: Clock, batch: int) -> Running:
        return _Network(precision, how, subject, clock, batch).running()

    return make


def pytorch_pinned(precision: str) -> Callable[[Subject, Clock, int], Running]:
    """One CUDA graph whose images and head the caller keeps in the pinned memory that it copies from and to."""

    def make(subject: Subject, clock: Clock, batch: int) -> Running:
        network = _Network(precision, "graph", subject, clock, batch)
        return replace(network.running(), run=network.run_in_place, queue=None, place=network.place)

    return make


class _Network:
    """The network on the GPU, and pinned memory for both of its ends."""

    def __init__(self, precision: str, how: str, subject: Subject, clock: Clock, batch: int) -> None:
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("this PyTorch has no CUDA")
        from .torch_net import TorchNet

        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = precision != "FP32"
        self._torch: Any = torch
        self._kind = torch.float16 if precision == "FP16" else torch.float32
        net = TorchNet(subject.one).eval().cuda().to(self._kind, memory_format=torch.channels_last)
        self._net = torch.compile(net, mode="max-autotune-no-cudagraphs") if how == "max-autotune" else net
        self._images = torch.empty(subject.images[:batch].shape).pin_memory()
        self.place(subject.images[:batch])
        self._given, self._stream = self._images.cuda(), torch.cuda.ExternalStream(clock.stream.ptr)
        self._head = torch.empty((batch, *subject.head.shape[1:])).pin_memory()
        self._graphs: list[Any] = []
        self._alone, self._both = self._ready(how, self._network), self._ready(how, self._whole)

    def running(self) -> Running:
        """Called with NumPy's arrays."""
        count = kernels(self._graphs[0].raw_cuda_graph()) if self._graphs else None
        return Running(self._run, self._queue, count, close=self._torch.cuda.empty_cache)

    def place(self, images: np.ndarray) -> np.ndarray:
        """Images → pinned memory."""
        found: np.ndarray = self._images.numpy()
        np.copyto(found, images)
        return found

    def run_in_place(self, _: np.ndarray) -> np.ndarray:
        """Run on the images that lie there; the head's values are those of the last run."""
        with self._torch.cuda.stream(self._stream):
            self._both()
        self._stream.synchronize()
        found: np.ndarray = self._head.numpy()
        return found

    def _run(self, images: np.ndarray) -> np.ndarray:
        return self.run_in_place(self.place(images)).copy()

    def _queue(self) -> None:
        with self._torch.cuda.stream(self._stream):
            self._alone()

    def _network(self) -> Any:
        with self._torch.inference_mode():
            x = self._given.to(self._kind, memory_format=self._torch.channels_last)
            return self._net(x).float().contiguous()

    def _whole(self) -> None:
        self._given.copy_(self._images, non_blocking=True)
        self._head.copy_(self._network(), non_blocking=True)

    def _ready(self, how: str, function: Callable[[], Any]) -> Callable[[], object]:
        if how == "eager":
            warm_up(self._stream, function)
            return function
        self._graphs.append(captured(self._stream, function))
        return self._graphs[-1].replay


def warm_up(stream: Any, function: Callable[[], object]) -> None:
    """Call a function often enough that PyTorch has chosen its kernels."""
    import torch

    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    stream.synchronize()


def captured(stream: Any, function: Callable[[], object]) -> Any:
    """The CUDA graph of what a function queues on PyTorch's current stream."""
    import torch

    warm_up(stream, function)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph, stream=stream):
        function()
    graph.instantiate()
    return graph
