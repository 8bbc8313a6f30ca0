"""Watch files, and reload them when they change."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence

from ...errors import PytrtpluginsError

__all__ = ["watch"]

_log = logging.getLogger(__name__)
_EVERY_S = 1.0


async def watch(files: Sequence[str], reload: Callable[[], object], every_s: float = _EVERY_S) -> None:
    """Call ``reload`` whenever one of the files has changed, until this task is cancelled; its errors are logged."""
    seen = _state(files)
    while True:
        await asyncio.sleep(every_s)
        now = _state(files)
        if now != seen:
            seen = now
            try:
                reload()
            except PytrtpluginsError as error:
                _log.error("%s; what was read before stays in use", error)
            else:
                _log.info("%s: read anew", ", ".join(files))


def _state(files: Sequence[str]) -> list[tuple[int, int, int] | None]:
    """Modification time, size and inode of each file, None if it is missing."""
    states: list[tuple[int, int, int] | None] = []
    for path in files:
        try:
            status = os.stat(path)
        except OSError:
            states.append(None)
        else:
            states.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return states
