"""What a call costs the host that queues a run from arrays on the GPU to arrays on the GPU, for each library's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pytrtplugins.torch import as_module
from pytrtplugins.utils.optional import require

from .clock import wall

__all__ = ["Library", "call_rows", "libraries", "replay_row", "spent"]

CALLS, WARM_UP = 500, 50

Row = tuple[str, list[float]]
"""A name, and microseconds of each call."""


class Library(NamedTuple):
    """Where arrays come from.

    Attributes:
        name: For the table.
        to_gpu: Copies a NumPy array to the GPU.
        stream: One of the library's.
    """

    name: str
    to_gpu: Callable[[np.ndarray], Any]
    stream: Any


class DlpackOnly:
    """An array that can be had by DLPack alone."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


class InterfaceOnly:
    """An array that has ``__cuda_array_interface__`` alone."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface: dict[str, Any] = self._array.__cuda_array_interface__
        return interface


def libraries() -> Iterator[Library]:
    """CuPy, the two protocols, and what else is installed."""
    cupy = require("cupy", extra="cuda", package="cupy-cuda13x")
    yield Library("CuPy", cupy.asarray, cupy.cuda.Stream(non_blocking=True))
    yield Library("DLPack", lambda array: DlpackOnly(cupy.asarray(array)), cupy.cuda.Stream(non_blocking=True))
    yield Library("interface", lambda array: InterfaceOnly(cupy.asarray(array)), cupy.cuda.Stream(non_blocking=True))
    try:
        import torch
    except ImportError:
        pass
    else:
        yield Library("PyTorch", lambda array: torch.from_numpy(array).cuda(), torch.cuda.Stream())
    try:
        from pycuda import autoprimaryctx as _  # noqa: F401  # its import makes the context
        from pycuda import driver, gpuarray
    except ImportError:
        return
    yield Library("PyCUDA", gpuarray.to_gpu, driver.Stream())


def call_rows(
    context: Any,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    found: Iterator[Library],
    synchronize: Callable[[], object],
) -> Iterator[Row]:
    """`bind` and its launches, and `enqueue`, with each library's arrays; the GPU is idle when a call begins."""
    for library in found:
        xs, ys = ({name: library.to_gpu(array) for name, array in arrays.items()} for arrays in (inputs, outputs))
        with context.bind(xs, ys) as bound:
            yield f"bind, launch: {library.name}", spent(partial(bound.launch, library.stream), synchronize)
        yield f"enqueue: {library.name}", spent(partial(context.enqueue, xs, ys, library.stream), synchronize)
        if library.name == "PyTorch":
            yield "a module of PyTorch's", spent(partial(as_module(context.engine), *xs.values()), synchronize)


def replay_row(kernels: int) -> Row | None:
    """``torch.cuda.CUDAGraph.replay`` of a graph of as many kernels, each with hardly any work; None without PyTorch."""
    try:
        import torch
    except ImportError:
        return None
    x, graph = torch.zeros(8, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(kernels):
            x.add_(1)
    return f"torch.cuda.CUDAGraph.replay, {kernels} kernels", spent(graph.replay, torch.cuda.synchronize)


def spent(
    call: Callable[[], object], synchronize: Callable[[], object], count: tuple[int, int] | None = None
) -> list[float]:
    """Microseconds of each call, without the work that it queues; ``count``: of calls, and of those before that do not count."""
    (calls, warm_up), times = count or (CALLS, WARM_UP), []
    for _ in range(warm_up + calls):
        times.append(1e6 * wall(call))
        synchronize()
    return times[warm_up:]
