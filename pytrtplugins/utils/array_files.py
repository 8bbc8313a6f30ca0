"""Read array files (.npy and .npz): a header is compared with its contents before memory is allocated."""

from __future__ import annotations

import io
import math
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from .files import open_regular
from .inside import Failure
from .text_formats import shorten

__all__ = ["MAX_BYTES", "read_npy", "read_npz"]

MAX_BYTES = 1 << 30
"""Memory that the arrays of one file may take."""

_KINDS = "biufc"  # of NumPy's dtypes: numbers
_MAX_HEADER = 10_000  # characters; NumPy's own limit for files that are not trusted
_MAX_ARRAYS = 10_000
_Found = TypeVar("_Found")
_MAX_RATIO = 1040  # deflate makes 1,032 bytes of one at most
_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npy(path: str | Path, *, max_bytes: int = MAX_BYTES) -> npt.NDArray[Any]:
    """Read the array of a .npy file that `numpy.save` wrote: numbers, and no more than ``max_bytes`` of memory.

    Raises:
        FormatError: it is no such file, is damaged, or too large; with ``.path``.
    """
    return _read(path, "npy", _array, max_bytes, FormatError)


def read_npz(
    path: str | Path,
    *,
    max_bytes: int = MAX_BYTES,
    error: Failure = FormatError,
    within: str | Path | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of a .npz file by their names: numbers, and no more than ``max_bytes`` of memory in all.

    ``within`` is that of `open_regular`.

    Raises:
        PytrtpluginsError: it is no such file, is damaged, or too large; as ``error`` makes it, with ``.path``.
    """
    return _read(path, "npz", _members, max_bytes, error, within)


class _Refused(ValueError):
    """The file has something that an array file must not have."""


def _read(
    path: str | Path,
    kind: str,
    reader: Callable[[BinaryIO, int, int], _Found],
    max_bytes: int,
    error: Failure,
    within: str | Path | None = None,
) -> _Found:
    """Open a regular file and read it with ``reader(file, size, max_bytes)``; an error names the path."""
    with open_regular(path, error=error, within=within) as file:
        try:
            return reader(file, os.fstat(file.fileno()).st_size, max_bytes)
        except _Refused as problem:
            raise error(f"{path}: not a .{kind} file that can be used: {problem}.", path=path) from problem


def _members(file: BinaryIO, size: int, max_bytes: int) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a .npz file by name."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            _check_entries(entries, size, max_bytes)
            for entry in entries:
                with archive.open(entry) as member:
                    arrays[entry.filename[: -len(".npy")]] = _array(cast(BinaryIO, member), entry.file_size, max_bytes)
                    member.read(1)  # its end, where the checksum is compared
    except _Refused:
        raise
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        ValueError,
        RuntimeError,
        LookupError,
        OverflowError,
    ) as error:
        raise _Refused(str(error)[:200] or type(error).__name__) from error
    return arrays


def _check_entries(entries: list[zipfile.ZipInfo], size: int, max_bytes: int) -> None:
    """Refuse an archive whose directory is damaged or claims too many bytes, before anything is unpacked."""
    names = [entry.filename for entry in entries]
    claimed_bytes, compressed_bytes = (
        sum(entry.file_size for entry in entries),
        sum(entry.compress_size for entry in entries),
    )
    if not entries or len(entries) > _MAX_ARRAYS or len(set(names)) < len(names):
        raise _Refused(f"expected 1 to {_MAX_ARRAYS:,} arrays of different names, found {len(names):,}")
    if claimed_bytes > max_bytes:
        raise _Refused(f"its arrays take {claimed_bytes:,} bytes of memory; the limit is {max_bytes:,}")
    if compressed_bytes > size:
        raise _Refused(f"its entries claim {compressed_bytes:,} bytes of a file of {size:,}")
    for entry in entries:
        if not entry.filename.endswith(".npy"):
            raise _Refused(f"the entry {shorten(entry.filename)} is not a .npy file")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or entry.flag_bits & 1:
            raise _Refused(
                f"the entry {shorten(entry.filename)} is encrypted, or compressed in a way that NumPy does not use"
            )
        if entry.file_size > max(1, entry.compress_size) * _MAX_RATIO:
            raise _Refused(
                f"the entry {shorten(entry.filename)} claims {entry.file_size:,} bytes, more than its {entry.compress_size:,} can hold"
            )


def _array(file: BinaryIO, size: int, max_bytes: int) -> npt.NDArray[Any]:
    """Read the array of a .npy file of ``size`` bytes; every byte is accounted for."""
    shape, dtype, header = _header(file)
    count = math.prod(shape)
    data_bytes = size - header
    if count * dtype.itemsize > max_bytes:
        raise _Refused(f"an array of {dtype}{shorten(shape)} takes more than {max_bytes:,} bytes, which is the limit")
    if count * dtype.itemsize != data_bytes:
        raise _Refused(
            f"an array of {dtype}{shorten(shape)} needs {count * dtype.itemsize:,} bytes, found {data_bytes:,}"
        )
    file.seek(0)
    try:
        array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False, max_header_size=_MAX_HEADER)
    except ValueError as error:
        raise _Refused(f"the file ends within its array ({error})") from error
    return array


def _header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Read the header of a .npy file: shape, dtype, and the header's length in bytes."""
    try:
        magic = file.read(8)
        version = np.lib.format.read_magic(io.BytesIO(magic))
        if version not in _READERS:
            raise _Refused(f"version {version[0]}.{version[1]} of the format is not known")
        length_bytes = 2 if version == (1, 0) else 4
        length = file.read(length_bytes)
        if int.from_bytes(length, "little") > _MAX_HEADER:
            raise _Refused(f"a header of {int.from_bytes(length, 'little'):,} bytes")
        text = file.read(int.from_bytes(length, "little"))
        shape, _, dtype = _READERS[version](io.BytesIO(length + text), max_header_size=_MAX_HEADER)
    except _Refused:
        raise
    except Exception as error:  # NumPy raises SyntaxError, TokenError, MemoryError and others for damaged headers
        raise _Refused(f"its header is damaged ({type(error).__name__}: {str(error)[:100]})") from error
    if dtype.hasobject or dtype.kind not in _KINDS or dtype.names or dtype.subdtype:
        raise _Refused(f"expected numbers, found the type {shorten(str(dtype))}")
    if not all(type(dim) is int and dim >= 0 for dim in shape) or len(shape) > 32:
        raise _Refused(f"the shape {shorten(shape)}")
    return shape, dtype, len(magic) + len(length) + len(text)
