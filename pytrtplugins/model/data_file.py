"""Write a model with external weights as one unit: first the data file, named by its digest, then the model."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from ..errors import UsageError
from ..utils.atomic import atomic_path

__all__ = ["removing_stale_data", "write_apart"]

_DIGITS = 16  # of the digest, in a name
_ABANDONED_AFTER_S = 60  # data of a writer that never came to write its model
_MODELS = (".onnx", ".textproto", ".onnxtxt", ".prototxt", ".json", ".pb", ".ort")


def write_apart(
    path: Path, write_data: Callable[[IO[bytes]], None], write_model: Callable[[Path, str], None]
) -> tuple[Path, Path]:
    """Write a model and its data, both or neither.

    The data get the name ``MODEL.DIGEST.data``, so that no other model's data are ever overwritten; then the model takes its
    name. Whoever is killed in between leaves the old model with the old data. Data that the replaced model named, and data of
    such killed writers, are removed afterwards, unless another model in the folder names them.

    Args:
        path: The model's file.
        write_data: Writes the data.
        write_model: Writes the model to a path; the second argument is the name of the data file.

    Returns:
        The files: the model and its data.

    Raises:
        UsageError: the target is a device or a FIFO, beside which nothing can lie.
        OSError: the folder does not exist, or cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        raise UsageError(f"{path}: expected a file, beside which the weights can lie", path=path)
    with removing_stale_data(path) as keep, atomic_path(path) as temporary:
        with temporary.open("w+b") as file:
            write_data(file)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        data = target.with_name(f"{target.name}.{digest[:_DIGITS]}.data")
        os.replace(temporary, data)
        keep.add(data.name)
        write_model(temporary, data.name)
    return path, data if path.is_symlink() else path.with_name(data.name)


@contextlib.contextmanager
def removing_stale_data(path: Path) -> Iterator[set[str]]:
    """After the block, remove stale data files of a model, except the names that the block adds to the set."""
    target = Path(os.path.realpath(path))
    pattern = re.compile(rf"{re.escape(target.name)}\.[0-9a-f]{{{_DIGITS}}}\.data", re.DOTALL)
    before = {name for name in _file_names(target.parent) if pattern.fullmatch(name)}
    named = {name for name in before if _mentions(target, name)}
    keep = set[str]()
    yield keep
    for name in sorted(before - keep):
        file = target.with_name(name)
        with contextlib.suppress(OSError):
            old = time.time() - file.lstat().st_mtime > _ABANDONED_AFTER_S
            if (name in named or old) and not any(_mentions(model, name) for model in _model_files(target.parent)):
                file.unlink()


def _file_names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _model_files(folder: Path) -> Iterable[Path]:
    return (folder / name for name in _file_names(folder) if name.endswith(_MODELS))


def _mentions(model: Path, name: str) -> bool:
    """Return whether a file's bytes contain a name; true if the file cannot be read."""
    try:
        if not model.is_file() or not model.stat().st_size:
            return False
        with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(name.encode()) >= 0
    except (OSError, ValueError):
        return True  # what cannot be read may name it
