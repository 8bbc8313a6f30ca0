"""Find the parameters that a cluster can change at run time: those that are only used in command words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ....errors import PytrtpluginsError
from ..pipeline import Pipeline
from ..placeholders import value_text
from ..step import Step

__all__ = ["LivePipeline", "load_live"]

_FREE = {"command", "gate", "parameters"}
"""Fields of a step that become words of its command."""
_WORD, _NUMBER = "pytrt-place-of-a-parameter-{}", 730_128_465_000


@dataclass(frozen=True)
class LivePipeline:
    """A pipeline, and the parameters that stay variable.

    Attributes:
        pipeline: With the parameters' values.
        live: Parameters that only go into words of commands, with their values as text.
        commands: The words of each step's command, and of ``on_exit`` as the step ``""``, with ``{{workflow.parameters.NAME}}`` where a
            live parameter goes.
    """

    pipeline: Pipeline
    live: Mapping[str, str]
    commands: Mapping[str, tuple[str, ...]]


def load_live(source: str | Path, values: Mapping[str, str] | None = None) -> LivePipeline:
    """Load a pipeline, and find the parameters that stay variable.

    It is loaded again with a value that occurs nowhere else in place of each parameter's. Where this changes words of commands and
    nothing else, the parameter is live. Others decide which steps there are, what these take and give, or what they need; they stay as
    they are; so do truth values, and parameters whose names are not ASCII.

    Args:
        source: As `Pipeline.load` takes it.
        values: Parameters as a user typed them.

    Raises:
        PytrtpluginsError: as `Pipeline.load` raises it.
    """
    values = dict(values or {})
    base = Pipeline.load(source, values)
    stands_for: dict[str, str] = {}
    for number, (name, value) in enumerate(base.parameters.items()):
        if name.isascii() and (text := _unique(value, number)) and _is_live(source, values, base, name, text):
            stands_for[name] = text
    with_places = Pipeline.load(source, {**values, **stands_for}) if stands_for else base
    places = {text: f"{{{{workflow.parameters.{name}}}}}" for name, text in stands_for.items()}
    return LivePipeline(
        base,
        {name: value_text(base.parameters[name]) for name in stands_for},
        {
            name: tuple(_replace_placeholders(word, places) for word in step.argv())
            for name, step in _steps(with_places).items()
        },
    )


def _unique(value: Any, number: int) -> str:
    """A value of the same type that occurs nowhere else; empty where the type has none."""
    if isinstance(value, bool):
        return ""
    if isinstance(value, str):
        return _WORD.format(number)
    return str(_NUMBER + number)


def _is_live(source: str | Path, values: dict[str, str], base: Pipeline, name: str, text: str) -> bool:
    try:
        other = Pipeline.load(source, {**values, name: text})
    except (PytrtpluginsError, OSError):
        return False
    before, after = _steps(base), _steps(other)
    back = {text: value_text(base.parameters[name])}
    return (
        list(before) == list(after)
        and other.parameters == {**base.parameters, name: other.parameters[name]}
        and all(_same(before[step_name], after[step_name], back) for step_name in before)
        and any(text in word for step in after.values() for word in step.argv())
    )


def _same(before: Step, after: Step, back: Mapping[str, str]) -> bool:
    """Whether steps differ at most in words, and those are the same with the value put back."""
    return all(
        getattr(before, item.name) == getattr(after, item.name) for item in fields(Step) if item.name not in _FREE
    ) and before.argv() == tuple(_replace_placeholders(word, back) for word in after.argv())


def _replace_placeholders(word: str, places: Mapping[str, str]) -> str:
    """Replace placeholders of parameters in a word, the longest first, since one may be a prefix of another."""
    for text in sorted(places, key=len, reverse=True):
        word = word.replace(text, places[text])
    return word


def _steps(pipeline: Pipeline) -> dict[str, Step]:
    return {step.name: step for step in pipeline.steps} | ({"": pipeline.on_exit} if pipeline.on_exit else {})
