"""Set the stack of a thread's signal handlers (sigaltstack)."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["keeping_signal_stack", "new_signal_stack"]

_DISABLED = 2  # SS_DISABLE
_BYTES = 1 << 17
_kept = list[object]()


class _Stack(ctypes.Structure):
    """``stack_t`` of Linux, for ctypes."""

    _fields_ = (("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@contextmanager
def keeping_signal_stack() -> Iterator[None]:
    """Restore this thread's alternate signal stack after the block.

    OpenVINO's CPU plugin gives the thread that loads it a stack of its own, large enough for AMX's registers, and frees it
    with the last model. Where another thread does that, the first one keeps the freed memory, and the next signal for which
    Python has a handler ends the process, Ctrl-C for one.
    """
    if sys.platform != "linux":
        yield
        return
    libc, before = ctypes.CDLL(None), _Stack()
    is_saved = libc.sigaltstack(None, ctypes.byref(before)) == 0
    try:
        yield
    finally:
        if is_saved and libc.sigaltstack(ctypes.byref(before), None):  # refused where AMX's registers do not fit on it
            libc.sigaltstack(ctypes.byref(_Stack(None, _DISABLED, 0)), None)


def new_signal_stack() -> None:
    """Give this thread a new alternate signal stack, which is never freed."""
    if sys.platform == "linux":
        memory = ctypes.create_string_buffer(_BYTES)
        stack = _Stack(ctypes.addressof(memory), 0, _BYTES)
        if ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0:
            _kept.append(memory)
