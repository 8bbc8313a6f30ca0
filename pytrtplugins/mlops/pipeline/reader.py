"""A pipeline in YAML → its steps; everything that is wrong with it is found at once, with lines."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ...errors import PipelineError, UsageError
from ...utils.declared import nearest
from ...utils.numbers import Real
from ...utils.placed_file import Names
from ...utils.text_formats import shorten
from ...utils.yaml_file import YamlFile
from ...utils.yaml_scalars import Unquoted, WrittenFloat, WrittenInt
from .command import split_command
from .description import Description, check_keys, is_scalar, read_mapping
from .placeholders import Scope, fill_placeholders, fill_words, written
from .record import Scalar
from .step import Resources, Retry, Step
from .units import is_whole, read_bytes, read_cores, read_count, read_seconds

__all__ = ["read_description"]

_KEYS = ("name", "folder", "parameters", "schedule", "remote", "on_exit", "steps")
_STEP_KEYS = ("command", "function", "gate", "inputs", "outputs", "metrics", "stdout", "parameters", "environment", "secrets",
              "resources", "retry", "time_limit", "approval", "stateful", "matrix", "when")  # fmt: skip
_LISTS = ("inputs", "outputs", "metrics", "environment", "secrets")
_TEXTS = ("function", "gate", "stdout")
_BY = "by"
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_MOST_STEPS = 1000


def read_description(path: Path, values: Mapping[str, str]) -> Description:
    """Read a file.

    Args:
        path: The file.
        values: Parameters as a user typed them.

    Raises:
        FormatError: it is not YAML that `parse_yaml` takes.
        UsageError: there is no such parameter, or its value has another type.
        OSError: it cannot be read.
    """
    found = Description(YamlFile.read(path))
    data = found.file.data
    check_keys(found, (), data, _KEYS)
    for key in ("name", "folder", "schedule", "remote"):
        if key in data and not isinstance(data[key], str):
            found.refuse((key,), f"expected a text, found {shorten(data[key])}")
        elif key in data and key != "folder":
            setattr(found, key, data[key])
    if "name" not in data:
        found.refuse(("name",), "is missing: pipelines are remembered by their names")
    folder = data.get("folder", ".")
    found.folder = path.parent / (folder if isinstance(folder, str) else ".")
    if not found.folder.is_dir():
        found.refuse(("folder",), f"{found.folder} is no folder")
    found.parameters = _parameters(found, values)
    steps = data.get("steps")
    if not isinstance(steps, dict) or not steps:
        found.refuse(("steps",), f"expected steps by their names, found {shorten(steps)}")
        steps = {}
    _read_steps(found, steps)
    if "on_exit" in data:
        made = list(_steps(found, ("on_exit",), "on-exit", data["on_exit"], {}))
        found.on_exit = made[0] if made else None
    return found


# --- parameters --------------------------------------------------------------------------------------------------------


def _parameters(found: Description, values: Mapping[str, str]) -> dict[str, Scalar]:
    declared = read_mapping(found, ("parameters",), found.file.data.get("parameters", {}))
    for name in values:
        if name not in declared:
            raise UsageError(
                f"--parameter {name}: {found.file.path} has no such parameter.{nearest(name, map(str, declared))}"
            )
    made: dict[str, Scalar] = {}
    for name, value in sorted(declared.items(), key=lambda item: isinstance(item[1], dict)):  # choices last
        if not isinstance(name, str) or not name.isidentifier():
            found.refuse(("parameters",), f"{shorten(name)}: expected a name of letters, digits and _")
            continue
        chosen = _chosen(found, ("parameters", name), value, made)
        if chosen is not None and not is_scalar(chosen):
            found.refuse(("parameters", name), f"expected a text, a number or a truth value, found {shorten(chosen)}")
        elif chosen is not None:
            made[name] = _typed(name, values[name], chosen) if name in values else chosen
    return {name: made[name] for name in declared if name in made}


def _chosen(found: Description, where: Names, value: Any, parameters: Mapping[str, Scalar]) -> Any:
    """A value; or, of ``{by: size, full: 500, smoke: 16}``, the one for the parameter ``size``."""
    if not isinstance(value, dict) or _BY not in value:
        return value
    by, choices = value[_BY], {written(key): item for key, item in value.items() if key != _BY}
    if by not in parameters:
        found.refuse((*where, _BY), f"there is no parameter {shorten(by)}.{nearest(str(by), parameters)}")
        return None
    if (name := written(parameters[by])) not in choices:
        found.refuse(where, f"has nothing for {by}={name}.{nearest(name, choices)}")
        return None
    return choices[name]


def _typed(name: str, text: str, like: Scalar) -> Scalar:
    """What a user typed, in the type of the value that it replaces."""
    if isinstance(like, str):
        return text
    try:
        if isinstance(like, bool):
            return {"true": True, "false": False}[text]
        Real(-1e300, 1e300).read(text)
        return WrittenInt(text) if _WHOLE.fullmatch(text) else WrittenFloat(text)
    except (ValueError, KeyError):
        kind = "true or false" if isinstance(like, bool) else "a number"
        raise UsageError(f"--parameter {name}: expected {kind}, as {written(like)} is, found {shorten(text)}") from None


# --- steps -------------------------------------------------------------------------------------------------------------


def _read_steps(found: Description, steps: Mapping[Any, Any]) -> None:
    scope: dict[str, Scalar | tuple[str, ...]] = dict(found.parameters)
    kept = {}
    for family, raw in steps.items():
        where: Names = ("steps", written(family))
        if not isinstance(raw, dict):
            found.refuse(where, f"expected the keys of a step, found {shorten(raw)}")
        elif _wanted(found, where, raw):
            kept[written(family)] = raw
    for family, raw in kept.items():
        paths = [
            path for values in _grid(found, ("steps", family), raw) for path in _outputs(found, family, raw, values)
        ]
        scope[f"steps.{family}.outputs"] = tuple(dict.fromkeys(paths))
    made: list[Step] = []
    for family, raw in kept.items():
        made += _steps(found, ("steps", family), family, raw, scope)
    found.steps = tuple(made)
    found.families = {step.name: step.family for step in made}


def _wanted(found: Description, where: Names, raw: Mapping[str, Any]) -> bool:
    """Whether ``when`` keeps a step: each parameter is written as the value, or one of the values, that it names."""
    wanted = True
    for name, values in read_mapping(found, (*where, "when"), raw.get("when", {})).items():
        if name not in found.parameters:
            found.refuse(
                (*where, "when"), f"there is no parameter {shorten(name)}.{nearest(str(name), found.parameters)}"
            )
        else:
            named = values if isinstance(values, list) else [values]
            wanted = wanted and written(found.parameters[name]) in map(written, named)
    return wanted


def _grid(found: Description, where: Names, raw: Mapping[str, Any]) -> list[dict[str, Scalar]]:
    """The values of each step of a matrix; of a step without one, none."""
    axes = {}
    for name, values in read_mapping(found, (*where, "matrix"), raw.get("matrix", {})).items():
        values = _chosen(found, (*where, "matrix", name), values, found.parameters)
        if not isinstance(values, list) or not values or not all(map(is_scalar, values)):
            found.refuse((*where, "matrix", name), f"expected a list of values, found {shorten(values)}")
            return []
        axes[str(name)] = values
    if len(axes) and (count := _product(axes)) > _MOST_STEPS:
        found.refuse((*where, "matrix"), f"expected at most {_MOST_STEPS:,} steps, found {count:,}")
        return []
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _product(axes: Mapping[str, Sequence[Any]]) -> int:
    count = 1
    for values in axes.values():
        count *= len(values)
    return count


def _outputs(found: Description, family: str, raw: Mapping[str, Any], matrix: Mapping[str, Scalar]) -> Iterator[str]:
    scope = {**found.parameters, **_own(found, ("steps", family), raw, {**found.parameters, **matrix}), **matrix}
    for key in ("outputs", "metrics", "stdout"):
        for number, text in enumerate([raw[key]] if key == "stdout" and key in raw else raw.get(key, ()) or ()):
            if isinstance(text, str):
                try:
                    yield from fill_words(text, scope)
                except PipelineError as error:
                    found.refuse(("steps", family, key, number), str(error))


def _own(found: Description, where: Names, raw: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """A step's own parameters; a text that is one place takes the value with its type."""
    made: dict[str, Any] = {}
    for name, value in read_mapping(found, (*where, "parameters"), raw.get("parameters", {})).items():
        whole = re.fullmatch(r"\$\{(\w+)\}", value) if isinstance(value, str) else None
        try:
            if whole and whole[1] in scope:
                made[str(name)] = scope[whole[1]]
            else:
                made[str(name)] = fill_placeholders(value, scope) if isinstance(value, str) else value
        except PipelineError as error:
            found.refuse((*where, "parameters", name), str(error))
        if "function" in raw and isinstance(made.get(str(name)), Unquoted):
            found.refuse(
                (*where, "parameters", name),
                f"a function would get the text {made[str(name)]!r}: write true, false, or the text in quotes",
            )
    return made


def _steps(found: Description, where: Names, family: str, raw: Any, scope: Scope) -> Iterator[Step]:
    """The steps that one entry stands for."""
    if not isinstance(raw, dict):
        found.refuse(where, f"expected the keys of a step, found {shorten(raw)}")
        return
    check_keys(found, where, raw, _STEP_KEYS)
    for matrix in _grid(found, where, raw):
        own = _own(found, where, raw, {**(scope or found.parameters), **matrix})
        values = {**(scope or found.parameters), **own, **matrix}
        try:
            yield _StepReader(found, where, raw, values, own).read(family, matrix)
        except PipelineError as error:
            for key, what in cast("tuple[tuple[str, str], ...]", error.problems):
                found.refuse((*where, key), what)


@dataclass
class _StepReader:
    """One step of an entry."""

    found: Description
    where: Names
    raw: Mapping[str, Any]
    scope: dict[str, Scalar | tuple[str, ...]]
    own: dict[str, Any]

    def read(self, family: str, matrix: dict[str, Scalar]) -> Step:
        lists = {key: tuple(self._words(key)) for key in _LISTS if key in self.raw}
        texts = {key: self._text((key,), self.raw[key]) for key in _TEXTS if key in self.raw}
        self.scope |= {
            "inputs": lists.get("inputs", ()),
            "outputs": lists.get("outputs", ()),
            "metrics": lists.get("metrics", ()),
        }
        name = "-".join(
            [family, *(re.sub(r"[^a-z0-9]+", "-", written(value).lower()).strip("-") for value in matrix.values())]
        )
        return Step(
            name=name,
            family=family,
            matrix=matrix,
            command=self._command(),
            parameters=self.own,
            resources=self._resources(),
            retry=self._retry(),
            time_limit=self._read(("time_limit",), self.raw.get("time_limit"), read_seconds, None),
            approval=self._flag("approval"),
            stateful=self._flag("stateful"),
            **lists,  # type: ignore[arg-type]
            **texts,  # type: ignore[arg-type]
        )

    def _refuse(self, keys: Names, what: str) -> None:
        self.found.refuse((*self.where, *keys), what)

    def _words(self, key: str) -> Iterator[str]:
        values = self.raw[key]
        if not isinstance(values, list):
            return self._refuse((key,), f"expected a list, found {shorten(values)}")
        for number, text in enumerate(values):
            if not isinstance(text, str):
                self._refuse((key, number), f"expected a text, found {shorten(text)}")
            else:
                yield from self._filled((key, number), text)
        return None

    def _filled(self, keys: Names, text: str) -> list[str]:
        try:
            return fill_words(text, self.scope)
        except PipelineError as error:
            self._refuse(keys, str(error))
            return []

    def _text(self, keys: Names, value: Any) -> str:
        if not isinstance(value, str):
            self._refuse(keys, f"expected a text, found {shorten(value)}")
            return ""
        try:
            return fill_placeholders(" ".join(value.split()), self.scope)
        except PipelineError as error:
            self._refuse(keys, str(error))
            return ""

    def _command(self) -> tuple[str, ...]:
        """The words of a command: a list, or a text that is split as a shell would split it, before values are put in."""
        value = self.raw.get("command", [])
        try:
            words = split_command(written(value)) if is_scalar(value) else value
        except ValueError as error:
            self._refuse(("command",), str(error))
            return ("?",)
        if not isinstance(words, list) or not all(map(is_scalar, words)):
            self._refuse(("command",), f"expected a text, or a list of words, found {shorten(value)}")
            return ("?",)
        filled = [self._filled(("command",), written(word)) for word in words]
        return tuple(word for each in filled for word in each) or (("?",) if "command" in self.raw else ())

    def _resources(self) -> Resources:
        found = self._part("resources", ("cpu", "memory", "gpu"))
        return Resources(
            cpu=self._read(("resources", "cpu"), found.get("cpu"), read_cores, None),
            memory=self._read(("resources", "memory"), found.get("memory"), read_bytes, None),
            gpu=self._read(("resources", "gpu"), found.get("gpu"), read_count, 0),
        )

    def _retry(self) -> Retry:
        value = self.raw.get("retry", {})
        if is_whole(value):
            return Retry(limit=value)
        found = self._part("retry", ("limit", "backoff"))
        backoff = self._read(("retry", "backoff"), found.get("backoff"), read_seconds, Retry.backoff)
        return Retry(found.get("limit", 0), Retry.backoff if backoff is None else backoff)

    def _part(self, key: str, known: Sequence[str]) -> dict[str, Any]:
        found = read_mapping(self.found, (*self.where, key), self.raw.get(key, {}))
        check_keys(self.found, (*self.where, key), found, known)
        return found

    def _read(self, keys: Names, value: Any, read: Any, default: Any) -> Any:
        if value is None:
            return default
        try:
            return read(self._text(keys, value) if isinstance(value, str) else value)
        except ValueError as error:
            self._refuse(keys, str(error))
            return default

    def _flag(self, key: str) -> bool:
        value = self.raw.get(key, False)
        if not isinstance(value, bool):
            self._refuse((key,), f"expected true or false, found {shorten(value)}")
        return value is True
