"""Decompress request bodies while they arrive."""

from __future__ import annotations

import gzip
import io
import os
import time
import zlib

from ...errors import RequestError
from ...utils.text_formats import shorten

__all__ = ["Inflater", "too_large"]

_WINDOW_BITS = {b"gzip": 31, b"deflate": 15}
_READ, _WRITTEN = 16 << 10, 128 << 10
_TURN_S = 0.5e-3  # of CPU; after each piece would make large bodies take four times as long where CPUs are short
_SMALL, _GROWTH = 4 << 20, 4  # bytes, and times as many as were sent
_MEMBER, _MOST_MEMBERS = b"\x1f\x8b", 1000
"""How a part of gzip data begins, of which there may be several behind each other, and most of them: zlib copies what is behind each."""
_yield = os.sched_yield if hasattr(os, "sched_yield") else lambda: time.sleep(0)  # for Windows


class Inflater:
    """Decompresses a body that arrives in parts.

    What comes out is kept, unless it grows as a bomb does: then it is only counted until the body is whole, and decompressed again, into
    memory of its size and without Python's lock. To fill new memory piece by piece takes longer than to decompress zeros, and all other
    threads wait meanwhile.

    The CPU is offered to others again and again: a thread that is woken on this CPU would else wait until the kernel's next tick, 4 ms at
    250 Hz, even while another CPU is idle.

    Args:
        coding: The form of compression, as a header names it.
        most: Bytes that the body may have, compressed and decompressed.

    Raises:
        RequestError: the form is unknown (415).
    """

    def __init__(self, coding: bytes, most: int) -> None:
        bits = _WINDOW_BITS.get(coding.lower())
        if bits is None:
            raise RequestError(
                f"Unsupported compression type: the Content-Encoding is {shorten(coding.decode(errors='replace'), 40)}; "
                "send the body as gzip, as deflate or as it is",
                status=415,
            )
        self._coding, self._bits, self._most = coding.decode(), bits, most
        self._stream = zlib.decompressobj(bits)
        self._given, self._size = io.BytesIO(), 0
        self._made: io.BytesIO | None = io.BytesIO()
        self._members = 1
        self._turn = 0.0

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return self._given.tell() + (0 if self._made is None else self._made.tell())

    def write(self, data: bytes) -> None:
        """Take a part of the body.

        Raises:
            RequestError: it becomes too large (413), is damaged, or has something behind its end. No further part can change that.
        """
        self._given.write(data)
        self._turn = time.thread_time()  # parts may come to different threads
        try:
            for start in range(0, len(data), _READ):  # piece by piece: zlib lets other threads run while it works
                piece = data[start : start + _READ]
                while piece:
                    if self._stream.eof:
                        self._begin_member(piece)
                    self._inflate(piece)
                    piece = self._stream.unused_data
        except zlib.error as error:
            raise RequestError(f"the body is not valid {self._coding} data: {error}") from None
        if self._given.tell() > self._most:
            raise too_large(self._most)

    def end(self) -> bytes:
        """The decompressed body, after all parts have arrived.

        Raises:
            RequestError: it ends too early.
        """
        if not self._stream.eof:
            raise RequestError(f"the body is incomplete {self._coding} data")
        if self._made is not None:
            return self._made.getvalue()
        if self._members > 1:
            return gzip.decompress(self._given.getbuffer())
        return zlib.decompress(self._given.getbuffer(), self._bits, self._size)

    def _begin_member(self, data: bytes) -> None:
        if self._coding.lower() != "gzip" or not _MEMBER.startswith(data[: len(_MEMBER)]):
            raise self._behind()
        self._members += 1
        if self._members > _MOST_MEMBERS:
            raise RequestError(f"the body has more than {_MOST_MEMBERS:,} parts of gzip data")
        self._stream = zlib.decompressobj(self._bits)

    def _inflate(self, piece: bytes) -> None:
        part = b""
        while piece or len(part) == _WRITTEN:
            part = self._stream.decompress(piece, _WRITTEN)
            piece = (
                b"" if self._stream.eof else self._stream.unconsumed_tail
            )  # at the end it may hold what is in unused_data
            self._size += len(part)
            if self._size > self._most:
                raise too_large(self._most)
            if self._size > _SMALL + _GROWTH * self._given.tell():
                self._made = None
            elif self._made is not None:
                self._made.write(part)
            if time.thread_time() - self._turn > _TURN_S:
                _yield()
                self._turn = time.thread_time()

    def _behind(self) -> RequestError:
        return RequestError(f"the body has something behind the end of its {self._coding} data")


def too_large(most: int) -> RequestError:
    """A body has more bytes than it may have."""
    return RequestError(
        f"request size exceeds the maximum allowed value of {most} bytes. Use --body-limit to increase the limit.",
        status=413,
    )
