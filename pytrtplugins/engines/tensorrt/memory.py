"""Addresses that TensorRT hands to a plugin → arrays."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ...plugin.base import Plugin
from ...tensor import DType, TensorDesc, evaluate_dims
from ...utils.optional import require

__all__ = ["DeviceMemory", "HostMemory", "Memory", "current_memory", "use_memory"]


class Memory(Protocol):
    """Where the addresses point."""

    def view(self, address: int, dims: tuple[int, ...], dtype: DType) -> Any:
        """An array over memory that somebody else owns."""

    def stream(self, handle: int) -> Any:
        """The stream of a handle; it is also a context manager that makes it the current one."""

    def rehearse(self, plugin: Plugin, inputs: Sequence[TensorDesc]) -> None:
        """Have what `compute` needs compiled, for inputs of these dims and types."""


class _Handle:
    """A stream's address, in the form that libraries exchange streams in."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


class DeviceMemory:
    """A GPU's: CuPy arrays, without a copy.

    Raises:
        MissingExtraError: CuPy is not installed.
    """

    def __init__(self) -> None:
        self._cupy = require("cupy", extra="tensorrt", feature="a plugin in TensorRT")

    def view(self, address: int, dims: tuple[int, ...], dtype: DType) -> Any:
        """A CuPy array over the GPU's memory."""
        cupy, size = self._cupy, math.prod(dims) * dtype.itemsize
        if not size:
            return cupy.empty(dims, dtype.numpy)
        memory = cupy.cuda.UnownedMemory(address, size, self)
        return cupy.ndarray(dims, dtype.numpy, cupy.cuda.MemoryPointer(memory, 0))

    def stream(self, handle: int) -> Any:
        """CuPy's object for the CUDA stream."""
        return self._cupy.cuda.Stream.from_external(_Handle(handle))

    def rehearse(self, plugin: Plugin, inputs: Sequence[TensorDesc]) -> None:
        """Compute once with zeros: CuPy compiles the kernels of operations when they are first used."""
        zeros = [self._cupy.zeros(evaluate_dims(desc.dims, {}), desc.dtype.numpy) for desc in inputs]
        with contextlib.suppress(Exception):  # values that the plugin does not take; a real run says what is wrong
            plugin.compute(*zeros)


class HostMemory:
    """This process's own: NumPy arrays. For tests, in which the addresses are those of NumPy arrays."""

    def view(self, address: int, dims: tuple[int, ...], dtype: DType) -> npt.NDArray[Any]:
        """A NumPy array over the process's memory."""
        size = math.prod(dims) * dtype.itemsize
        if not size:
            return np.empty(dims, dtype.numpy)
        buffer = memoryview((ctypes.c_byte * size).from_address(address)).cast("B")
        array: npt.NDArray[Any] = np.frombuffer(buffer, dtype.numpy).reshape(dims)
        return array

    def stream(self, handle: int) -> Any:
        """None: there are no streams on a CPU."""
        return contextlib.nullcontext()

    def rehearse(self, plugin: Plugin, inputs: Sequence[TensorDesc]) -> None:
        """NumPy has nothing to compile."""


_memory: list[Memory] = []


def current_memory() -> Memory:
    """Where addresses point: a GPU's memory, unless `use_memory` says otherwise.

    Raises:
        MissingExtraError: CuPy is not installed.
    """
    if not _memory:
        _memory.append(DeviceMemory())
    return _memory[-1]


@contextlib.contextmanager
def use_memory(memory: Memory) -> Iterator[Memory]:
    """Take all addresses for this memory's inside the block."""
    _memory.append(memory)
    try:
        yield memory
    finally:
        _memory.remove(memory)
