"""CuPy's names over NumPy: a GPU whose memory is the process's own."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np

from pytrtplugins.engines.tensorrt.device import Device


class DeviceArray(np.ndarray):
    """An array with CuPy's ways in and out."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data)

    def set(self, values: np.ndarray, stream: Any) -> None:
        assert stream.ptr
        np.copyto(self, values)

    def get(self, stream: Any) -> np.ndarray:
        assert stream.ptr
        return np.array(self)


class Stream(nullcontext):  # type: ignore[type-arg]
    """A stream that is always done."""

    ptr = 77

    def __init__(self, non_blocking: bool) -> None:
        super().__init__()
        assert non_blocking, "the default stream would wait for it"

    def synchronize(self) -> None:
        pass


def fake_device(capability: str = "9.0") -> Device:
    """A GPU of this compute capability."""
    cuda = SimpleNamespace(Device=lambda index: nullcontext(), Stream=Stream)
    cupy = SimpleNamespace(
        cuda=cuda,
        asarray=lambda array: np.array(array).view(DeviceArray),
        empty=lambda dims, dtype: np.empty(dims, dtype).view(DeviceArray),
    )
    return Device(0, "Test GPU", capability, cupy)
