"""Read a pipeline's YAML into steps; all errors are reported at once, with line numbers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ...errors import PipelineError, UsageError
from ...utils.declared import nearest
from ...utils.file_with_lines import Names
from ...utils.numbers import FloatRange
from ...utils.text_formats import shorten
from ...utils.yaml_file import YamlFile
from ...utils.yaml_scalars import Unquoted, WrittenFloat, WrittenInt
from .command import split_command
from .description import Description, check_keys, is_scalar, read_mapping
from .placeholders import Scope, fill_placeholders, fill_words, value_text
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
    description = Description(YamlFile.read(path))
    data = description.file.data
    check_keys(description, (), data, _KEYS)
    for key in ("name", "folder", "schedule", "remote"):
        if key in data and not isinstance(data[key], str):
            description.refuse((key,), f"expected a text, found {shorten(data[key])}")
        elif key in data and key != "folder":
            setattr(description, key, data[key])
    if "name" not in data:
        description.refuse(("name",), "is missing: pipelines are remembered by their names")
    folder = data.get("folder", ".")
    description.folder = path.parent / (folder if isinstance(folder, str) else ".")
    if not description.folder.is_dir():
        description.refuse(("folder",), f"{description.folder} is no folder")
    description.parameters = _parameters(description, values)
    steps = data.get("steps")
    if not isinstance(steps, dict) or not steps:
        description.refuse(("steps",), f"expected steps by their names, found {shorten(steps)}")
        steps = {}
    _read_steps(description, steps)
    if "on_exit" in data:
        exit_steps = list(_steps(description, ("on_exit",), "on-exit", data["on_exit"], {}))
        description.on_exit = exit_steps[0] if exit_steps else None
    return description


# --- parameters --------------------------------------------------------------------------------------------------------


def _parameters(description: Description, values: Mapping[str, str]) -> dict[str, Scalar]:
    declared = read_mapping(description, ("parameters",), description.file.data.get("parameters", {}))
    for name in values:
        if name not in declared:
            raise UsageError(
                f"--parameter {name}: {description.file.path} has no such parameter.{nearest(name, map(str, declared))}"
            )
    parameters: dict[str, Scalar] = {}
    for name, value in sorted(declared.items(), key=lambda item: isinstance(item[1], dict)):  # choices last
        if not isinstance(name, str) or not name.isidentifier():
            description.refuse(("parameters",), f"{shorten(name)}: expected a name of letters, digits and _")
            continue
        chosen = _choose(description, ("parameters", name), value, parameters)
        if chosen is not None and not is_scalar(chosen):
            description.refuse(
                ("parameters", name), f"expected a text, a number or a truth value, found {shorten(chosen)}"
            )
        elif chosen is not None:
            parameters[name] = _to_type_of(name, values[name], chosen) if name in values else chosen
    return {name: parameters[name] for name in declared if name in parameters}


def _choose(description: Description, where: Names, value: Any, parameters: Mapping[str, Scalar]) -> Any:
    """A value; of ``{by: size, full: 500, smoke: 16}``, the one for the parameter ``size``."""
    if not isinstance(value, dict) or _BY not in value:
        return value
    by, choices = value[_BY], {value_text(key): item for key, item in value.items() if key != _BY}
    if by not in parameters:
        description.refuse((*where, _BY), f"there is no parameter {shorten(by)}.{nearest(str(by), parameters)}")
        return None
    if (name := value_text(parameters[by])) not in choices:
        description.refuse(where, f"has nothing for {by}={name}.{nearest(name, choices)}")
        return None
    return choices[name]


def _to_type_of(name: str, text: str, like: Scalar) -> Scalar:
    """Convert a user's text to the type of the value that it replaces."""
    if isinstance(like, str):
        return text
    try:
        if isinstance(like, bool):
            return {"true": True, "false": False}[text]
        FloatRange(-1e300, 1e300).read(text)
        return WrittenInt(text) if _WHOLE.fullmatch(text) else WrittenFloat(text)
    except (ValueError, KeyError):
        kind = "true or false" if isinstance(like, bool) else "a number"
        raise UsageError(
            f"--parameter {name}: expected {kind}, as {value_text(like)} is, found {shorten(text)}"
        ) from None


# --- steps -------------------------------------------------------------------------------------------------------------


def _read_steps(description: Description, steps: Mapping[Any, Any]) -> None:
    scope: dict[str, Scalar | tuple[str, ...]] = dict(description.parameters)
    families = {}
    for family, raw in steps.items():
        where: Names = ("steps", value_text(family))
        if not isinstance(raw, dict):
            description.refuse(where, f"expected the keys of a step, found {shorten(raw)}")
        elif _is_selected(description, where, raw):
            families[value_text(family)] = raw
    for family, raw in families.items():
        paths = [
            path
            for values in _grid(description, ("steps", family), raw)
            for path in _outputs(description, family, raw, values)
        ]
        scope[f"steps.{family}.outputs"] = tuple(dict.fromkeys(paths))
    read_steps: list[Step] = []
    for family, raw in families.items():
        read_steps += _steps(description, ("steps", family), family, raw, scope)
    description.steps = tuple(read_steps)
    description.families = {step.name: step.family for step in read_steps}


def _is_selected(description: Description, where: Names, raw: Mapping[str, Any]) -> bool:
    """Whether ``when`` selects a step: each parameter has the value, or one of the values, that it names."""
    is_selected = True
    for name, values in read_mapping(description, (*where, "when"), raw.get("when", {})).items():
        if name not in description.parameters:
            description.refuse(
                (*where, "when"), f"there is no parameter {shorten(name)}.{nearest(str(name), description.parameters)}"
            )
        else:
            named = values if isinstance(values, list) else [values]
            is_selected = is_selected and value_text(description.parameters[name]) in map(value_text, named)
    return is_selected


def _grid(description: Description, where: Names, raw: Mapping[str, Any]) -> list[dict[str, Scalar]]:
    """The values of each step of a matrix; of a step without one, none."""
    axes = {}
    for name, values in read_mapping(description, (*where, "matrix"), raw.get("matrix", {})).items():
        values = _choose(description, (*where, "matrix", name), values, description.parameters)
        if not isinstance(values, list) or not values or not all(map(is_scalar, values)):
            description.refuse((*where, "matrix", name), f"expected a list of values, found {shorten(values)}")
            return []
        axes[str(name)] = values
    if len(axes) and (count := _product(axes)) > _MOST_STEPS:
        description.refuse((*where, "matrix"), f"expected at most {_MOST_STEPS:,} steps, found {count:,}")
        return []
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _product(axes: Mapping[str, Sequence[Any]]) -> int:
    count = 1
    for values in axes.values():
        count *= len(values)
    return count


def _outputs(
    description: Description, family: str, raw: Mapping[str, Any], matrix: Mapping[str, Scalar]
) -> Iterator[str]:
    scope = {
        **description.parameters,
        **_step_parameters(description, ("steps", family), raw, {**description.parameters, **matrix}),
        **matrix,
    }
    for key in ("outputs", "metrics", "stdout"):
        for number, text in enumerate([raw[key]] if key == "stdout" and key in raw else raw.get(key, ()) or ()):
            if isinstance(text, str):
                try:
                    yield from fill_words(text, scope)
                except PipelineError as error:
                    description.refuse(("steps", family, key, number), str(error))


def _step_parameters(description: Description, where: Names, raw: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """A step's own parameters; a text that is one placeholder takes the value with its type."""
    own_parameters: dict[str, Any] = {}
    for name, value in read_mapping(description, (*where, "parameters"), raw.get("parameters", {})).items():
        placeholder = re.fullmatch(r"\$\{(\w+)\}", value) if isinstance(value, str) else None
        try:
            if placeholder and placeholder[1] in scope:
                own_parameters[str(name)] = scope[placeholder[1]]
            else:
                own_parameters[str(name)] = fill_placeholders(value, scope) if isinstance(value, str) else value
        except PipelineError as error:
            description.refuse((*where, "parameters", name), str(error))
        if "function" in raw and isinstance(own_parameters.get(str(name)), Unquoted):
            description.refuse(
                (*where, "parameters", name),
                f"a function would get the text {own_parameters[str(name)]!r}: write true, false, or the text in quotes",
            )
    return own_parameters


def _steps(description: Description, where: Names, family: str, raw: Any, scope: Scope) -> Iterator[Step]:
    """The steps of one entry."""
    if not isinstance(raw, dict):
        description.refuse(where, f"expected the keys of a step, found {shorten(raw)}")
        return
    check_keys(description, where, raw, _STEP_KEYS)
    for matrix in _grid(description, where, raw):
        own = _step_parameters(description, where, raw, {**(scope or description.parameters), **matrix})
        values = {**(scope or description.parameters), **own, **matrix}
        try:
            yield _StepReader(description, where, raw, values, own).read(family, matrix)
        except PipelineError as error:
            for key, what in cast("tuple[tuple[str, str], ...]", error.problems):
                description.refuse((*where, key), what)


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
            [family, *(re.sub(r"[^a-z0-9]+", "-", value_text(value).lower()).strip("-") for value in matrix.values())]
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
                yield from self._fill((key, number), text)
        return None

    def _fill(self, keys: Names, text: str) -> list[str]:
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
            words = split_command(value_text(value)) if is_scalar(value) else value
        except ValueError as error:
            self._refuse(("command",), str(error))
            return ("?",)
        if not isinstance(words, list) or not all(map(is_scalar, words)):
            self._refuse(("command",), f"expected a text, or a list of words, found {shorten(value)}")
            return ("?",)
        filled = [self._fill(("command",), value_text(word)) for word in words]
        return tuple(word for group in filled for word in group) or (("?",) if "command" in self.raw else ())

    def _resources(self) -> Resources:
        part = self._part("resources", ("cpu", "memory", "gpu"))
        return Resources(
            cpu=self._read(("resources", "cpu"), part.get("cpu"), read_cores, None),
            memory=self._read(("resources", "memory"), part.get("memory"), read_bytes, None),
            gpu=self._read(("resources", "gpu"), part.get("gpu"), read_count, 0),
        )

    def _retry(self) -> Retry:
        value = self.raw.get("retry", {})
        if is_whole(value):
            return Retry(limit=value)
        part = self._part("retry", ("limit", "backoff"))
        backoff = self._read(("retry", "backoff"), part.get("backoff"), read_seconds, Retry.backoff)
        return Retry(part.get("limit", 0), Retry.backoff if backoff is None else backoff)

    def _part(self, key: str, known_keys: Sequence[str]) -> dict[str, Any]:
        part = read_mapping(self.found, (*self.where, key), self.raw.get(key, {}))
        check_keys(self.found, (*self.where, key), part, known_keys)
        return part

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
