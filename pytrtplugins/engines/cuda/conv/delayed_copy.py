"""A delayed copy that exposes kernels which read an input before it is written; used while kernels are timed."""

from __future__ import annotations

import ctypes
from typing import Any

from ....cuda.driver import Launch, kernel_fields
from ..device.source import load_kernel

__all__ = ["DelayedCopy"]

_CYCLES = 100_000  # some 60 µs: longer than a kernel needs to begin and to read all that it does not wait for
_BLOCKS, _THREADS = 64, 256


class _Args(ctypes.Structure):
    _fields_ = kernel_fields(pointers="source target", longs="bytes")


class DelayedCopy:
    """Copies that end long after the next kernel may begin under programmatic dependent launch.

    A kernel that begins early and does not wait reads what was there before. In a network that shows now and then;
    behind such a copy it shows always.

    Args:
        capability: The GPU's compute capability, 90 for 9.0; below that no kernel begins early.
    """

    def __init__(self, capability: int) -> None:
        self._programmatic_launch = capability >= 90
        self._function = load_kernel("late_copy.cu", {"CYCLES": _CYCLES}, capability)

    def queue(self, source: Any, target: Any, stream: Any) -> None:
        """Queue a copy of an array to another one of its size; both begin at multiples of 16 bytes."""
        arguments = _Args(source=source.data.ptr, target=target.data.ptr, bytes=source.nbytes)
        Launch(self._function, _BLOCKS, _THREADS, [arguments], programmatic_launch=self._programmatic_launch)(
            int(stream.ptr)
        )
