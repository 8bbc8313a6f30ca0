"""Read and write gRPC tensor messages without copying the tensors (protobuf copies them twice).

A head is what protobuf reads and writes: all fields but the client's id and the tensors. It is mostly the same from one request to the
next, and so are answers, so that heads can be kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Parts", "answer_message", "take_apart", "within_stream"]

_ID, _RAW_INPUT, _RAW_OUTPUT, _INFER_RESPONSE = 0x1A, 0x3A, b"\x32", b"\x12"  # number << 3 | 2, as all fields here
_MOST_FIELDS = 256  # that are looked at here: each takes longer than in protobuf


class Parts(NamedTuple):
    """The parts of an inference request's bytes.

    Attributes:
        head: The fields that are not below.
        id: The client's; empty where it is in the head, or nowhere.
        raw: ``raw_input_contents``, over the message; empty where they are in the head, or nowhere.
    """

    head: bytes
    id: str
    raw: list[memoryview]


def take_apart(message: bytes) -> Parts:
    """The parts of a request; where anything is unusual, all of it is head, and protobuf has the last word."""
    head: list[bytes] = []
    raw: list[memoryview] = []
    view, name, at = memoryview(message), b"", 0
    try:
        for _ in range(_MOST_FIELDS):
            if at == len(message):
                return Parts(b"".join(head), name.decode(), raw)
            begin, tag = at, message[at]
            size, at = _read_size(message, at + 1)
            at += size
            if at > len(message) or tag & 0x87 != 2:
                break
            if tag == _RAW_INPUT:
                raw.append(view[at - size : at])
            elif tag == _ID:
                name = message[at - size : at]
            else:
                head.append(message[begin:at])
    except (IndexError, UnicodeDecodeError):
        pass
    return Parts(message, "", [])


def answer_message(head: bytes, identifier: str, raw: Iterable[bytes]) -> bytes:
    """An answer: a head, the id of its request, and ``raw_output_contents``."""
    parts = [head, *_field(bytes([_ID]), identifier.encode())] if identifier else [head]
    for tensor in raw:
        parts += _field(_RAW_OUTPUT, tensor)
    return b"".join(parts)


def within_stream(answer: bytes) -> bytes:
    """The message of a stream that has an answer."""
    return b"".join(_field(_INFER_RESPONSE, answer))


def _read_size(message: bytes, at: int) -> tuple[int, int]:
    """A size, and where what has it begins."""
    size = message[at]
    if size < 0x80:
        return size, at + 1
    size &= 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        more = message[at]
        size |= (more & 0x7F) << shift
        if more < 0x80:
            return size, at + 1
    raise IndexError


def _field(tag: bytes, data: bytes) -> tuple[bytes, bytes, bytes]:
    size, written = len(data), bytearray()
    while size >= 0x80:
        written.append(size & 0x7F | 0x80)
        size >>= 7
    written.append(size)
    return tag, bytes(written), data
