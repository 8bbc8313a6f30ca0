"""Settings of Python's garbage collector and of the C library's allocator."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collect_and_freeze", "no_collection", "refreeze", "reuse_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt's names of them
_KEPT, _LARGE = 16 << 20, 4 << 20  # bytes


def reuse_memory() -> None:
    """Let the C library keep up to 16 MiB of freed memory for later allocations.

    glibc gives the memory of a few photos back at once, and asks for it again with the next ones: then the kernel clears each page anew,
    which takes longer than all copies of a photo. Nothing is done where the user has set ``MALLOC_...``, or where the C library is another.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ) or os.name != "posix":
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, _LARGE)  # what is larger is given back as before
        set_option(_TRIM_THRESHOLD, _KEPT)


def collect_and_freeze() -> None:
    """Collect garbage, then exclude all present objects from later collections (`gc.freeze`).

    A collection visits all objects while all threads wait: 0.1 s for those of the libraries that a server imports. Objects are still freed
    when their last reference goes.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def refreeze() -> None:
    """Call `collect_and_freeze` again, if it was called before: frozen objects may have become garbage since."""
    if gc.get_freeze_count():
        collect_and_freeze()


@contextmanager
def no_collection() -> Iterator[None]:
    """Turn the garbage collector off within it, and on again if it was on; for work of seconds that makes many objects and drops few.

    The collector looks at all objects of the process, again and again while their number grows; docs/lab/benchmarks.md says what that
    took.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
