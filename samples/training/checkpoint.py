"""Checkpoints of several ranks, written in the background by torch.distributed.checkpoint, completely or not at all.

A checkpoint is a folder ``step-000001000`` with a file of tensors for each rank, their index, and ``facts.json``: what is
no tensor, and the size and SHA-256 of every other file. It is written under another name and renamed when it is complete. The
last two are kept. No code of a file is run: the index is JSON, and tensors are checked before torch.load reads them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from torch import Tensor, distributed
from torch.distributed import checkpoint

from pytrtplugins.errors import FormatError, UsageError
from pytrtplugins.utils.atomic import write_atomic
from pytrtplugins.utils.files import regular_size, sha256_hex
from pytrtplugins.utils.inside import check_inside, holder
from pytrtplugins.utils.text_formats import read_json

from .checkpoint_files import INDEX, Reader, Writer
from .ranks import Ranks

__all__ = ["Checkpoints", "complete", "step_of"]

warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # one process needs no group
VERSION = 2
KEPT = 2
_FACTS = "facts.json"
_MAX_FACTS = 64 << 20
_PARTIAL = "only a part of a file could be written"


class Checkpoints:
    """The checkpoints of a run.

    Args:
        folder: Where they lie; all ranks must see it.
        ranks: The processes of the run.
        warn: Gets a line about a checkpoint that could not be written, or is damaged; training goes on.

    Raises:
        UsageError: a rank sees another folder there.
    """

    def __init__(self, folder: Path, ranks: Ranks, warn: Callable[[str], None] = print) -> None:
        self.folder, self._ranks, self._warn = folder, ranks, warn
        self._pending: tuple[int, Path, Future[Any], Future[None]] | None = None
        self._held = -1  # step of the checkpoint that this run wrote or read last
        self._damaged: list[Path] = []
        if ranks.is_first:
            folder.mkdir(parents=True, exist_ok=True)
            _check_kinds(folder)
            for left in folder.glob(".step-*"):  # of a run that was killed
                _remove(left)
        _check_shared(folder, ranks)
        self._group = (
            distributed.new_group(backend="gloo") if ranks.joined else None
        )  # beside the exchange of gradients

    def save(self, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Copy the tensors, and write them in the background; a checkpoint that is still being written is waited for first.

        One of the same step takes the place of what lies there, unless this run wrote or read that. All ranks must.
        """
        self.wait()
        if not self._ranks.max_over_ranks([self._held != step])[0]:
            return
        target = self.folder / _name(step)
        partial = self.folder / f".{target.name}.part"
        text = json.dumps({"version": VERSION, "step": step, "facts": dict(facts)})
        completed = Future[None]()
        writing = checkpoint.async_save(
            dict(tensors),
            storage_writer=Writer(partial),
            planner=checkpoint.DefaultSavePlanner(dedup_save_to_lowest_rank=True),
            process_group=self._group,
            no_dist=not self._ranks.joined,
        )
        self._pending = step, partial, writing, completed

        def finish(written: Future[Any]) -> None:
            try:
                if self._ranks.is_first and written.exception() is None:
                    self._complete(partial, target, json.loads(text))
                completed.set_result(None)
            except BaseException as error:
                completed.set_exception(error)

        writing.add_done_callback(finish)

    def wait(self) -> bool:
        """Wait until a checkpoint that is being written lies there; whether it does."""
        if self._pending is None:
            return True
        step, partial, writing, completed = self._pending
        self._pending, error = None, writing.exception() or completed.exception()
        if error is not None:
            self._failed(partial, error)
        else:
            self._held = step
        return error is None

    def _complete(self, partial: Path, target: Path, facts: dict[str, Any]) -> None:
        """Add the facts, give the folder its name, and remove older ones and damaged ones that the run has passed."""
        files = {path.name: [path.stat().st_size, sha256_hex(path)] for path in sorted(partial.iterdir())}
        write_atomic(partial / _FACTS, json.dumps(facts | {"files": files}).encode(), within=self.folder)
        replaced = target.with_name(f".{target.name}.old")
        with contextlib.suppress(FileNotFoundError):
            target.rename(replaced)
        partial.rename(target)
        _sync(self.folder)
        self._damaged = [path for path in self._damaged if path != target]
        passed = [path for path in self._damaged if step_of(path) < step_of(target)]
        good = [path for path in complete(self.folder) if path not in self._damaged]
        for old in (replaced, *passed, *good[KEPT:]):
            _remove(old)

    def _failed(self, partial: Path, error: BaseException) -> None:
        if not self._ranks.is_first:
            return
        _remove(partial)
        good = [path for path in complete(self.folder) if path not in self._damaged]
        last = f"the last good one is {good[0]}" if good else "there is none yet"
        self._warn(
            f"checkpoint {partial.name.strip('.').removesuffix('.part')} could not be written: {_cause(error)}; {last}.\n"
            f"Do: make room at {self.folder}; the next one is tried as usual"
        )

    def newest(self, check: Callable[[Mapping[str, Any]], object] | None = None) -> tuple[Path, dict[str, Any]] | None:
        """The newest undamaged checkpoint and its facts; all ranks must call it, and get the same.

        Args:
            check: Looks at the facts; a ``FormatError`` of it counts as damage.

        Raises:
            FormatError: there are checkpoints, and all are damaged.
        """
        good_step, damage = -1, list[str]()
        for path in complete(self.folder) if self._ranks.is_first else ():
            try:
                facts = _check_files(path)
                if check is not None:
                    check(facts)
                good_step = step_of(path)
                break
            except FormatError as error:
                damage.append(str(error) if str(path) in str(error) else f"{path / _FACTS}: {error}")
                self._damaged.append(path)
        step, damaged = self._ranks.max_over_ranks([good_step, len(damage)])
        if step >= 0:
            for text in damage:
                self._warn(f"{text}; the run continues from {_name(int(step))}")
            path = self.folder / _name(int(step))
            return path, _read_facts(path)
        if damaged:
            raise FormatError("\n".join([*damage, "Do: begin anew with another --output"]), path=self.folder)
        return None

    def load(self, path: Path, tensors: dict[str, Tensor]) -> None:
        """Read a checkpoint into the tensors, however many ranks wrote it.

        Raises:
            FormatError: it lacks one of them, or has other shapes.
        """
        try:
            checkpoint.load(
                tensors, storage_reader=Reader(path), process_group=self._group, no_dist=not self._ranks.joined
            )
        except (checkpoint.CheckpointException, RuntimeError, ValueError) as error:
            raise FormatError(
                f"{path}: does not fit this network: {_cause(error)}.\n"
                "Do: give the options of the run that wrote it, or another --output",
                path=path,
            ) from error
        self._held = step_of(path)


def complete(folder: Path) -> list[Path]:
    """The complete checkpoints in a folder, newest first."""
    folders = [
        path for path in folder.glob("step-*") if path.name[5:].isdecimal() and path.name == _name(step_of(path))
    ]
    return sorted((path for path in folders if os.path.lexists(path / _FACTS)), key=step_of, reverse=True)


def _check_kinds(folder: Path) -> None:
    """Require that checkpoints, and what is left of them, are folders of regular files; others of the folder's files are the user's."""
    for path in sorted((*folder.glob("step-*"), *folder.glob(".step-*"))):
        with holder(path / _FACTS, folder):
            check_inside(path)


def step_of(path: Path) -> int:
    """How many steps a checkpoint's run had done."""
    return int(path.name.removeprefix("step-"))


def _name(step: int) -> str:
    """The folder of a checkpoint."""
    return f"step-{step:09d}"


def _remove(path: Path) -> None:
    """Remove a folder; of a link only the link."""
    if path.is_symlink():
        path.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def _check_shared(folder: Path, ranks: Ranks) -> None:
    """Require that all ranks see the files of the first one; all ranks must call it."""
    mark = folder / f".shared-{ranks.max_over_ranks([int.from_bytes(os.urandom(6), 'big')])[0]:.0f}"
    if ranks.is_first:
        mark.touch()
    ranks.max_over_ranks([0])  # it is there
    absent = not mark.exists()
    blind = int(ranks.max_over_ranks([ranks.rank if absent else -1])[0])
    if ranks.is_first:
        mark.unlink()
    if blind >= 0:
        who = f"machine {socket.gethostname()}" if absent else f"the machine of rank {blind}"
        raise UsageError(
            f"{folder}: {who} does not see there what rank 0 writes.\nDo: give an --output in a folder that all machines share"
        )


def _read_facts(path: Path) -> dict[str, Any]:
    """Facts and step of a checkpoint, without its tensors."""
    return _read_file(path)[0]


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, tuple[int, str]]]:
    """The facts of a checkpoint, and the size and SHA-256 of each of its files."""
    file = path / _FACTS
    record = read_json(file, max_bytes=_MAX_FACTS, allow_nan=True, within=path.parent)
    version = record.get("version") if isinstance(record, dict) else None
    if version != VERSION:
        raise FormatError(
            f"{file}: expected the facts of a checkpoint of version {VERSION}, found {version!r}", path=file
        )
    facts, files = record.get("facts"), record.get("files")
    if record.get("step") != step_of(path) or not isinstance(facts, dict):
        raise FormatError(f"{file}: it lacks the facts of step {step_of(path)}", path=file)
    if not isinstance(files, dict) or INDEX not in files or not all(map(_is_size_and_digest, files.values())):
        raise FormatError(f"{file}: it lacks the sizes and SHA-256 of the files", path=file)
    return facts | {"step": record["step"]}, files


def _is_size_and_digest(value: Any) -> bool:
    return isinstance(value, list) and [type(item) for item in value] == [int, str]


def _check_files(path: Path) -> dict[str, Any]:
    """Check the files of a checkpoint against its facts, and return the facts."""
    facts, files = _read_file(path)
    for name, (size, digest) in files.items():
        file = path / Path(name).name
        length = None
        with contextlib.suppress(FileNotFoundError):
            length = regular_size(file, within=path.parent)
        if length != size:
            raise FormatError(f"{file}: expected {size} bytes, found {length}", path=file)
        if sha256_hex(file, within=path.parent) != digest:
            raise FormatError(f"{file}: its contents have changed since it was written", path=file)
    return facts


def _cause(error: BaseException) -> str:
    """The first error of those that torch.distributed.checkpoint collected, in words."""
    failures = getattr(error, "failures", None)
    first = next(iter(failures.values()))[0] if failures else error
    text, behind = str(first).rstrip("."), first
    if "unexpected pos" not in text:
        return text
    while behind is not None and not isinstance(
        behind, OSError
    ):  # which PyTorch's writer hides behind positions in its file
        behind = behind.__context__
    return _PARTIAL if behind is None else str(behind)


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every file system has it
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
