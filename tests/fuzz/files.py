"""Inputs as files, for parsers that read files."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

__all__ = ["file", "folder"]


@functools.cache
def folder() -> Path:
    """A folder that goes when the process ends."""
    path = Path(tempfile.mkdtemp(prefix="fuzz-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def file(data: bytes, name: str) -> Path:
    """The input as a file."""
    path = folder() / name
    path.write_bytes(data)
    return path
