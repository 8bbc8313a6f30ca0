"""Settings that clients change at run time, shared by all CPU processes as JSON in anonymous memory."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from ...errors import RequestError
from .anonymous_memory import anonymous_memory

__all__ = ["SharedSettings"]

_HEAD = struct.Struct("<QQ")  # number of the document, bytes of it
_HALF = 1 << 20  # two documents in turn: the one that is valid is never written to
_START = 4096
_HOLDS = _START + 2 * _HALF  # where bytes begin that stand for names; they are locked, and not there


class SharedSettings:
    """A JSON object that several processes read and change.

    Args:
        descriptor: Of memory that `create` made; None: new memory, for this process alone.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = self.create() if descriptor is None else descriptor
        self._number = -1
        self._holds: Counter[str] = Counter()
        self._known: dict[str, Any] = {}

    @staticmethod
    def create() -> int:
        """Create an empty document; returns its descriptor, to be passed to other processes."""
        return anonymous_memory("pytrt-board", _START + 2 * _HALF)

    def read(self) -> dict[str, Any]:
        """The document; it must not be changed."""
        number, size = _HEAD.unpack(os.pread(self._descriptor, _HEAD.size, 0))
        while number != self._number:
            data = os.pread(self._descriptor, size, _START + number % 2 * _HALF)
            before, (number, size) = number, _HEAD.unpack(os.pread(self._descriptor, _HEAD.size, 0))
            if number == before:  # else two changes have passed meanwhile, and the half may be written
                self._known, self._number = json.loads(data or b"{}"), number
        return self._known

    def change(self, how: Callable[[dict[str, Any]], None]) -> None:
        """Change the document: ``how`` gets a copy of it. One process at a time does so; one that dies meanwhile changes nothing.

        Raises:
            RequestError: the document is too large then; it stays as it was. And what ``how`` raises.
        """
        import fcntl  # which Windows lacks

        fcntl.lockf(self._descriptor, fcntl.LOCK_EX, _HEAD.size)
        try:
            document = json.loads(json.dumps(self.read()))
            how(document)
            data, number = json.dumps(document).encode(), self._number + 1
            if len(data) > _HALF:
                raise RequestError("what clients have set takes more than 1 MiB", status=413)
            os.pwrite(self._descriptor, data, _START + number % 2 * _HALF)
            os.pwrite(self._descriptor, _HEAD.pack(number, len(data)), 0)
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, _HEAD.size)

    def hold(self, name: str) -> None:
        """Say that something of this name is in use, until as many calls of `release`, or the end of this process."""
        self._holds[name] += 1
        if self._holds[name] == 1:
            self._lock("LOCK_SH", name)

    def release(self, name: str) -> None:
        """Take back one `hold`."""
        self._holds[name] -= 1
        if not self._holds[name]:
            del self._holds[name]
            self._lock("LOCK_UN", name)

    def is_held(self, name: str) -> bool:
        """Whether a process has marked a name as in use."""
        if name in self._holds:
            return True
        try:
            self._lock("LOCK_EX", name)
        except OSError:
            return True
        self._lock("LOCK_UN", name)
        return False

    def _lock(self, kind: str, name: str) -> None:
        """Lock or unlock a byte that stands for a name, without waiting; the kernel unlocks it if this process dies."""
        import fcntl  # as above

        operation = getattr(fcntl, kind) | (fcntl.LOCK_NB if kind == "LOCK_EX" else 0)
        fcntl.lockf(self._descriptor, operation, 1, _HOLDS + zlib.crc32(name.encode()))

    def close(self) -> None:
        """Release the memory, once no other process has it."""
        os.close(self._descriptor)
