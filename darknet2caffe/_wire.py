"""The few bytes of protobuf's wire format that are written by hand, so that large arrays need not pass through it."""

from __future__ import annotations

__all__ = ["length_delimited"]


def length_delimited(number: int, size: int) -> bytes:
    """Tag and length of a field of bytes (protobuf.dev/programming-guides/encoding); ``size`` bytes follow it."""
    return _varint(number << 3 | 2) + _varint(size)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])
