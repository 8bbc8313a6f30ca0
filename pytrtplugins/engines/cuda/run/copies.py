"""Copies between arrays that are contiguous and of equal size: on the GPU, or to page-locked memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..device.device import Device

__all__ = ["copy"]


def copy(device: Device, to: Any, array: Any, stream: Any) -> None:
    """Queue a copy from an array on the GPU to another, there or page-locked."""
    runtime = device.xp.cuda.runtime
    if isinstance(to, np.ndarray):
        runtime.memcpyAsync(to.ctypes.data, array.data.ptr, to.nbytes, runtime.memcpyDeviceToHost, stream.ptr)
    else:
        runtime.memcpyAsync(to.data.ptr, array.data.ptr, to.nbytes, runtime.memcpyDeviceToDevice, stream.ptr)
