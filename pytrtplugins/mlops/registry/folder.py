"""The files of a registry: their layout, reading and writing, and locks."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ...errors import ModelRegistryError
from ...utils.atomic import atomic_file, write_atomic
from ...utils.file_lock import held_lock
from ...utils.files import check_path, open_regular, read_regular, sha256_hex
from ...utils.inside import holder, list_inside, open_inside
from ...utils.text_formats import read_json
from .history import History
from .manifest import FORMAT, MAX_BYTES, ModelVersion, StoredFile, newer_format_error, read, version_from_json, write
from .reference import check_name

__all__ = ["Folder"]

_MARK, _LOCK, _HISTORY = "registry.json", ".lock", "history.json"
_READ_ONLY = 0o444
_CAUSES = {
    errno.ENOSPC: "the disk is full.\nDo: make room, and run it again; the registry is as it was",
    errno.EDQUOT: "the disk quota is used up.\nDo: make room, and run it again; the registry is as it was",
    errno.EACCES: "no permission.\nDo: run it as the registry's owner, or name another with --registry",
    errno.EPERM: "no permission.\nDo: run it as the registry's owner, or name another with --registry",
    errno.EEXIST: "it is a file, and no folder.\nDo: name another with --registry",
    errno.EROFS: "the file system is read-only.\nDo: name another folder with --registry",
}


class Folder:
    """A registry's folder.

        registry.json                   the format
        objects/ab/ab12...              files by their SHA-256, each once
        models/NAME/3.json              the manifest of a version
        models/NAME/history.json        its stages: what was done with the versions

    A version is there once its manifest has its name; a change of a stage, once the history has been renamed. Whoever reads needs no lock.
    Anything in it but folders and regular files is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.objects, self.models = path / "objects", path / "models"

    # -- reading -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Require a registry in a known format."""
        mark = self.path / _MARK
        try:
            data = read_json(mark, max_bytes=MAX_BYTES, error=ModelRegistryError, within=self.path)
        except (FileNotFoundError, NotADirectoryError):
            raise ModelRegistryError(
                f"{self.path}: there is no registry of models.\n"
                "Do: pytrt models add FILE.engine --name NAME, or name another folder with --registry",
                path=self.path,
            ) from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise newer_format_error(str(mark), data.get("format") if isinstance(data, dict) else data)

    def names(self) -> list[str]:
        """The models."""
        return [name for name, is_folder in self._list_folder(self.models).items() if is_folder]

    def numbers(self, name: str) -> list[int]:
        """The versions of a model whose manifests are there, the oldest first."""
        names = self._list_folder(self.models / check_name(name))
        stems = [file_name.removesuffix(".json") for file_name in names if file_name.endswith(".json")]
        return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdecimal() and stem[0] != "0")

    def manifest(self, name: str, number: int) -> ModelVersion:
        """A version.

        Raises:
            ModelRegistryError: its manifest is damaged, or that of another version.
        """
        path = self._manifest(name, number)
        version = version_from_json(read(self._read(path), str(path)), str(path))
        if (version.name, version.version) != (name, number):
            raise ModelRegistryError(f"{path}: it is the manifest of {version}.\nDo: pytrt models check", path=path)
        return version

    def history(self, name: str) -> History:
        """The history of a model."""
        path = self.history_path(name)
        try:
            return History.from_json(read(self._read(path), str(path)))
        except FileNotFoundError:
            return History()
        except ModelRegistryError as error:
            if str(path) in str(error):
                raise
            raise ModelRegistryError(f"{path}: damaged: {error}\nDo: pytrt models check", path=path) from None

    def history_path(self, name: str) -> Path:
        """The file that changes when a version comes into a stage."""
        return self.models / check_name(name) / _HISTORY

    def object(self, digest: str) -> Path:
        """The path of a file's contents."""
        return self.objects / digest[:2] / digest

    def files(self) -> list[Path]:
        """All files, whatever they are."""
        return sorted(path for path in self.path.rglob("*") if not path.is_dir() or path.is_symlink())

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Wait until nobody writes, and let nobody write, as far as this user may open the lock."""
        with ExitStack() as stack:
            with suppress(FileNotFoundError, PermissionError):
                handle = open_inside(self.path / _LOCK, os.O_RDONLY, within=self.path, error=ModelRegistryError)
                stack.enter_context(held_lock(handle, shared=True))
            yield

    def _list_folder(self, folder: Path) -> dict[str, bool]:
        """The names in a folder, and which of them are folders; empty if it is missing."""
        try:
            return list_inside(folder, within=self.path, error=ModelRegistryError)
        except FileNotFoundError:
            return {}

    def _read(self, path: Path) -> bytes:
        return read_regular(path, MAX_BYTES, error=ModelRegistryError, within=self.path)

    # -- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Let no other process write; the registry is made where there is none."""
        check_path(self.path, error=ModelRegistryError)
        with self.translate_os_errors():
            self.path.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT
            handle = open_inside(self.path / _LOCK, flags, within=self.path, error=ModelRegistryError)
            with held_lock(handle):
                if not os.path.lexists(self.path / _MARK):
                    self._begin()
                self.check()
                yield

    @contextmanager
    def translate_os_errors(self) -> Iterator[None]:
        """Say in words what the file system refused."""
        try:
            yield
        except OSError as error:
            if isinstance(error, ModelRegistryError) or error.errno not in _CAUSES:
                raise
            place = error.filename or self.path
            raise ModelRegistryError(f"{place}: {_CAUSES[error.errno]}", path=place) from error

    def _begin(self) -> None:
        if any(not name.startswith(".") and name not in ("objects", "models") for name in os.listdir(self.path)):
            raise ModelRegistryError(
                f"{self.path}: the folder has other files, and is no registry of models.\n"
                "Do: name an empty or new folder with --registry",
                path=self.path,
            )
        write_atomic(self.path / _MARK, f"{json.dumps({'format': FORMAT})}\n".encode(), within=self.path)

    def store(self, source: Path) -> StoredFile:
        """Keep a file's contents under their digest.

        Raises:
            ModelRegistryError: it changed while it was copied.
        """
        digest = sha256_hex(source)
        target = self.object(digest)
        present = ""
        with suppress(FileNotFoundError):
            present = sha256_hex(target, within=self.path)
        if present != digest:
            copied = hashlib.sha256()
            with open_regular(source) as file, atomic_file(target, within=self.path) as copy:
                while block := file.read(1 << 20):
                    copied.update(block)
                    copy.write(block)
                if copied.hexdigest() != digest:
                    raise ModelRegistryError(
                        f"{source}: it changed while it was copied.\nDo: add it again", path=source
                    )
        with open_regular(target, within=self.path) as file:
            if present != digest and sys.platform != "win32":
                os.fchmod(file.fileno(), _READ_ONLY)
            return StoredFile(source.name, digest, os.fstat(file.fileno()).st_size)

    def write_manifest(self, version: ModelVersion) -> None:
        """Make a version known: all its files are there."""
        write_atomic(self._manifest(version.name, version.version), write(version), within=self.path)

    def write_history(self, name: str, history: History) -> None:
        """Make a change known."""
        write_atomic(self.history_path(name), write(history), within=self.path)

    def forget(self, name: str, number: int) -> None:
        """Remove the manifest of a version, which its history calls removed."""
        self.remove(self._manifest(name, number))

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError), holder(path, self.path, error=ModelRegistryError) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def _manifest(self, name: str, number: int) -> Path:
        return self.models / check_name(name) / f"{number}.json"
