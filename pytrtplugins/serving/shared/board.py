"""What clients set at run time, known to all CPU processes at once: a small JSON document in memory without a name."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from typing import Any

from ...errors import RequestError
from .nameless import nameless_memory

__all__ = ["Board"]

_HEAD = struct.Struct("<QQ")  # number of the document, bytes of it
_HALF = 1 << 20  # two documents in turn: the one that is valid is never written to
_START = 4096


class Board:
    """A JSON object that several processes read and change.

    Args:
        descriptor: Of memory that `create` made; None: new memory, for this process alone.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = self.create() if descriptor is None else descriptor
        self._number = -1
        self._known: dict[str, Any] = {}

    @staticmethod
    def create() -> int:
        """Make an empty document; gives its descriptor, which other processes may be handed."""
        return nameless_memory("pytrt-board", _START + 2 * _HALF)

    def read(self) -> dict[str, Any]:
        """The document. Do not change it."""
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

        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            document = json.loads(json.dumps(self.read()))
            how(document)
            data, number = json.dumps(document).encode(), self._number + 1
            if len(data) > _HALF:
                raise RequestError("what clients have set takes more than 1 MiB", status=413)
            os.pwrite(self._descriptor, data, _START + number % 2 * _HALF)
            os.pwrite(self._descriptor, _HEAD.pack(number, len(data)), 0)
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Release the memory, once no other process has it."""
        os.close(self._descriptor)
