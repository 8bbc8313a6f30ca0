"""Rows by a list: which of them run, in which order, and which of several processes runs which."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Claims", "read_rows", "row_of", "write_rows"]

Groups = Sequence[Sequence[str]]


def row_of(name: str) -> str:
    """The row's name in that of a test: what stands in its brackets."""
    return name.partition("[")[2].removesuffix("]")


def read_rows(path: Path) -> list[list[str]]:
    """Groups of rows: a row on each line, as a record's list of what it left out names it; an empty line ends a group.

    Raises:
        ValueError: a row stands there twice.
    """
    groups: list[list[str]] = [[]]
    for line in (line.strip() for line in path.read_text("utf-8").splitlines()):
        if not line:
            groups.append([])
        elif not line.startswith("#"):
            groups[-1].append(line)
    rows = [row for group in groups for row in group]
    if twice := sorted({row for row in rows if rows.count(row) > 1}):
        raise ValueError(f"{path}: these rows stand there twice: {'; '.join(twice)}")
    return [group for group in groups if group]


def write_rows(path: Path, groups: Groups) -> None:
    """Write such a list."""
    path.write_text("\n\n".join("\n".join(group) for group in groups) + "\n", "utf-8")


class Claims:
    """What several processes tell each other: whose group is whose, and which rows have begun.

    Args:
        folder: Empty when the first process begins.
        owner: This process; one that takes the place of a process that ended has its name, and goes on in its groups.
        groups: The list of all.
    """

    def __init__(self, folder: Path, owner: str, groups: Groups) -> None:
        self._folder, self._owner, self._groups = folder, owner, groups
        self._places = {row: (number, place) for number, group in enumerate(groups) for place, row in enumerate(group)}

    def take(self, row: str) -> bool:
        """Whether this process runs a row: nobody else has its group, and it has not begun before."""
        number, place = self._places[row]
        return self._mine(number, take=True) and self._note(f"row-{number}-{place}")

    def left(self) -> bool:
        """Whether a row has not begun that this process could run."""
        return any(
            not os.path.lexists(self._folder / f"row-{number}-{place}")
            for number, place in self._places.values()
            if self._mine(number, take=False)
        )

    def _mine(self, number: int, take: bool) -> bool:
        """Whether a group is this process's, or could become so."""
        if take:
            self._note(f"group-{number}")
        try:
            return os.readlink(self._folder / f"group-{number}") == self._owner
        except FileNotFoundError:
            return not take

    def _note(self, name: str) -> bool:
        """Make a note that no other process has made: a link, which is there with its text at once."""
        with contextlib.suppress(FileExistsError):
            os.symlink(self._owner, self._folder / name)
            return True
        return False
