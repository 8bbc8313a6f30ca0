"""Check the integrity of a registry: digests of files, manifests, histories, and leftovers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...errors import ModelRegistryError, PytrtpluginsError
from ...utils.files import regular_size, sha256_hex
from .folder import Folder

__all__ = ["Problem", "RegistryCheck", "check", "remove_orphans"]


@dataclass(frozen=True)
class Problem:
    """One problem of a registry.

    Attributes:
        path: Where.
        text: What, and what to do.
        left_over: Whether a killed process left it over, and no version needs it: ``pytrt models check --repair`` removes it.
    """

    path: str
    text: str
    left_over: bool = False


@dataclass(frozen=True)
class RegistryCheck:
    """What was found in a registry.

    Attributes:
        folder: The registry's.
        models: How many models it has.
        versions: How many versions of them.
        files: How many different files these have.
        bytes: Their size.
        problems: What is wrong.
        removed: What was left over, and is removed.
    """

    folder: str
    models: int
    versions: int
    files: int
    bytes: int
    problems: tuple[Problem, ...]
    removed: tuple[Problem, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether all versions are: what is left over harms none."""
        return all(problem.left_over for problem in self.problems)


def check(folder: Folder, repair: bool = False) -> RegistryCheck:
    """Read everything in a registry, and compare it with its digests; ``repair`` removes what killed processes left over, and nothing else.

    Raises:
        ModelRegistryError: there is no registry, or with ``repair`` it cannot be written.
    """
    folder.check()
    with folder.changing() if repair else folder.resting():
        inspection = _Inspection(folder, contents=True)
        return inspection.result(inspection.clean() if repair else ())


def remove_orphans(folder: Folder) -> None:
    """Remove what no version needs; within `Folder.changing`."""
    _Inspection(folder, contents=False).clean()


class _Inspection:
    """One inspection of a registry, which collects problems."""

    def __init__(self, folder: Folder, contents: bool) -> None:
        self._folder, self._contents, self._problems = folder, contents, list[Problem]()
        self._needed: dict[str, tuple[str, int]] = {}
        self._names, self._versions, self._unread = folder.names(), 0, False
        for name in self._names:
            self._look_at_model(name)
        for digest, (user, size) in self._needed.items():
            self._look_at_file(folder.object(digest), user, size)
        self._look_for_orphans()

    def clean(self) -> tuple[Problem, ...]:
        """Remove what is left over."""
        removed = tuple(problem for problem in self._problems if problem.left_over)
        for problem in removed:
            self._folder.remove(Path(problem.path))
            self._problems.remove(problem)
        return removed

    def result(self, removed: tuple[Problem, ...] = ()) -> RegistryCheck:
        """All of it."""
        size = sum(size for _, size in self._needed.values())
        path = str(self._folder.path)
        return RegistryCheck(
            path, len(self._names), self._versions, len(self._needed), size, tuple(self._problems), removed
        )

    def _look_at_model(self, name: str) -> None:
        path = self._folder.history_path(name)
        try:
            history, versions = self._folder.history(name), self._folder.numbers(name)
        except (PytrtpluginsError, OSError) as error:
            self._unread = True  # nobody knows which versions were removed
            return self._say(path, _first_line(error))
        removed, there = history.removed(), set[int]()
        numbers = {f"{number}.json": number for number in versions}
        for entry in sorted((self._folder.models / name).iterdir()):
            if entry.name not in numbers:
                if entry != path and ".part" not in entry.name:
                    self._say(entry, "it does not belong here")
            elif numbers[entry.name] in removed:
                self._say(entry, "its version was removed", left_over=True)
            else:
                self._look_at_version(name, numbers[entry.name], entry)
                there.add(numbers[entry.name])
        for number in sorted({change.version for change in history.changes} - removed - there):
            self._unread = True
            self._say(path, f"it has version {number}, whose manifest is missing")

    def _look_at_version(self, name: str, number: int, path: Path) -> None:
        self._versions += 1
        try:
            version = self._folder.manifest(name, number)
        except (PytrtpluginsError, OSError) as error:
            self._unread = True
            return self._say(path, _first_line(error))
        for file in version.files.values():
            self._needed[file.sha256] = (f"{version} ({file.name})", file.bytes)

    def _look_at_file(self, path: Path, user: str, size: int) -> None:
        try:
            root = self._folder.path
            right = regular_size(path, within=root) == size
            right = right and (not self._contents or sha256_hex(path, within=root) == path.name)
            state = "" if right else "damaged: its contents do not have the digest that is its name"
        except FileNotFoundError:
            state = "missing"
        except (OSError, PytrtpluginsError) as error:
            state = _first_line(error)
        if state:
            self._say(path, f"{state}; {user} needs it. Do: add that file again, which restores it")

    def _look_for_orphans(self) -> None:
        """Find leftovers of killed processes; skipped while a manifest is unreadable, since its files are unknown."""
        for path in self._folder.files():
            if path.name.startswith(".") and ".part" in path.name:
                self._say(path, "a process that was killed left it over", left_over=True)
            elif self._folder.objects in path.parents and (
                path.name not in self._needed or path != self._folder.object(path.name)
            ):
                self._say(path, "no version needs it", left_over=not self._unread)

    def _say(self, path: Path, text: str, left_over: bool = False) -> None:
        self._problems.append(Problem(str(path), text, left_over))


def _first_line(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and not isinstance(error, ModelRegistryError) else None
    return (text or str(error)).partition("\n")[0]
