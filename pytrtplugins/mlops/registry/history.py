"""The history of a model's versions, which alone determines their stages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, get_args

from ...errors import ModelRegistryError
from ...utils.text_formats import shorten

__all__ = ["STAGES", "Change", "History", "Stage"]

Stage = Literal["staging", "production", "archived"]
"""Of a version: being tried, being served, or retired; None: in none yet."""
STAGES = get_args(Stage)

Action = Literal["promote", "rollback", "remove"]
_LONGEST_TEXT = 2000
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True)
class Change:
    """A change of a stage.

    Attributes:
        time: When, in UTC, such as ``2026-01-31T12:00:00Z``.
        who: Who made it.
        why: The reason that was given; empty where none was.
        action: ``promote``: the version came into the stage; ``rollback``: it came back; ``remove``: it was removed from the registry.
        version: Which.
        stage: Which stage; None where the version was removed.
    """

    time: str
    who: str
    why: str
    action: Action
    version: int
    stage: Stage | None = None

    @classmethod
    def from_json(cls, facts: Any) -> Change:
        """Read what `dataclasses.asdict` made.

        Raises:
            ModelRegistryError: it is something else.
        """
        if not isinstance(facts, dict) or facts.keys() != {"time", "who", "why", "action", "version", "stage"}:
            raise ModelRegistryError(f"not a change of a stage: {shorten(facts)}")
        texts = [facts["who"], facts["why"]]
        if (
            not all(isinstance(text, str) and len(text) <= _LONGEST_TEXT for text in texts)
            or not (isinstance(facts["time"], str) and _TIME.fullmatch(facts["time"]))
            or facts["action"] not in get_args(Action)
            or type(facts["version"]) is not int
            or facts["version"] < 1
            or (facts["stage"] not in STAGES if facts["action"] != "remove" else facts["stage"] is not None)
        ):
            raise ModelRegistryError(f"not a change of a stage: {shorten(facts)}")
        return cls(**facts)


@dataclass(frozen=True)
class History:
    """All changes of a model's stages, the oldest first.

    A stage is a stack: `promote` puts a version on it, `rollback` takes it off again, and the version below it is back. So a second
    rollback goes a step further back, and does not return to what the first one left. Production is never empty again once a version
    was there.

    Attributes:
        changes: All of them.
    """

    changes: tuple[Change, ...] = ()

    def stacks(self) -> dict[Stage, list[int]]:
        """By stage, the versions that were promoted and not rolled back, the present one last.

        Raises:
            ModelRegistryError: a change was not possible.
        """
        by_stage: dict[Stage, list[int]] = {"staging": [], "production": []}
        removed: set[int] = set()
        for change in self.changes:
            if change.version in removed:
                raise ModelRegistryError(f"version {change.version} was removed before")
            if change.action == "remove":
                removed.add(change.version)
            _CHANGES[change.action](by_stage, change)
        return by_stage

    def removed(self) -> set[int]:
        """The removed versions."""
        return {change.version for change in self.changes if change.action == "remove"}

    def current(self, stage: Stage) -> int | None:
        """The version in a stage; None: there is none."""
        stack = self.stacks().get(stage)
        return stack[-1] if stack else None

    def before(self, stage: Stage) -> int | None:
        """The version that a rollback returns to; None: there is none."""
        stack = self.stacks().get(stage, [])
        return stack[-2] if len(stack) > 1 else None

    def stage_of(self, version: int) -> Stage | None:
        """The stage that a version is in: what left production or staging is archived; None: it never was in any."""
        for stage, stack in self.stacks().items():
            if stack[-1:] == [version]:
                return stage
        return "archived" if any(change.version == version for change in self.changes) else None

    def with_change(self, change: Change) -> History:
        """This history with one more change.

        Raises:
            ModelRegistryError: it is not possible.
        """
        history = History((*self.changes, change))
        history.stacks()
        return history

    @classmethod
    def from_json(cls, facts: Any) -> History:
        """Read what `dataclasses.asdict` made.

        Raises:
            ModelRegistryError: it is something else, or contradicts itself.
        """
        if not isinstance(facts, Mapping) or facts.keys() != {"changes"} or not isinstance(facts["changes"], list):
            raise ModelRegistryError(f"not a history of stages: {shorten(facts)}")
        history = cls(tuple(map(Change.from_json, facts["changes"])))
        history.stacks()
        return history


Stacks = dict[Stage, list[int]]


def _promote(stacks: Stacks, change: Change) -> None:
    """Put a version into a stage; it leaves staging, which is empty then."""
    if change.stage != "production" and stacks["production"][-1:] == [change.version]:
        raise ModelRegistryError(f"version {change.version} is in production, which would be empty without it")
    if change.stage != "staging":
        _take_out(stacks["staging"], change.version)
    if change.stage in stacks and stacks[change.stage][-1:] != [change.version]:
        stacks[change.stage].append(change.version)


def _roll_back(stacks: Stacks, change: Change) -> None:
    """Take the version off that is in a stage."""
    stack = stacks.get(change.stage or "archived", [])
    if len(stack) < 2 or stack[-2] != change.version:
        raise ModelRegistryError(f"version {change.version} was not in {change.stage} before the present one")
    stack.pop()


def _remove(stacks: Stacks, change: Change) -> None:
    """Take a version out of all stacks, so that no rollback returns to it."""
    for stage, stack in stacks.items():
        if stack[-1:] == [change.version]:
            raise ModelRegistryError(f"version {change.version} is in {stage}")
        stack[:] = [item for item, _ in groupby(item for item in stack if item != change.version)]


def _take_out(stack: list[int], version: int) -> None:
    stack[:] = [] if stack[-1:] == [version] else [item for item in stack if item != version]


_CHANGES = {"promote": _promote, "rollback": _roll_back, "remove": _remove}
