"""The parsed file of a pipeline, and its errors with line numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ...errors import PipelineError
from ...utils.declared import nearest
from ...utils.file_with_lines import Names
from ...utils.listing import first_texts
from ...utils.text_formats import shorten
from ...utils.yaml_file import YamlFile
from .record import Scalar
from .step import Step

__all__ = ["Description", "Problem", "check_keys", "is_scalar", "read_mapping"]

Problem: TypeAlias = tuple[Names, str]
"""Where in a description something is wrong, and what."""

_MOST_PROBLEMS = 100


@dataclass
class Description:
    """The parsed file of a pipeline, as far as it could be read.

    Attributes:
        file: The file.
        name: Of the pipeline.
        folder: What paths are relative to.
        steps: In the order of the file, with those of a matrix one by one.
        parameters: With the user's values.
        schedule: Fields of cron.
        on_exit: What runs at the end.
        remote: Where results are shared.
        problems: Everything that is wrong.
        families: For steps of a matrix the name that they have in the file.
    """

    file: YamlFile
    name: str = ""
    folder: Path = Path()
    steps: tuple[Step, ...] = ()
    parameters: dict[str, Scalar] = field(default_factory=dict)
    schedule: str | None = None
    on_exit: Step | None = None
    remote: str = ""
    problems: dict[Problem, None] = field(default_factory=dict)
    families: dict[str, str] = field(default_factory=dict)

    def refuse(self, where: Names, what: str) -> None:
        """Note what is wrong."""
        self.problems[where, what.replace("\nDo: write ", " Write ")] = None

    def error(self, more: Sequence[Problem]) -> PipelineError:
        """The error with all problems, by line."""
        problems = [
            *self.problems,
            *((self._place(names), what) for names, what in more if not (names == ("steps",) and self.problems)),
        ]
        placed = sorted(
            dict.fromkeys((self._line(names), names, what) for names, what in problems), key=lambda problem: problem[0]
        )
        lines = [f"{self.file.path}, line {line}: {'.'.join(map(str, names))}: {what}" for line, names, what in placed]
        shown = first_texts(lines, _MOST_PROBLEMS, "\n", "\nand ")
        return PipelineError(
            f"{shown}\nDo: correct the file, then pytrt pipeline check {self.file.path}",
            path=self.file.path,
            line=placed[0][0] or None,
            problems=tuple((line, what) for line, _, what in placed),
        )

    def _place(self, names: Names) -> Names:
        """The key in the file for a name of the pipeline."""
        return (
            (names[0], self.families.get(str(names[1]), names[1]), *names[2:])
            if names[:1] == ("steps",) and names[1:]
            else names
        )

    def _line(self, names: Names) -> int:
        """The line number of a key, or of its nearest parent in the file."""
        return next((line for end in range(len(names), 0, -1) if (line := self.file.line(names[:end]))), 1)


def check_keys(description: Description, where: Names, data: Mapping[Any, Any], known_keys: Sequence[str]) -> None:
    """Refuse unknown keys."""
    for key in data:
        if key not in known_keys:
            description.refuse((*where, str(key)), f"is not known.{nearest(str(key), known_keys)}")


def read_mapping(description: Description, where: Names, value: Any) -> dict[Any, Any]:
    """A mapping; anything else is refused and read as empty."""
    if isinstance(value, dict):
        return value
    description.refuse(where, f"expected keys and values, found {shorten(value)}")
    return {}


def is_scalar(value: Any) -> bool:
    """Whether it is a text, a number or a truth value."""
    return isinstance(value, (bool, int, float, str))
