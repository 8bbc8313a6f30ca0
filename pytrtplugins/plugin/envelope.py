"""The frame around serialized bytes: magic, format version, length, checksum (docs/reference/format.md)."""

from __future__ import annotations

import struct
import zlib

from ..errors import SerializationError

__all__ = ["unwrap", "wrap"]

_HEADER = struct.Struct("<4sHHQ")  # magic, format version, zero, length of the payload
_MAGIC, _FORMAT = b"PTRP", 1


def wrap(payload: bytes) -> bytes:
    """Put a header before a payload and a checksum of both after it."""
    data = _HEADER.pack(_MAGIC, _FORMAT, 0, len(payload)) + payload
    return data + struct.pack("<I", zlib.crc32(data))


def unwrap(data: bytes, owner: str) -> bytes:
    """Check that data are exactly one frame, and give the payload; ``owner`` reads it, for messages.

    Raises:
        SerializationError: the data is not a frame, of another format version, cut short, too long or damaged.
    """
    smallest = _HEADER.size + 4
    if len(data) < smallest:
        raise SerializationError(
            f"{owner}: {len(data)} bytes are too few for a serialized plugin ({smallest} at least)"
        )
    magic, version, _, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise SerializationError(
            f"{owner}: the data does not start with {_MAGIC!r}, found {magic!r}: it is not a serialized plugin"
        )
    if version != _FORMAT:
        raise SerializationError(
            f"{owner}: format version {version}, expected {_FORMAT}.\nDo: build the engine file again.", found=version
        )
    if length != len(data) - smallest:
        raise SerializationError(
            f"{owner}: the header says {length} bytes, found {len(data) - smallest}", expected=length
        )
    if zlib.crc32(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
        raise SerializationError(f"{owner}: the checksum is wrong: the data is damaged")
    return data[_HEADER.size : -4]
