"""A small body that is large when it is decompressed."""

from __future__ import annotations

import struct
import zlib
from functools import cache

_HEADER = bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255))  # deflate, no name, no time
_MIB = bytes(1 << 20)


@cache
def gzip_of_zeros(mebibytes: int = 1024) -> bytes:
    """One member of gzip that holds zeros; a block of 1 MiB is compressed once and repeated."""
    compressor = zlib.compressobj(1, wbits=-15)
    block = compressor.compress(_MIB) + compressor.flush(zlib.Z_FULL_FLUSH)
    checksum = 0
    for _ in range(mebibytes):
        checksum = zlib.crc32(_MIB, checksum)
    return _HEADER + block * mebibytes + compressor.flush() + struct.pack("<II", checksum, mebibytes << 20)
