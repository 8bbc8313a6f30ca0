"""Read and write numbers and texts in serialized bytes (docs/reference/format.md)."""

from __future__ import annotations

import struct
from typing import Any

from ..errors import SerializationError

__all__ = ["Reader", "pack_text"]


def pack_text(text: str) -> bytes:
    """A text as `Reader.text` reads it: 32-bit length, then UTF-8."""
    data = text.encode()
    return struct.pack("<I", len(data)) + data


class Reader:
    """Reads little-endian data sequentially, and never past its end."""

    def __init__(self, data: bytes, owner: str) -> None:
        self.data, self.owner, self.offset = data, owner, 0

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        bytes_left = len(self.data) - self.offset
        if count > bytes_left:
            raise SerializationError(
                f"{self.owner}: the data ends early: {count} bytes expected at offset {self.offset}, {bytes_left} left",
                offset=self.offset,
            )
        self.offset += count
        return self.data[self.offset - count : self.offset]

    def unpack(self, layout: str) -> tuple[Any, ...]:
        """The next values, by a `struct` layout."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def text(self) -> str:
        """The next text: 32-bit length, then UTF-8."""
        data = self.take(self.unpack("<I")[0])
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            offset = self.offset - len(data)
            raise SerializationError(f"{self.owner}: text at offset {offset} is not UTF-8", offset=offset) from error

    def finish(self) -> None:
        """Require that nothing is left."""
        if self.offset != len(self.data):
            raise SerializationError(
                f"{self.owner}: {len(self.data) - self.offset} bytes are left over", offset=self.offset
            )
