"""Compiled kernels on disk, so that each is compiled once per machine."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from .._files import atomic_path, sha256_hex

__all__ = ["cache_folder", "cached_file"]


@functools.cache
def cache_folder() -> Path:
    """Where compiled kernels are kept: the user's cache folder, or one of this process where that cannot be written."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "pytrtplugins" / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="pytrtplugins-kernels-"))


def cached_file(parts: Iterable[str], suffix: str, compile_to: Callable[[Path], None]) -> Path:
    """The file that ``compile_to`` writes for these parts; made only where the cache lacks it.

    Args:
        parts: All that the result depends on: source, options, architecture, compiler and its version.
        suffix: Of the file's name, ``".cubin"``.
        compile_to: Writes the file at the path that it gets.
    """
    digest = sha256_hex("\0".join(parts).encode())[:40]
    path = cache_folder() / f"{digest}{suffix}"
    if not path.exists():
        with atomic_path(path) as temporary:
            compile_to(temporary)
    return path
