"""Read regular files of limited size; `pytrtplugins.utils.atomic` writes them."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from ..errors import FormatError, PytrtpluginsError
from .file_lock import held_lock
from .inside import Failure, kind_text, open_inside

__all__ = [
    "check_path",
    "files_below",
    "list_files",
    "locked_folder",
    "open_regular",
    "read_regular",
    "read_stdin",
    "regular_size",
    "sha256_hex",
]

_SHOWN = 60  # characters of a path that is too long, in a message
_BINARY = getattr(os, "O_BINARY", 0)


def check_path(path: str | Path, *, error: Failure = FormatError) -> None:
    """Refuse a path that no file can have here: one that is too long, has a name that is, or characters that names cannot have."""
    problem = ""
    try:
        os.stat(path)
    except ValueError as cause:  # a NUL, or half of a surrogate pair
        problem = str(cause)[:200]
    except OSError as cause:
        if cause.errno == errno.ENAMETOOLONG:
            names = os.fsencode(path).split(os.fsencode(os.sep))
            longest = max(map(len, names))
            problem = f"{sum(map(len, names)) + len(names) - 1:,} bytes, of which a name has {longest:,}, are more than this system takes"
    if problem:
        text = str(path)
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise error(f"{shown!a}: not the path of a file: {problem}.\nDo: give another path", path=path)


def files_below(folder: Path, suffixes: Collection[str], *, recursive: bool = True) -> tuple[list[Path], int]:
    """The files in a folder, and in its subfolders, whose names end so, in whichever case, and how many others there are."""
    files = list_files(folder, recursive=recursive)
    matches = [path for path in files if path.suffix.lower() in suffixes]
    return sorted(matches), len(files) - len(matches)


def list_files(folder: Path, *, recursive: bool = True, error: Failure = FormatError) -> list[Path]:
    """The files in a folder, and in its subfolders; links are followed to files, not to folders.

    Raises:
        PytrtpluginsError: paths in it are too long; as ``error`` makes it, with ``.path``.
    """
    try:
        return [path for path in (folder.rglob("*") if recursive else folder.iterdir()) if path.is_file()]
    except OSError as cause:
        if cause.errno != errno.ENAMETOOLONG:
            raise
        raise error(
            f"{folder}: it holds files whose paths are longer than this system takes.\nDo: move it to a place with a shorter path",
            path=folder,
        ) from cause


def open_regular(path: str | Path, *, error: Failure = FormatError, within: str | Path | None = None) -> BufferedReader:
    """Open a regular file for reading. A FIFO or a device, which may never end, is refused without waiting for it; links are followed.

    Args:
        path: Of the file.
        error: Makes the errors.
        within: A folder above the file that may come from somebody else: nothing below it is reached through a link.

    Raises:
        OSError: there is no such file, it is a folder, or it cannot be opened.
    """
    check_path(path, error=error)
    if within is not None:
        root = within
        return open(path, "rb", opener=lambda _, flags: open_inside(path, flags, within=root, error=error))
    _check_regular(path, os.stat(path).st_mode, error)
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115  # the caller closes it
    try:
        _check_regular(path, os.fstat(file.fileno()).st_mode, error)  # nobody has put another in its place
    except PytrtpluginsError:
        file.close()
        raise
    return file


def read_regular(
    path: str | Path, max_bytes: int, *, error: Failure = FormatError, within: str | Path | None = None
) -> bytes:
    """Read a regular file; a larger one than ``max_bytes`` is refused before it is read. ``within`` is that of `open_regular`.

    Raises:
        OSError: there is no such file, it is a folder, or it cannot be read.
    """
    with open_regular(path, error=error, within=within) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(size + 1) if size <= max_bytes else b""
        if len(data) > size:  # it grows, or tells no size, as files of /proc
            data += file.read(max_bytes + 1 - len(data))
    if size > max_bytes or len(data) > max_bytes:
        raise error(f"{path}: expected at most {max_bytes:,} bytes, found {max(size, len(data)):,}.", path=path)
    return data


def regular_size(path: str | Path, *, within: str | Path) -> int:
    """Bytes of a regular file below a folder; see `open_regular`."""
    with open_regular(path, within=within) as file:
        return os.fstat(file.fileno()).st_size


def read_stdin(max_bytes: int, *, error: Failure = FormatError) -> bytes:
    """Read all of standard input, which a user names ``-``.

    Raises:
        PytrtpluginsError: it has more than ``max_bytes``; as ``error`` makes it.
    """
    data = sys.stdin.buffer.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise error(f"standard input: expected at most {max_bytes:,} bytes, found more.", path=Path("-"))
    return data


def sha256_hex(source: bytes | str | Path, *, within: str | Path | None = None) -> str:
    """SHA-256 of bytes, or of a regular file's contents, as 64 hex digits. ``within``: see `open_regular`."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    with open_regular(source, within=within) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked_folder(folder: str | Path, *, wait: bool = True) -> Iterator[bool]:
    """Run the block while no other process or thread runs it for this folder; yields False if another does and ``wait`` is off."""
    if sys.platform == "win32":  # it has no such locks
        yield True
        return
    with held_lock(os.open(folder, os.O_RDONLY), wait=wait) as is_held:
        yield is_held


# --- inside -----------------------------------------------------------------------------------------------------------


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))


def _check_regular(path: str | Path, mode: int, error: Failure) -> None:
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a folder raises IsADirectoryError
        raise error(f"{path}: expected a regular file, found {kind_text(mode)}.", path=path)
