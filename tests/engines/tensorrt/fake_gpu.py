"""CuPy's names over NumPy: a GPU whose memory is the process's own."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from pytrtplugins.engines.tensorrt.device import Device


class DeviceArray(np.ndarray):
    """An array with CuPy's ways in and out."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)

    def set(self, values: np.ndarray, stream: Any) -> None:
        assert stream.ptr
        np.copyto(self, values)

    def get(self, stream: Any) -> np.ndarray:
        assert stream.ptr
        return np.array(self)


class Outside:
    """An array of another library's on the GPU."""

    def __init__(self, values: np.ndarray, stream: int | None = None, order: str = "C") -> None:
        self.values = np.array(values, order=order)  # type: ignore[call-overload]
        self._stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        values = self.values
        return {
            "data": (values.ctypes.data, False),
            "typestr": values.dtype.str,
            "shape": values.shape,
            "strides": values.strides,
            "stream": self._stream,
            "version": 3,
        }


class Viewed:
    """CuPy's array over memory that it does not own."""

    def __init__(self, dims: tuple[int, ...], dtype: np.dtype[Any], memory: Any) -> None:
        self.shape, self.dtype, self.data = dims, dtype, memory


class Stream(nullcontext):
    """A stream that is always done."""

    ptr = 77
    waited: ClassVar[list[Any]] = []

    def __init__(self, non_blocking: bool) -> None:
        super().__init__()
        assert non_blocking, "the default stream would wait for it"

    def synchronize(self) -> None:
        pass

    def record(self) -> str:
        return "an event"

    def wait_event(self, event: Any) -> None:
        self.waited.append(event)


def fake_device(capability: str = "9.0") -> Device:
    runtime = SimpleNamespace(streamSynchronize=Stream.waited.append)
    cuda = SimpleNamespace(
        Device=lambda index: nullcontext(),
        Stream=Stream,
        get_current_stream=lambda: Stream(non_blocking=True),
        runtime=runtime,
        UnownedMemory=lambda address, size, owner: SimpleNamespace(ptr=address, owner=owner),
        MemoryPointer=lambda memory, offset: memory,
    )
    cupy = SimpleNamespace(
        cuda=cuda,
        ndarray=Viewed,
        asarray=lambda array: np.array(array).view(DeviceArray),
        empty=lambda dims, dtype: np.empty(dims, dtype).view(DeviceArray),
    )
    return Device(0, "Test GPU", capability, cupy)
