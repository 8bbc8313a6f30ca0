"""Kernels whose source this engine writes: compiled, loaded and launched on a GPU, or run on the host for tests."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ....cuda import CudaKernel
from ....cuda.compiler import compile_unit, newest_architecture
from ....cuda.driver import Launch as DriverLaunch
from ....utils.cpu_features import default_threads
from .device import CudaDevice, Device, Tensor
from .nhwc import Launch
from .source import load_cubin

__all__ = ["GeneratedKernel", "address_of", "compile_all", "largest_cluster"]

_BLOCKS = 16
"""Of a multiprocessor, at most; more work is done in turns."""
_CLUSTER, _CLUSTERS_FROM = 8, 90
"""Blocks of a cluster that every GPU with clusters takes, and the compute capability with which they begin."""


class GeneratedKernel:
    """One kernel whose parameters are addresses of tensors, and numbers.

    Args:
        device: Where it runs.
        text: The source.
        name: The kernel's.
        blocks: How many it can use; its grid, where it has three axes.
        threads: Of a block.
        in_turns: Whether it does with fewer blocks.
        cluster: Blocks of a thread block cluster; on the host all their threads are one block.

    Attributes:
        cluster: Blocks of a thread block cluster.
    """

    def __init__(
        self,
        device: Device,
        text: str,
        name: str,
        blocks: int | tuple[int, int, int],
        threads: int,
        in_turns: bool = True,
        cluster: int = 1,
    ) -> None:
        self._kernel, self._threads, self._device = _kernel(text, name), threads, device
        max_blocks = _BLOCKS * device.multiprocessors if isinstance(device, CudaDevice) else 2
        self.cluster = cluster
        self._grid = (blocks, 1, 1) if isinstance(blocks, int) else blocks
        if in_turns:
            self._grid = (min(self._grid[0], max_blocks), *self._grid[1:])
        self._launches: dict[tuple[int | None, ...], Launch] = {}
        self._cubin: bytes | None = None
        self._loaded: Any = None

    @property
    def is_compiled_ahead(self) -> bool:
        """Whether `compile` has something to do: for the host, each kernel is compiled in its first run."""
        return isinstance(self._device, CudaDevice)

    def compile(self) -> None:
        """Compile it for the GPU, or find it in the cache, and keep the code for `load`; any thread may ask.

        Raises:
            KernelError: it does not compile.
            UnavailableError: there is no compiler.
        """
        if isinstance(self._device, CudaDevice):
            self._cubin = compile_unit(self._kernel.unit(), newest_architecture(self._device.capability))

    def load(self) -> None:
        """Compile it, and load it into the current context, so that its first launch may be captured; as `compile`."""
        if self.is_compiled_ahead:
            if self._cubin is None:
                self.compile()
            assert self._cubin is not None
            self._loaded, self._cubin = load_cubin(self._cubin, self._kernel.name), None

    def runs_clusters(self) -> bool:
        """Whether the GPU can run a cluster of this kernel, which is loaded for that; the host can."""
        if not isinstance(self._device, CudaDevice) or self.cluster == 1:
            return True
        self.load()
        return DriverLaunch(self._loaded, self._grid, self._threads, [], self.cluster).max_clusters() > 0

    def prepare(self, tensors: Sequence[Tensor]) -> Launch:
        """Return a function that queues the kernel for tensors in the order of its parameters."""
        return self.bound([tensor.flat for tensor in tensors])

    def launch(self, arrays: Sequence[Any], stream: Any) -> None:
        """Queue the kernel for arrays in the order of its parameters; None for unused ones."""
        key = tuple(None if array is None else address_of(array) for array in arrays)
        if (queue := self._launches.get(key)) is None:
            queue = self._launches[key] = self.bound(arrays)
        queue(stream)

    def bound(self, arrays: Sequence[Any]) -> Launch:
        """Return a function that queues the kernel for these arrays, and numbers of the types int and float."""
        if isinstance(self._device, CudaDevice):
            if self._loaded is None:
                self.load()
            arguments, programmatic_launch = (
                [_argument(value) for value in arrays],
                self._device.capability >= 90,
            )
            queue = DriverLaunch(
                self._loaded,
                self._grid,
                self._threads,
                arguments,
                self.cluster,
                programmatic_launch=programmatic_launch,
            )
            return lambda stream: queue(int(stream.ptr))
        threads, block = (self._grid[0] * self._threads, *self._grid[1:]), self._threads * self.cluster
        return lambda stream: self._kernel.launch(*arrays, threads=threads, block=block, stream=stream)


def largest_cluster(device: Device) -> int:
    """Blocks that any kernel's clusters may have; 1 where the GPU has no clusters."""
    if not isinstance(device, CudaDevice):
        return _CLUSTER
    return _CLUSTER if device.capability >= _CLUSTERS_FROM and device.capability // 10 != 12 else 1


def compile_all(kernels: Iterable[GeneratedKernel]) -> None:
    """Compile kernels in parallel, those of one source once; raises what `GeneratedKernel.compile` raises."""
    equal: dict[Any, list[GeneratedKernel]] = {}
    for kernel in kernels:
        if kernel.is_compiled_ahead:
            equal.setdefault(kernel._kernel, []).append(kernel)
    if not equal:
        return
    with ThreadPoolExecutor(default_threads(), thread_name_prefix="pytrtplugins-compile") as pool:
        for _ in pool.map(GeneratedKernel.compile, [first for first, *_ in equal.values()]):
            pass
    for first, *others in equal.values():
        for other in others:
            other._cubin = first._cubin


def address_of(array: Any) -> int:
    """Where an array of the device begins."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def _argument(value: Any) -> Any:
    if isinstance(value, (int, float)):
        return ctypes.c_int(value) if isinstance(value, int) else ctypes.c_float(value)
    return ctypes.c_void_p(None if value is None else address_of(value))


@functools.lru_cache(1024)
def _kernel(text: str, name: str) -> Any:
    return CudaKernel(text, name, label="generated.cu")
