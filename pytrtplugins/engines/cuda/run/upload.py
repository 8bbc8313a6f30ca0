"""Arrays of the host on their way to the device."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from .... import native
from ....errors import ExecutionError, UnavailableError, UsageError
from ....tensor import DType
from ....utils.numbers import IntRange
from ..device.device import Device, Tensor
from ..device.layout import linear
from ..device.nhwc import Launch
from ..device.reformat import reformat
from ..plan.input_rounding import InputRounding

__all__ = ["COPY_THREADS", "Upload"]

_LEAST = 1 << 18
"""Bytes from which on other threads are of use."""
_MOST_HELPERS, _MOST = 5, 64
_BUSY = -1
"""What the native part gives while it has another thread's upload: the driver is faster than one core of ours."""
COPY_THREADS = "PYTRT_COPY_THREADS"
"""Environment variable: threads that copy arrays beside the caller; 0: the driver copies, as it does without the native part."""


class Upload:
    """Copies of arrays to one piece of the device's memory.

    An array in ordinary memory is copied into page-locked memory first, by several threads, and stripe by stripe the device
    takes it from there meanwhile. That is work for the native part; without it, and where there are fewer than three cores, the
    driver does the same with one thread.

    Args:
        device: Where the memory is.
        memory: An array of the device.
        rounds: What the network rounds the array's float32 values to: it is rounded on the way then, where the processor has
            instructions for that, and less is copied. The numbers in the memory are not the array's then, but round to the same.
    """

    def __init__(self, device: Device, memory: Any, rounds: InputRounding | None = None) -> None:
        self._device, self._memory, self._rounds = device, memory, rounds

    @functools.cached_property
    def _staged(self) -> npt.NDArray[np.uint8] | None:
        """Page-locked memory of the same size, taken when there is an array to stage; None where the host has not so much."""
        try:
            return self._device.mapped_memory(self._memory.nbytes)[0]
        except UnavailableError:
            return None

    def send(self, array: npt.NDArray[Any], stream: Any, begin: int = 0) -> None:
        """Queue the copy of an array, to the memory from a byte on.

        The array may change when this returns; one in page-locked memory must neither change nor go before the copy is done.
        What is sent to the same bytes again is right, whether the copy before has been made or not.

        Args:
            array: Of any layout.
            stream: Where the copy is queued; the same one each time.
            begin: Byte of the memory.
        """
        contiguous = np.ascontiguousarray(array)
        if array.nbytes < _LEAST or not self._stage(contiguous, stream, begin):
            self._device.send(contiguous, self._memory, stream, begin)

    def _stage(self, array: npt.NDArray[Any], stream: Any, begin: int) -> bool:
        """Queue it by way of page-locked memory; False where that cannot be had, another upload goes on, or it lies there."""
        part, queue, helpers = _part(), self._device.queue_copy, _helpers()
        if part is None or not (queue and helpers) or self._device.is_pinned(array) or self._staged is None:
            return False
        memory, count, form, scale, widen = self._memory, array.nbytes, "", 1.0, None
        if self._rounds is not None and part.makes(str(self._rounds.dtype)):
            memory, widen = self._rounded
            count, form, scale = array.size, str(self._rounds.dtype), self._rounds.scale
        staged, target = self._staged.ctypes.data + begin, int(memory.data.ptr) + begin
        code = part.upload(array.ctypes.data, staged, target, count, form, scale, queue, int(stream.ptr), helpers)
        if code == _BUSY:
            return False
        if code:
            raise ExecutionError(f"engine 'cuda': CUDA's driver refuses a copy to the GPU, with code {code}", code=code)
        if widen is not None:
            widen(stream)
        return True

    @functools.cached_property
    def _rounded(self) -> tuple[Any, Launch]:
        """Memory of the device for rounded values, and what makes float32 of them."""
        assert self._rounds is not None
        values, count = self._memory.reshape(-1), int(self._memory.size)
        rounded = self._device.upload(np.zeros(count, self._rounds.dtype.numpy))
        x, y = (Tensor(array, linear((count,), DType.of(array)), array) for array in (rounded, values))
        launch = reformat(self._device, x.format, y.format, x_scale=self._rounds.scale)
        return rounded, lambda stream: launch(x, y, stream)


_part = functools.cache(native.compiled)


@functools.cache
def _helpers() -> int:
    """Threads beside the caller: as the environment says, or one for each three cores that this process may use.

    Raises:
        UsageError: `COPY_THREADS` is not a whole number.
    """
    try:
        given = os.environ.get(COPY_THREADS)
        return IntRange(0, _MOST).read(given) if given else min(_MOST_HELPERS, len(os.sched_getaffinity(0)) // 3)
    except ValueError as error:
        raise UsageError(f"{COPY_THREADS}, an environment variable: {error}") from None
