"""Limit open files, including connections, by RLIMIT_NOFILE."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace

from ...errors import UsageError
from ..model.spec import Limits

__all__ = ["limit_connections_to_files"]

_log = logging.getLogger(__name__)
_OTHERS = 200  # files that are no connections of clients: engines, streams between processes, libraries
_FEWEST = 16


def limit_connections_to_files(limits: Limits, protocols: int = 1) -> Limits:
    """The limits, with no more connections than files may be open; the process's own limit is raised as far as it may be.

    Raises:
        UsageError: hardly anybody could connect.
    """
    try:
        import resource
    except ImportError:  # Windows
        return limits
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = protocols * limits.connections + _OTHERS
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return limits
    room = (soft - _OTHERS) // protocols
    if room < _FEWEST:
        raise UsageError(
            f"a process of this user may open {soft} files, too few for a server: expected {_OTHERS + _FEWEST} at least.\n"
            f"Do: ulimit -n {needed}, then the command again"
        )
    _log.warning("%d connections for each process, not %d: `ulimit -n` allows %d files", room, limits.connections, soft)
    return replace(limits, connections=room)
