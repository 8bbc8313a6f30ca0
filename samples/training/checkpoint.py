"""Checkpoints of several ranks: written in the background by torch.distributed.checkpoint, whole or not at all.

A checkpoint is a folder ``step-000001000`` with a file of tensors for each rank, their index, and ``facts.json``: what is
no tensor, and the size and SHA-256 of every other file. It is written under another name and renamed when it is complete. The
last two are kept. Nothing is unpickled: the index is read by torch.load with ``weights_only``.
"""

from __future__ import annotations

import contextlib
import copyreg
import json
import os
import shutil
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import checkpoint
from torch.distributed.checkpoint import filesystem, metadata

from pytrtplugins.errors import FormatError, UsageError
from pytrtplugins.utils.files import open_regular, regular_size, sha256_hex, write_atomic
from pytrtplugins.utils.inside import check_inside, holder
from pytrtplugins.utils.override import override
from pytrtplugins.utils.text_formats import read_json

from .ranks import Ranks

__all__ = ["Checkpoints", "complete", "step_of"]

warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # one process needs no group
VERSION = 1
KEPT = 2
_FACTS, _INDEX = "facts.json", "index.pt"
_MAX_FACTS = 64 << 20
_INDEX_TYPES = [
    metadata.BytesStorageMetadata,
    metadata.ChunkStorageMetadata,
    metadata.Metadata,
    metadata.MetadataIndex,
    metadata.StorageMeta,
    metadata.TensorProperties,
    metadata.TensorStorageMetadata,
    metadata._MEM_FORMAT_ENCODING,
    filesystem._StorageInfo,
]
# Python 3.11.0 to 3.11.3 write a member of an Enum as getattr(class, name), which must not be read
copyreg.pickle(metadata._MEM_FORMAT_ENCODING, lambda member: (type(member), (member.value,)))


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
        self._pending: tuple[Path, Future[Any], Future[None]] | None = None
        if ranks.is_first:
            folder.mkdir(parents=True, exist_ok=True)
            _check_kinds(folder)
            for left in folder.glob(".step-*.part"):  # of a run that was killed
                shutil.rmtree(left, ignore_errors=True)
        _check_shared(folder, ranks)
        self._group = (
            distributed.new_group(backend="gloo") if ranks.joined else None
        )  # beside the exchange of gradients

    def save(self, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Copy the tensors, and write them in the background; a checkpoint that is still being written is waited for first."""
        self.wait()
        target = self.folder / f"step-{step:09d}"
        if target.exists():
            return
        partial = self.folder / f".{target.name}.part"
        text = json.dumps({"version": VERSION, "step": step, "facts": dict(facts)})
        completed = Future[None]()
        writing = checkpoint.async_save(
            dict(tensors),
            storage_writer=_Writer(partial),
            planner=checkpoint.DefaultSavePlanner(dedup_save_to_lowest_rank=True),
            process_group=self._group,
            no_dist=not self._ranks.joined,
        )
        self._pending = partial, writing, completed

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
        partial, writing, completed = self._pending
        self._pending, error = None, writing.exception() or completed.exception()
        if error is not None:
            self._failed(partial, error)
        return error is None

    def _complete(self, partial: Path, target: Path, facts: dict[str, Any]) -> None:
        """Add the facts, give the folder its name, and remove older ones."""
        files = {path.name: [path.stat().st_size, sha256_hex(path)] for path in sorted(partial.iterdir())}
        write_atomic(partial / _FACTS, json.dumps(facts | {"files": files}).encode(), within=self.folder)
        partial.rename(target)
        _sync(self.folder)
        for old in complete(self.folder)[KEPT:]:
            shutil.rmtree(old, ignore_errors=True)

    def _failed(self, partial: Path, error: BaseException) -> None:
        if not self._ranks.is_first:
            return
        shutil.rmtree(partial, ignore_errors=True)
        kept = complete(self.folder)
        last = f"the last good one is {kept[0]}" if kept else "there is none yet"
        self._warn(
            f"checkpoint {partial.name.strip('.').removesuffix('.part')} could not be written: {_cause(error)}; {last}.\n"
            f"Do: make room at {self.folder}; the next one is tried as usual"
        )

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """The newest undamaged checkpoint and its facts; all ranks must ask, and get the same.

        Raises:
            FormatError: there are checkpoints, and all are damaged.
        """
        whole, damage = -1, list[str]()
        for path in complete(self.folder) if self._ranks.is_first else ():
            try:
                _check_files(path)
                whole = step_of(path)
                break
            except FormatError as error:
                damage.append(str(error))
                self._warn(f"{error}; an older one is looked for")
        step, damaged = self._ranks.agree([whole, len(damage)])
        if step >= 0:
            path = self.folder / f"step-{int(step):09d}"
            held = _read_facts(path)
            return path, held["facts"] | {"step": held["step"]}
        if damaged:
            raise FormatError("\n".join([*damage, "Do: begin anew with another --out"]), path=self.folder)
        return None

    def load(self, path: Path, tensors: dict[str, Tensor]) -> None:
        """Read a checkpoint into the tensors, however many ranks wrote it.

        Raises:
            FormatError: it lacks one of them, or has other shapes.
        """
        try:
            checkpoint.load(
                tensors, storage_reader=_Reader(path), process_group=self._group, no_dist=not self._ranks.joined
            )
        except (checkpoint.CheckpointException, RuntimeError, ValueError) as error:
            raise FormatError(f"{path}: does not fit this network: {_cause(error)}", path=path) from error


class _Writer(checkpoint.FileSystemWriter):
    """Writes the index so that it can be read without unpickling."""

    @override
    def finish(self, metadata: metadata.Metadata, results: list[Any]) -> None:
        metadata.storage_data = {found.index: found.storage_data for part in results for found in part}
        metadata.planner_data = None  # only needed to restore nested containers
        with (Path(self.path) / _INDEX).open("wb") as file:
            torch.save(metadata, file)
            file.flush()
            os.fsync(file.fileno())


class _Reader(checkpoint.FileSystemReader):
    """Reads what `_Writer` wrote; nothing in the folder is reached through a link."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.fs = _Files(path)

    @override
    def read_metadata(self, *args: Any, **options: Any) -> metadata.Metadata:
        with (
            torch.serialization.safe_globals(_INDEX_TYPES),
            self.fs.create_stream(Path(self.path) / _INDEX, "rb") as file,
        ):
            found: metadata.Metadata = torch.load(file, weights_only=True)
        for info in (found.storage_data or {}).values():
            if Path(info.relative_path).name != info.relative_path:
                raise FormatError(f"{self.path}: its index names a file outside: {info.relative_path!r}")
        return found

    @classmethod
    @override
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return (Path(checkpoint_id) / _INDEX).is_file()


class _Files(filesystem.FileSystem):
    """Opens the files of a checkpoint, which may come from somebody else."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    @contextlib.contextmanager
    @override
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        with open_regular(Path(path), within=self._folder) as file:
            yield file


def complete(folder: Path) -> list[Path]:
    """The complete checkpoints in a folder, newest first."""
    return sorted((path for path in folder.glob("step-*") if os.path.lexists(path / _FACTS)), reverse=True)


def _check_kinds(folder: Path) -> None:
    """Require that checkpoints, and what is left of them, are folders of regular files; others of the folder's files are the user's."""
    for path in sorted((*folder.glob("step-*"), *folder.glob(".step-*.part"))):
        with holder(path / _FACTS, folder):
            check_inside(path)


def step_of(path: Path) -> int:
    """How many steps a checkpoint's run had done."""
    return int(path.name.removeprefix("step-"))


def _check_shared(folder: Path, ranks: Ranks) -> None:
    """Require that all ranks see what the first one writes; all must ask."""
    mark = folder / f".shared-{ranks.agree([int.from_bytes(os.urandom(6), 'big')])[0]:.0f}"
    if ranks.is_first:
        mark.touch()
    ranks.agree([0])  # it is there
    absent = not mark.exists()
    blind = int(ranks.agree([ranks.rank if absent else -1])[0])
    if ranks.is_first:
        mark.unlink()
    if blind >= 0:
        who = f"machine {socket.gethostname()}" if absent else f"the machine of rank {blind}"
        raise UsageError(
            f"{folder}: {who} does not see there what rank 0 writes.\nDo: give an --out in a folder that all machines share"
        )


def _read_facts(path: Path) -> dict[str, Any]:
    facts = path / _FACTS
    held = read_json(facts, max_bytes=_MAX_FACTS, allow_nan=True, within=path.parent)
    if not isinstance(held, dict) or held.get("version") != VERSION:
        raise FormatError(f"{facts}: not the facts of a checkpoint of version {VERSION}", path=facts)
    return held


def _check_files(path: Path) -> None:
    """Compare the files of a checkpoint with its facts."""
    for name, (size, digest) in _read_facts(path)["files"].items():
        file = path / Path(name).name
        found = None
        with contextlib.suppress(FileNotFoundError):
            found = regular_size(file, within=path.parent)
        if found != size:
            raise FormatError(f"{file}: expected {size} bytes, found {found}", path=file)
        if sha256_hex(file, within=path.parent) != digest:
            raise FormatError(f"{file}: its contents have changed since it was written", path=file)


def _cause(error: BaseException) -> str:
    """The first error of those that torch.distributed.checkpoint collected, in words."""
    failures = getattr(error, "failures", None)
    if failures:
        return f"{next(iter(failures.values()))[0]}"
    return str(error)


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every file system has it
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
