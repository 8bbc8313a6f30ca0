"""What takes long to find out, on disk: compiled kernels, each compiled once per machine."""

from __future__ import annotations

import functools
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from ..utils.files import atomic_path, sha256_hex

__all__ = ["cache_folder", "cached_file", "compiling", "user_cache"]

_log = logging.getLogger(__name__)
_locks: dict[Path, threading.Lock] = {}
_compiling: set[Path] = set()


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
    """A folder of the user's cache, or one of this process where that cannot be written.

    Args:
        kind: What is kept in it.
    """
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

    Args:
        parts: All that the result depends on: source, options, architecture, compiler and its version.
        suffix: Of the file's name, ``".cubin"``.
        compile_to: Writes the file at the path that it gets.
    """
    digest = sha256_hex("\0".join(parts).encode())[:40]
    path = cache_folder() / f"{digest}{suffix}"
    if not path.exists():
        with _locks.setdefault(path, threading.Lock()):
            if not path.exists():
                _compiling.add(path)
                try:
                    with atomic_path(path) as temporary:
                        compile_to(temporary)
                finally:
                    _compiling.discard(path)
    return path
