"""Files that are whole or absent: write to a temporary name, then rename."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["atomic_path", "sha256_hex", "write_atomic"]


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside ``path`` that takes its name when the block succeeds, and vanishes when it fails."""
    path = Path(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        temporary.chmod(mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: str | Path, data: bytes) -> None:
    """Write ``data`` to ``path``; readers see the old file or the new one, never a part."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def sha256_hex(source: bytes | str | Path) -> str:
    """SHA-256 of bytes, or of a file's contents, as 64 hex digits."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    with open(source, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
