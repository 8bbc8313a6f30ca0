"""Anonymous shared memory (memfd), passed between processes by descriptor; it is freed with the last of them."""

from __future__ import annotations

import os

from ...errors import UsageError

__all__ = ["anonymous_memory"]


def anonymous_memory(name: str, size: int) -> int:
    """Create zero-filled memory of a size, and return its descriptor; pages that were never written take no memory.

    Raises:
        UsageError: a limit of the user's is too small for it.
    """
    descriptor = -1
    try:
        descriptor = os.memfd_create(name)
        os.ftruncate(descriptor, size)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise UsageError(
            f"{size:,} bytes of shared memory cannot be allocated: {error.strerror or error}; `ulimit -a` shows the limits.\n"
            "Do: ulimit -f unlimited, then the command again; or pytrt serve --local ..., which needs none"
        ) from None
    return descriptor
