"""Arrays of the host on their way to the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .device import CudaDevice

__all__ = ["Upload"]

_SMALL = 1 << 16  # bytes that the driver takes over at once
_PIECE, _PIECES = 1 << 18, 2


class Upload:
    """Copies contiguous arrays to a GPU, for one stream at a time.

    Page-locked arrays are read by the GPU itself. Others go by way of some page-locked pieces, one being written while others are
    on the bus: few, so that they stay in the processor's cache.

    Args:
        device: The GPU.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._runtime = device.xp.cuda.runtime
        memory, _ = device.pinned(_PIECE * _PIECES)
        self._pieces = [
            (piece, piece.ctypes.data, device.xp.cuda.Event(disable_timing=True))
            for piece in memory.reshape(_PIECES, _PIECE)
        ]

    def __call__(self, array: npt.NDArray[Any], memory: Any, stream: Any, begin: int = 0) -> None:
        """Queue the copy.

        Args:
            array: Contiguous; it may change when this returns, if it is page-locked, when the copy is done.
            memory: On the GPU.
            stream: CuPy's.
            begin: Byte of the memory that the copy begins at.
        """
        runtime, size, source, target = self._runtime, array.nbytes, array.ctypes.data, memory.data.ptr + begin
        if size <= _SMALL or self._page_locked(source, size):
            runtime.memcpyAsync(target, source, size, runtime.memcpyHostToDevice, stream.ptr)
            return
        values = array.reshape(-1).view(np.uint8)
        for number, done in enumerate(range(0, size, _PIECE)):
            piece, address, event = self._pieces[number % _PIECES]
            part = values[done : done + _PIECE]
            runtime.eventSynchronize(event.ptr)
            piece[: part.size] = part
            runtime.memcpyAsync(target + done, address, part.size, runtime.memcpyHostToDevice, stream.ptr)
            runtime.eventRecord(event.ptr, stream.ptr)

    def _page_locked(self, address: int, size: int) -> bool:
        host = self._runtime.memoryTypeHost
        ends = address, address + size - 1
        return all(self._runtime.pointerGetAttributes(end).type == host for end in ends)
