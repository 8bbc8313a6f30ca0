"""Rules of `enqueue` on a GPU: in all types and layouts, in a CUDA graph, and on two streams at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..cuda import gpu_reason
from ..errors import UnavailableError
from .cases import Case
from .enqueue import difference_from_compute, from_layout, poisoned_array, to_layout

__all__ = ["enqueue_on_gpu", "graph_replay", "two_streams"]

_ROUNDS = 20
"""Runs that each of two streams queues before the host waits."""


class _Run:
    """One clone with its own arrays on the GPU and its own stream.

    Attributes:
        stream: The stream.
    """

    def __init__(self, case: Case, stack: contextlib.ExitStack) -> None:
        import cupy

        self._case, self._cupy, self._descs = case, cupy, case.descs()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._inputs = [self._allocate(desc) for desc in self._descs[0]]
        self._outputs = [self._allocate(desc) for desc in self._descs[1]]
        allocate: Callable[[int], Any] = lambda size: cupy.full(size, 0xAA, np.uint8)  # noqa: E731
        self._runner = stack.enter_context(case.runner(self._descs, allocate=allocate))

    def fill(self, other: int = 0) -> None:
        """Write the case's inputs, or the ``other`` ones, and poison the outputs; nothing is running meanwhile."""
        for array, desc, value in zip(self._inputs, self._descs[0], self._case.inputs(other), strict=True):
            _as_bytes(array).set(_as_bytes(np.ascontiguousarray(to_layout(value, desc.layout))))
        for array in self._outputs:
            _as_bytes(array).set(_as_bytes(poisoned_array(array.shape, array.dtype, 0)))
        self._cupy.cuda.Device().synchronize()

    def queue(self) -> None:
        """Queue the plugin's work."""
        with self.stream:
            self._runner.enqueue(self._inputs, self._outputs, self.stream)

    def wrong(self, other: int = 0) -> str:
        """The difference between outputs and compute's, after the stream's work is done."""
        self.stream.synchronize()
        outputs = [
            from_layout(self._cupy.asnumpy(_as_bytes(array)).view(array.dtype).reshape(array.shape), desc.layout)
            for array, desc in zip(self._outputs, self._descs[1], strict=True)
        ]
        return difference_from_compute(self._case, outputs, other)

    def _allocate(self, desc: Any) -> Any:
        size = int(np.prod(desc.dims)) * desc.dtype.numpy.itemsize
        return self._cupy.zeros(size, np.uint8).view(desc.dtype.numpy).reshape(desc.dims)


def enqueue_on_gpu(case: Case) -> str:
    """Enqueue on a GPU, on its own stream, gives what compute gives on NumPy arrays, in each supported type and layout.

    Raises:
        UnavailableError: there is no GPU, or no CuPy.
    """
    with _runs(case, 1) as (run,):
        run.fill()
        run.queue()
        return run.wrong()


def graph_replay(case: Case) -> str:
    """Captured into a CUDA graph, as engines and TensorRT do it, enqueue gives right results for inputs that come later.

    Raises:
        UnavailableError: there is no GPU, or no CuPy.
    """
    with _runs(case, 1) as (run,):
        run.fill()
        run.queue()  # kernels are compiled and loaded here
        run.stream.synchronize()
        run.stream.begin_capture()
        try:
            run.queue()
        except Exception as error:
            _abandon(run.stream)
            return f"capture: enqueue cannot be captured into a CUDA graph: {type(error).__name__}: {error}"
        try:
            graph = run.stream.end_capture()
        except Exception as error:
            return f"capture: enqueue does what a CUDA graph cannot hold: {type(error).__name__}: {error}"
        for other in (1, 0, 1):
            run.fill(other)
            graph.launch(run.stream)
            if wrong := run.wrong(other):
                return f"replay: the captured graph gives something else for other inputs: {wrong}"
    return ""


def two_streams(case: Case) -> str:
    """Two clones, each on its own stream and arrays, do not disturb each other.

    Raises:
        UnavailableError: there is no GPU, or no CuPy.
    """
    with _runs(case, 2) as runs:
        for other, run in enumerate(runs):
            run.fill(other)
            run.queue()  # kernels are compiled and loaded here
            run.stream.synchronize()
        begin = _delay_event()
        for run in runs:
            run.stream.wait_event(begin)
        for _ in range(_ROUNDS):
            for run in runs:
                run.queue()
        for other, run in enumerate(runs):
            if wrong := run.wrong(other):
                return f"not safe on two streams: clones that run at once give something else: {wrong}"
    return ""


@contextlib.contextmanager
def _runs(case: Case, count: int) -> Iterator[list[_Run]]:
    if reason := gpu_reason():
        raise UnavailableError(reason)
    with contextlib.ExitStack() as stack:
        yield [_Run(case, stack) for _ in range(count)]


def _delay_event() -> Any:
    """An event that completes some 20 ms later, when the host has queued all work, so that the work runs at once."""
    import cupy

    source = (
        'extern "C" __global__ void pause(long long n) { for (long long start = clock64(); clock64() - start < n;) {} }'
    )
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        cupy.RawKernel(source, "pause")((1,), (1,), (np.int64(40_000_000),))
    return stream.record()


def _as_bytes(array: Any) -> Any:
    """The memory of a contiguous array: CuPy has no name for some element types."""
    return array.reshape(-1).view(np.uint8)


def _abandon(stream: Any) -> None:
    """End a capture that failed."""
    with contextlib.suppress(Exception):
        stream.end_capture()
