"""Kernels whose source this engine writes: compiled, loaded and launched on a GPU, or run on the host for tests."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ....cuda import CudaKernel
from ....cuda.compiler import compile_unit, newest_architecture
from ....cuda.driver import Launch as DriverLaunch
from .device import CudaDevice, Device, Tensor
from .nhwc import Launch
from .source import load_cubin

__all__ = ["GeneratedKernel", "compile_all"]

_BLOCKS = 16
"""Of a multiprocessor, at most; more work is done in turns."""


class GeneratedKernel:
    """One kernel whose parameters are addresses of tensors.

    Args:
        device: Where it runs.
        text: The source.
        name: The kernel's.
        blocks: How many it can use.
        threads: Of a block.
        in_turns: Whether it does with fewer blocks.
    """

    def __init__(self, device: Device, text: str, name: str, blocks: int, threads: int, in_turns: bool = True) -> None:
        self._kernel, self._threads, self._device = _kernel(text, name), threads, device
        max_blocks = _BLOCKS * device.multiprocessors if isinstance(device, CudaDevice) else 2
        self._blocks = min(blocks, max_blocks) if in_turns else blocks
        self._launches: dict[tuple[int | None, ...], Launch] = {}
        self._loaded: Any = None

    @property
    def is_compiled_ahead(self) -> bool:
        """Whether `compile` has something to do: for the host, each kernel is compiled in its first run."""
        return isinstance(self._device, CudaDevice)

    def compile(self) -> None:
        """Compile it for the GPU, or find it in the cache; any thread may ask.

        Raises:
            KernelError: it does not compile.
            UnavailableError: there is no compiler.
        """
        if isinstance(self._device, CudaDevice):
            self._cubin(self._device.capability)

    def load(self) -> None:
        """Compile it, and load it into the current context, so that its first launch may be captured; as `compile`."""
        if isinstance(self._device, CudaDevice):
            self._loaded = load_cubin(self._cubin(self._device.capability), self._kernel.name)

    def prepare(self, tensors: Sequence[Tensor]) -> Launch:
        """Return a function that queues the kernel for tensors in the order of its parameters."""
        return self.bound([tensor.flat for tensor in tensors])

    def launch(self, arrays: Sequence[Any], stream: Any) -> None:
        """Queue the kernel for arrays in the order of its parameters; None for unused ones."""
        key = tuple(map(_address, arrays))
        if (queue := self._launches.get(key)) is None:
            queue = self._launches[key] = self.bound(arrays)
        queue(stream)

    def bound(self, arrays: Sequence[Any]) -> Launch:
        """Return a function that queues the kernel for these arrays."""
        if isinstance(self._device, CudaDevice):
            if self._loaded is None:
                self.load()
            arguments, programmatic_launch = (
                [ctypes.c_void_p(_address(array)) for array in arrays],
                self._device.capability >= 90,
            )
            queue = DriverLaunch(
                self._loaded, self._blocks, self._threads, arguments, programmatic_launch=programmatic_launch
            )
            return lambda stream: queue(int(stream.ptr))
        threads, block = self._blocks * self._threads, self._threads
        return lambda stream: self._kernel.launch(*arrays, threads=threads, block=block, stream=stream)

    def _cubin(self, capability: int) -> bytes:
        return compile_unit(self._kernel.unit(), newest_architecture(capability))


def compile_all(kernels: Iterable[GeneratedKernel]) -> None:
    """Compile kernels in parallel; raises what `GeneratedKernel.compile` raises."""
    waiting = [kernel for kernel in kernels if kernel.is_compiled_ahead]
    if not waiting:
        return
    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="pytrtplugins-compile") as pool:
        for _ in pool.map(GeneratedKernel.compile, waiting):
            pass


def _address(array: Any) -> int | None:
    if array is None:
        return None
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


@functools.lru_cache(1024)
def _kernel(text: str, name: str) -> Any:
    return CudaKernel(text, name, label="generated.cu")
