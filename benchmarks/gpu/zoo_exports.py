"""The zoo's networks, made and exported in worker processes side by side, so that a GPU does not wait for one after the other."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import onnx
import pytest
import torch
from torch import nn

from pytrtplugins.utils.atomic import atomic_path

from .zoo import NETWORKS, exported

__all__ = ["Exports"]

FOLDER = "BENCHMARK_ZOO_MODELS"
"""Environment variable: a folder where a later run on this machine finds the files; without it they go with the session."""
_LONGEST_S = 900.0
"""Of one export; a worker that was killed gives no answer."""
_MEMORY_KB = 3_000_000
"""Of a worker, about: more of them than memory has room for are not begun."""


class Exports:
    """Modules and ONNX models of networks, in files of one folder.

    Workers run at a low priority, so that they hardly delay the builds of rows whose networks are ready.

    Args:
        names: The networks, in the order of their rows; those that have no file yet are exported, several at a time.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._session = contextlib.ExitStack()
        given = os.environ.get(FOLDER)
        self._folder = Path(given or self._session.enter_context(tempfile.TemporaryDirectory(prefix="zoo-")))
        self._folder.mkdir(parents=True, exist_ok=True)
        self._results: dict[str, Any] = {}
        self._pool: Any = None
        missing = [name for name in names if not self._file(name, "onnx").exists()]
        if missing:
            self._begin(missing)

    def __enter__(self) -> Exports:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    @property
    def waiting(self) -> int:
        """How many networks are still being exported."""
        return sum(not result.ready() for result in self._results.values())

    def load(self, name: str) -> tuple[nn.Module, onnx.ModelProto]:
        """A network's module and model, once they are there.

        Raises:
            pytest.skip.Exception: a library or file of it is not here.
            RuntimeError: its export failed.
        """
        model = self._file(name, "onnx")
        if name not in self._results and not model.exists():  # nobody asked for it before
            self._begin([name])
        if name in self._results:
            kind, _, text = self._results[name].get(_LONGEST_S).partition(": ")
            if kind == "Skipped":
                pytest.skip(text)
            if kind:
                raise RuntimeError(f"the export failed: {kind}: {text}")
        return self._module(name), onnx.load(model)

    def _module(self, name: str) -> nn.Module:
        """The worker's module; one that cannot be pickled, or not be read, is made here."""
        with contextlib.suppress(Exception):  # of whatever kind a library's class raises
            return torch.load(self._file(name, "pt"), weights_only=False)
        return NETWORKS[name].make()

    def _begin(self, names: Sequence[str]) -> None:
        if self._pool is None:
            cores = os.cpu_count() or 1
            workers = max(1, min(len(names), cores, _memory_kb() // _MEMORY_KB))
            context = multiprocessing.get_context("spawn")
            self._pool = self._session.enter_context(
                context.Pool(workers, _lower_priority, (max(1, cores // workers),))
            )
        self._results.update({name: self._pool.apply_async(_export, (name, self._folder)) for name in names})

    def _file(self, name: str, kind: str) -> Path:
        return self._folder / f"{name}.{kind}"


def _lower_priority(threads: int) -> None:
    """Begin a worker."""
    os.nice(10)
    torch.set_num_threads(threads)


def _export(name: str, folder: Path) -> str:
    """Write a network's files; gives the error's type and first line, empty if there was none."""
    try:
        module = NETWORKS[name].make()
        with (
            contextlib.suppress(Exception),
            atomic_path(folder / f"{name}.pt") as path,
        ):  # a class in a function has no name to pickle
            torch.save(module, path)
        model = exported(NETWORKS[name], module)
        with atomic_path(folder / f"{name}.onnx") as path:
            onnx.save(model, path)
    except (Exception, pytest.skip.Exception) as error:
        return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
    return ""


def _memory_kb() -> int:
    """Free memory, in kB; much where the system does not tell."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    return 1 << 40
