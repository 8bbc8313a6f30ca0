"""The folder that a step runs in: has its inputs at their paths; outputs are checked before they are stored."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ...errors import StepError
from ...utils.inside import kind_text
from ...utils.listing import first_texts
from ...utils.text_formats import shorten
from .figures import read_figures
from .folder import PipelineFolder
from .step import Step, is_inside

__all__ = ["Scratch", "remove_tree"]

_CACHES = {"__pycache__", ".pytest_cache"}
_SHOWN = 5
_Marks = dict[str, tuple[int, int, int]]


class Scratch:
    """A step's folder for one attempt; see `opened`.

    Attributes:
        path: The folder.
        temporary: A folder for temporary files, which goes with it.
    """

    def __init__(self, root: Path, step: Step, inputs: Mapping[str, Path]) -> None:
        self.path, self.temporary = root / "files", root / "tmp"
        self._step, self._inputs = step, inputs
        self._before: _Marks = {}

    @classmethod
    @contextmanager
    def opened(cls, folder: PipelineFolder, step: Step, inputs: Mapping[str, Path]) -> Iterator[Scratch]:
        """Make a folder with links to the inputs, and remove it at the end.

        Raises:
            StepError: an input is missing.
        """
        root = folder.work / f"{step.name}.{secrets.token_hex(4)}"
        scratch = cls(root, step, inputs)
        try:
            scratch._fill()
            yield scratch
        finally:
            remove_tree(root)

    def _fill(self) -> None:
        self.path.mkdir(parents=True)
        self.temporary.mkdir()
        for path, source in self._inputs.items():
            if not source.exists():
                raise StepError(
                    f"step {self._step.name}: the input {path} does not exist.\nDo: make {source}, or correct `inputs`",
                    step=self._step.name,
                    path=source,
                )
            inner = any(other != path and is_inside(path, other) for other in self._inputs)
            if not os.path.isabs(path) and not inner:
                self._parent(path).symlink_to(source.resolve())
        for path in self._step.outputs:
            self._parent(path)
        self._before = self._marks()

    def _parent(self, path: str) -> Path:
        place = self.path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def check(self) -> None:
        """Compare what the step wrote with what it declared.

        Raises:
            StepError: an output is missing, a file was not declared, an input was changed, or metrics hold no figures; ``.path``
                says which.
        """
        for path in self._step.outputs:
            if not os.path.lexists(self.path / path):
                self._refuse(path, f"did not write its output {path}", "correct `outputs`, or what the step runs")
            for place, what in _not_files(self.path / path):
                name = place.relative_to(self.path).as_posix()
                self._refuse(name, f"wrote {what} in its outputs: {name}", "let it write the file itself, or a copy")
        if undeclared := sorted(self._undeclared()):
            shown = first_texts(undeclared, _SHOWN)
            self._refuse(
                undeclared[0],
                f"wrote what it does not declare: {shorten(shown, 400)[1:-1]}",
                "add it to `outputs`, or write temporary files to the folder in TMPDIR",
            )
        after = self._marks()
        if changed := sorted(
            path for path in self._before.keys() | after.keys() if self._before.get(path) != after.get(path)
        ):
            self._refuse(
                changed[0],
                f"changed its input {changed[0]}, which is now as the step left it",
                "put back what it was, and let the step write a new file, which it declares as an output",
            )
        for path in self._step.metrics:
            try:
                read_figures(self.path / path, path)
            except (ValueError, OSError) as error:
                self._refuse(
                    path,
                    f"wrote no figures: {str(error).rstrip('.')}",
                    'write JSON with numbers, such as {"mAP50": 0.65}',
                )

    def take(self, folder: PipelineFolder) -> None:
        """Move the outputs to where they are kept.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        for path in self._step.outputs:
            source, target = self.path / path, folder.stored(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            remove_tree(target)
            source.rename(target)

    def _refuse(self, path: str, what: str, do: str) -> None:
        raise StepError(f"step {self._step.name} {what}.\nDo: {do}", step=self._step.name, path=path, contract=True)

    def _undeclared(self) -> Iterator[str]:
        for where, folders, files in os.walk(self.path):
            folders[:] = [name for name in folders if name not in _CACHES]
            for name in [*files, *folders]:
                place = Path(where, name)
                path = place.relative_to(self.path).as_posix()
                if any(is_inside(path, output) for output in self._step.outputs):
                    folders[:] = [folder_name for folder_name in folders if folder_name != name]
                elif path not in self._inputs and (place.is_symlink() or not place.is_dir()):
                    yield path

    def _marks(self) -> _Marks:
        """Size, time and inode of each file of the inputs."""
        marks: _Marks = {}
        for path, source in self._inputs.items():
            files = (
                (
                    Path(where, name)
                    for where, _, names in os.walk(source)
                    for name in names
                    if _CACHES.isdisjoint(where.split(os.sep))
                )
                if source.is_dir()
                else [source]
            )
            for file in files:
                with contextlib.suppress(FileNotFoundError):
                    status = file.stat()
                    name = path if file == source else f"{path}/{file.relative_to(source).as_posix()}"
                    marks[name] = status.st_size, status.st_mtime_ns, status.st_ino
        return marks


def _not_files(output: Path) -> Iterator[tuple[Path, str]]:
    """Entries of an output that are neither folders nor regular files, with their kinds: a link's target may change or disappear."""
    inner = (Path(where, name) for where, folders, files in os.walk(output) for name in (*folders, *files))
    for place in (output, *(() if output.is_symlink() else inner)):
        mode = place.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            yield place, kind_text(mode)


def remove_tree(path: Path) -> None:
    """Remove a file or a folder, if it is there, also where a step has made its folders unwritable."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        for where, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                os.chmod(where, 0o700)
        shutil.rmtree(path, ignore_errors=True)
