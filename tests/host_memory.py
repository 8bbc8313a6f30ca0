"""Where TensorRT's addresses point in tests: to NumPy arrays."""

from __future__ import annotations

import contextlib
import ctypes
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from pytrtplugins.engines.tensorrt.memory import DeviceMemory
from pytrtplugins.tensor import DType


class HostMemory(DeviceMemory):
    """This process's own."""

    def __init__(self) -> None:
        pass

    def view(self, address: int, dims: tuple[int, ...], dtype: DType) -> npt.NDArray[Any]:
        size = math.prod(dims) * dtype.itemsize
        if not size:
            return np.empty(dims, dtype.numpy)
        buffer = memoryview((ctypes.c_byte * size).from_address(address)).cast("B")
        return np.frombuffer(buffer, dtype.numpy).reshape(dims)

    def stream(self, handle: int) -> Any:
        return contextlib.nullcontext()

    def allocate(self, size: int) -> tuple[Any, int]:
        array = np.full(size, 0xA5, np.uint8)
        return array, array.ctypes.data

    def rehearse(self, plugin: Any, inputs: Any) -> None:
        """NumPy has nothing to compile."""
