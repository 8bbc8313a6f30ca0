"""The kernels that TensorRT for RTX makes on the machine that runs an engine, kept beside the engine file between processes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ...errors import FormatError, UsageError
from ...utils.atomic import write_atomic
from ...utils.files import read_regular

__all__ = ["LARGEST", "JitCache", "cache_path"]

LARGEST = 1 << 30
"""Bytes of the largest file that is read."""
_log = logging.getLogger(__name__)


def cache_path(engine_file: str | Path) -> Path:
    """The file of an engine file's kernels: ``model.engine`` → ``model.engine.jit``."""
    path = Path(engine_file)
    return path.with_name(f"{path.name}.jit")


class JitCache:
    """TensorRT's ``IRuntimeCache`` of one engine, and its file.

    TensorRT compares a file with the GPU, the driver and its own version, and refuses one that does not fit; the kernels are then made
    again, and the file is replaced.

    Args:
        cuda_engine: TensorRT's engine, on the current GPU.
        path: The file; None: kernels are kept in this process alone.
    """

    def __init__(self, cuda_engine: Any, path: Path | None) -> None:
        self.path = path
        self.config = cuda_engine.create_runtime_config()
        self._cache = self.config.create_runtime_cache()
        self._known = self._read()
        if self._known and not self._cache.deserialize(self._known):
            _log.info("%s: TensorRT does not accept these kernels here; they are made again", path)
            self._known = b""
        self.config.set_runtime_cache(self._cache)

    def keep(self) -> None:
        """Write the file, if kernels were made since it was read or written."""
        if self.path is None:
            return
        data = bytes(self._cache.serialize())
        if data == self._known:
            return
        try:
            write_atomic(self.path, data, within=self.path.parent)
        except (OSError, UsageError) as error:  # the engine runs all the same
            _log.warning("%s: the kernels cannot be kept: %s", self.path, error)
            self.path = None
            return
        self._known = data

    def _read(self) -> bytes:
        if self.path is None:
            return b""
        try:
            return read_regular(self.path, LARGEST, within=self.path.parent)
        except FileNotFoundError:
            return b""
        except (OSError, FormatError) as error:
            _log.warning("kernels cannot be read, and are made again: %s", error)
            return b""
