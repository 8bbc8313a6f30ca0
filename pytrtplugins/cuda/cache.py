"""The disk cache of results that take long to compute: compiled kernels, each compiled once per machine."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ..errors import FormatError, UsageError
from ..utils.atomic import atomic_path
from ..utils.files import open_regular, sha256_hex
from ..utils.forks import call_after_fork
from ..utils.numbers import IntRange

__all__ = ["CACHE_MIB", "cache_folder", "cached_bytes", "cached_file", "compiling", "user_cache"]

CACHE_MIB = "PYTRT_CACHE_MIB"
"""Environment variable: most MiB of compiled kernels that stay on disk; 1024 without it."""

_DIGEST_BYTES = 32  # of the SHA-256 at an entry's end, behind what loaders of libraries and programs read
_IN_USE_S = 60  # an entry that was read or written so lately may be about to be opened by its path
_SHARE = 8  # a process writes this part of what is free before it looks at the folder again: others write there too
_ROOM = 16  # where entries go, this part of the limit becomes free
_ENTRY = re.compile(r"[0-9a-f]{40}\.\w+")  # temporary files have other names
_log = logging.getLogger(__name__)
_locks: dict[Path, threading.Lock] = {}
_compiling: set[Path] = set()
_spare: dict[
    tuple[Path, int], int
] = {}  # bytes that may be written to a folder with a limit before it is looked at again
call_after_fork(_locks.clear)  # threads of the parent hold them, and go on there
call_after_fork(_compiling.clear)


def compiling() -> bool:
    """Whether a thread of this process waits for a compiler."""
    return bool(_compiling)


def user_cache() -> Path:
    """The folder of this package in the user's cache, which need not be there, or to be written."""
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(given) if given else Path.home() / ".cache") / "pytrtplugins"
    except RuntimeError:  # neither HOME nor the list of users knows a home
        return Path(os.devnull) / "pytrtplugins"


@functools.cache
def cache_folder(kind: str = "kernels") -> Path:
    """A folder of the user's cache, or one of this process where that cannot be written."""
    folder = user_cache() / kind
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        _log.warning("%s cannot be written (%s): what is kept there is made again by every process", folder, error)
        return Path(tempfile.mkdtemp(prefix=f"pytrtplugins-{kind}-"))


def cached_file(parts: Iterable[str], suffix: str, compile_to: Callable[[Path], None]) -> Path:
    """The file that ``compile_to`` writes for these parts; made only where the cache lacks it, by one thread.

    Its SHA-256 follows the contents: a damaged entry is made again. The entries that were used least recently are removed when
    a new one makes all larger than the limit.

    Args:
        parts: All that the result depends on: source, options, architecture, compiler and its version.
        suffix: Of the file's name, ``".so"``.
        compile_to: Writes the file at the path that it gets.

    Raises:
        UsageError: `CACHE_MIB` is not a whole number.
    """
    return _entry(parts, suffix, compile_to)[0]


def cached_bytes(parts: Iterable[str], suffix: str, make: Callable[[], bytes]) -> bytes:
    """What ``make`` returns for these parts; otherwise as `cached_file`."""
    return _entry(parts, suffix, lambda path: path.write_bytes(make()))[1]


def _entry(parts: Iterable[str], suffix: str, compile_to: Callable[[Path], object]) -> tuple[Path, bytes]:
    digest = sha256_hex("\0".join(parts).encode())[:40]
    path = cache_folder() / f"{digest}{suffix}"
    if (contents := _read(path)) is None:
        with _locks.setdefault(path, threading.Lock()):
            if (contents := _read(path)) is None:
                contents = _make(path, compile_to)
    return path, contents


def _make(path: Path, compile_to: Callable[[Path], object]) -> bytes:
    limit = _limit_bytes()
    _compiling.add(path)
    try:
        with atomic_path(path, within=path.parent) as temporary:
            compile_to(temporary)
            contents = temporary.read_bytes()
            with temporary.open("ab") as file:
                file.write(hashlib.sha256(contents).digest())
    finally:
        _compiling.discard(path)
    folder = path.parent, limit
    _spare[folder] = _spare.get(folder, 0) - len(contents) - _DIGEST_BYTES
    if _spare[folder] < 0:  # to look at thousands of entries takes longer than to compile some kernels
        _spare[folder] = (limit - _evict(*folder)) // _SHARE
    return contents


def _read(path: Path) -> bytes | None:
    """An entry's contents, which counts as a use; None where it is missing or damaged."""
    try:
        with open_regular(path, within=path.parent) as file:
            data = file.read()
            times = time.time_ns(), os.fstat(file.fileno()).st_mtime_ns
            os.utime(
                file.fileno() if os.utime in os.supports_fd else path, ns=times
            )  # where reading alone does not count as access
    except (OSError, FormatError):
        return None
    contents, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    return contents if hashlib.sha256(contents).digest() == digest else None


def _limit_bytes() -> int:
    try:
        return IntRange(0, 1 << 20).read(os.environ.get(CACHE_MIB) or "1024") << 20
    except ValueError as error:
        raise UsageError(f"{CACHE_MIB}, an environment variable: {error}") from None


def _evict(folder: Path, limit: int) -> int:
    """Remove the least recently used entries where all exceed the limit, and give the bytes left; several processes may do so at once."""
    entries = []
    with os.scandir(folder) as found:
        for entry in found:
            with contextlib.suppress(FileNotFoundError):  # another process has removed it
                if _ENTRY.fullmatch(entry.name):
                    status = entry.stat(follow_symlinks=False)
                    entries.append((status.st_atime, status.st_size, entry.path))
    total, newest = sum(size for _, size, _ in entries), time.time() - _IN_USE_S
    if total <= limit:
        return total
    for used, size, path in sorted(entries):
        if total <= limit - limit // _ROOM or used > newest:
            break
        total -= size
        with contextlib.suppress(OSError):  # it is gone, or open on Windows
            os.unlink(path)
    return total
