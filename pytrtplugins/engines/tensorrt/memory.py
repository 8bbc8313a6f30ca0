"""Addresses that TensorRT passes to a plugin → arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from ...cuda.bindings import array_at, stream_at
from ...plugin.base import Plugin
from ...tensor import DType, TensorDesc, evaluate_dims
from ...utils.optional import require

__all__ = ["DeviceMemory", "current_memory", "use_memory"]


class DeviceMemory:
    """A GPU's: CuPy arrays, without a copy. Tests put their own in its place, see `use_memory`."""

    def __init__(self) -> None:
        self._cupy = require("cupy", extra="tensorrt", feature="a plugin in TensorRT")

    def view(self, address: int, dims: tuple[int, ...], dtype: DType) -> Any:
        """An array over memory that somebody else owns."""
        return array_at(self._cupy, address, dims, dtype.numpy, self)

    def stream(self, handle: int) -> Any:
        """The stream of a handle; it is also a context manager that makes it the current one."""
        return stream_at(self._cupy, handle)

    def allocate(self, size: int) -> tuple[Any, int]:
        """Memory of this many bytes, which lives as long as the object, and its address."""
        array = self._cupy.empty(size, "uint8")
        return array, int(array.data.ptr)

    def rehearse(self, plugin: Plugin, inputs: Sequence[TensorDesc]) -> None:
        """Compute once with zeros: CuPy compiles the kernels of operations when they are first used."""
        zeros = [self._cupy.zeros(evaluate_dims(desc.dims, {}), desc.dtype.numpy) for desc in inputs]
        with contextlib.suppress(Exception):  # values that the plugin does not take; a real run says what is wrong
            plugin.compute(*zeros)


_Memory = TypeVar("_Memory", bound=DeviceMemory)
_memory: list[DeviceMemory] = []


def current_memory() -> DeviceMemory:
    """Where addresses point: a GPU's memory, unless `use_memory` says otherwise."""
    if not _memory:
        _memory.append(DeviceMemory())
    return _memory[-1]


@contextlib.contextmanager
def use_memory(memory: _Memory) -> Iterator[_Memory]:
    """Take all addresses for this memory's inside the block."""
    _memory.append(memory)
    try:
        yield memory
    finally:
        _memory.remove(memory)
