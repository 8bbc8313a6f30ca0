"""Recognize errors caused by a full disk, and explain them."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

__all__ = ["is_disk_full", "tell_full_disk"]

_FULL = 1 << 20  # bytes that are left on a disk that is called full


def is_disk_full(error: BaseException | None, path: Path) -> bool:
    """Whether an error, or one of its causes, reports a full disk; or the disk of a path is full."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return shutil.disk_usage(path).free < _FULL


def tell_full_disk(what: str, path: Path) -> str:
    """The message that something failed since the disk of a path is full."""
    free = shutil.disk_usage(path).free
    return (
        f"{what}: the disk of {path} is full ({free:,} bytes are free now that what was half written is removed). "
        "The outputs of the run before are as they were.\n"
        "Do: free space, and run the pipeline again; steps that are done stay done"
    )
