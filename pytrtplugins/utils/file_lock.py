"""Locks on open files and folders between processes; the operating system frees them when a process ends."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

if sys.platform != "win32":
    import fcntl

__all__ = ["held_lock", "take_lock"]

_NONE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems without locks say."""


def take_lock(handle: int, *, shared: bool = False, wait: bool = True) -> bool:
    """Lock an open file or folder until it is closed.

    Args:
        handle: Its descriptor.
        shared: Others may hold it at the same time, if they share it, too.
        wait: Wait for who holds it.

    Returns:
        False: another holds it, and ``wait`` is off. Windows and file systems without locks always give True.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NONE:
                raise
    return True


@contextmanager
def held_lock(handle: int, *, shared: bool = False, wait: bool = True) -> Iterator[bool]:
    """Lock an open file or folder for the block, which gets what `take_lock` returns, and close it at the end."""
    try:
        yield take_lock(handle, shared=shared, wait=wait)
    finally:
        os.close(handle)
