"""Parse JSON and YAML from unknown sources: limited in size and depth, without aliases or duplicate keys."""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np

from ..errors import FormatError
from .encodings import EncodingError, decode_utf8
from .file_with_lines import Names
from .files import read_regular
from .inside import Failure
from .optional import require
from .yaml_scalars import read_plain

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_YAML_BYTES",
    "parse_json",
    "parse_yaml",
    "parse_yaml_with_lines",
    "read_json",
    "read_yaml",
    "shorten",
    "yaml_text",
]

MAX_BYTES = 16 << 20
MAX_YAML_BYTES = 4 << 20  # PyYAML reads some 0.2 MB a second; the scales of 5,000 tensors take 0.3 MB
MAX_DEPTH = 64
_Made = TypeVar("_Made")
_NOT_A_TEXT = re.compile(r"[yYnN]|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+")
"""What YAML 1.2, or a reader of truth values with one letter, does not take for text."""
_LONGEST_NUMBER = 400  # characters: the largest float64, written out, has 309


def read_json(
    path: str | Path,
    *,
    max_bytes: int = MAX_BYTES,
    allow_nan: bool = False,
    error: Failure = FormatError,
    within: str | Path | None = None,
) -> Any:
    """Read a JSON file; see `parse_json`. ``within`` is that of `open_regular`.

    Raises:
        PytrtpluginsError: as ``error`` makes it, with ``.path`` and, where it is known, ``.line``.
        OSError: it cannot be read.
    """
    data = read_regular(path, max_bytes, error=error, within=within)
    return parse_json(data, path, max_bytes=max_bytes, allow_nan=allow_nan, error=error)


def parse_json(
    data: str | bytes,
    path: str | Path,
    *,
    max_bytes: int = MAX_BYTES,
    allow_nan: bool = False,
    error: Failure = FormatError,
) -> Any:
    """Parse JSON as RFC 8259 has it: UTF-8, each key of an object once, numbers that float64 can hold.

    ``path`` is where the text came from, for messages. NaN and Infinity, which Python's writer writes, are taken where that is
    allowed.

    Raises:
        PytrtpluginsError: it is no such text, or nested more than `MAX_DEPTH` deep; as ``error`` makes it, with ``.path``
            and, where it is known, ``.line``.
    """
    text = _decode(data, path, max_bytes, error)
    _check_depth(text, path, error)

    def constant(word: str) -> float:
        if not allow_nan:
            raise _Refused(f"{word} is not a JSON number")
        return float(word)

    try:
        return json.loads(
            text, object_pairs_hook=_mapping_of_unique, parse_int=_integer, parse_float=_number, parse_constant=constant
        )
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        raise error(f"{path}: not JSON: {problem.msg} in {where}", path=path, line=problem.lineno) from problem
    except _Refused as problem:
        raise error(f"{path}: {problem}", path=path) from problem


def read_yaml(path: str | Path, *, error: Failure = FormatError, within: str | Path | None = None) -> Any:
    """Read a YAML file; see `parse_yaml`.

    Raises:
        PytrtpluginsError: as ``error`` makes it, with ``.path`` and, where it is known, ``.line``.
        MissingExtraError: PyYAML is missing.
        OSError: it cannot be read.
    """
    return parse_yaml(read_regular(path, MAX_YAML_BYTES, error=error, within=within), path, error=error)


def parse_yaml(data: str | bytes, path: str | Path, *, error: Failure = FormatError) -> Any:
    """Parse the YAML that has JSON's values: no aliases, anchors or tags; each key once, and a text or a number.

    Dates are texts. Aliases are refused since a few hundred bytes of them stand for gigabytes.

    Raises:
        PytrtpluginsError: it is no such text, or nested more than `MAX_DEPTH` deep; as ``error`` makes it, with ``.path``
            and, where it is known, ``.line``.
        MissingExtraError: PyYAML is missing.
    """
    return _parse_yaml_by(data, path, error, lambda loader: loader.get_single_data())


def parse_yaml_with_lines(data: str | bytes, path: str | Path) -> tuple[Any, dict[Names, int]]:
    """Parse YAML that people write; also returns the line number of each key and item. See `parse_yaml`.

    Scalars without quotes keep their text, as `yaml_scalars.read_plain` reads them: ``010``, ``12:30:00``, ``on`` and ``~`` are texts.
    """

    def placed(loader: Any) -> tuple[Any, dict[Names, int]]:
        node = loader.get_single_node()
        return (None, {}) if node is None else (loader.construct_document(node), _yaml_lines(node))

    return _parse_yaml_by(data, path, FormatError, placed, _written_loader())


def _parse_yaml_by(
    data: str | bytes, path: str | Path, error: Failure, make: Callable[[Any], _Made], loader: Any = None
) -> _Made:
    """Call ``make`` with a loader of the text; what YAML or this module refuses is an error with the path."""
    yaml = require("yaml", extra="onnx", package="pyyaml", feature="YAML files")
    text = _decode(data, path, MAX_YAML_BYTES, error)
    try:
        return make((loader or _yaml_loader())(text))
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        facts = {"line": mark.line + 1} if mark else {}
        raise error(f"{path}: not usable YAML: {problem.problem}{where}", path=path, **facts) from problem
    except (
        yaml.YAMLError,
        ArithmeticError,
        LookupError,
        ValueError,
    ) as problem:  # such as characters that do not exist
        raise error(f"{path}: not usable YAML: {' '.join(str(problem).split())[:200]}", path=path) from problem


def yaml_text(*documents: Mapping[str, Any], about: str, width: int = 140) -> str:
    """Write documents as YAML, after a comment. Texts with spaces are broken at ``width``, which YAML reads as a space.

    Readers of YAML 1.1 and of 1.2 see the same: ``1e-4`` and ``y`` as texts are in quotes.

    Raises:
        MissingExtraError: PyYAML is missing.
    """
    yaml, dumper = require("yaml", extra="onnx", package="pyyaml", feature="YAML files"), _yaml_dumper()
    head = "".join(f"# {line}".rstrip() + "\n" for line in about.splitlines())
    return head + "---\n".join(
        yaml.dump(document, Dumper=dumper, sort_keys=False, width=width) for document in documents
    )


def shorten(value: object, max_characters: int = 80) -> str:
    """The repr of a value in so many characters, with its middle or its end left out where it is long; it is never made as a whole."""
    short = _ShortRepr()
    short.maxlevel, short.maxstring, short.maxother = 3, max_characters, max_characters
    short.maxlist = short.maxtuple = short.maxset = short.maxfrozenset = short.maxdict = 4
    text = short.repr(value)
    return text if len(text) <= max_characters else f"{text[: max_characters - 4]} ..."


class _ShortRepr(reprlib.Repr):
    """Python's `reprlib.Repr`, which also shortens numbers (Python cannot write the longest) and bytes."""

    def repr_int(self, value: int, level: int) -> str:
        return repr(value) if abs(value) < 1 << 64 else f"<a number of {value.bit_length():,} bits>"

    def repr_bytes(self, value: bytes, level: int) -> str:
        return repr(value[: self.maxother])


class _Refused(ValueError):
    """The text has something that its format allows, but this module does not."""


def _decode(data: str | bytes, path: str | Path, max_bytes: int, error: Failure) -> str:
    """Decode a text as UTF-8."""
    if len(data) > max_bytes:
        raise error(f"{path}: expected at most {max_bytes:,} bytes, found {len(data):,}.", path=path)
    if isinstance(data, str):
        return data
    try:
        return decode_utf8(data)
    except EncodingError as problem:
        raise error(f"{path}: {problem}", path=path, line=problem.line) from problem


def _check_depth(text: str, path: str | Path, error: Failure) -> None:
    """Refuse deep nesting before Python's parser, which recurses once per level, reads the text."""
    outside = "".join(text.replace(r"\\", "").replace(r"\"", "").split('"')[::2])
    codes = np.frombuffer(outside.encode("utf-8", "replace"), np.uint8)
    positions = np.flatnonzero(np.isin(codes, np.frombuffer(b"[{]}", np.uint8)))
    steps = np.where(np.isin(codes[positions], np.frombuffer(b"[{", np.uint8)), 1, -1)
    deep = np.flatnonzero(np.cumsum(steps) > MAX_DEPTH)
    if deep.size:
        line = int(np.count_nonzero(codes[: positions[deep[0]]] == ord("\n"))) + 1
        raise error(f"{path}: nested more than {MAX_DEPTH} deep in line {line}", path=path, line=line)


def _mapping_of_unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A dictionary of the pairs; a key that occurs twice is refused."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Refused(f"the key {shorten(twice)} appears twice")
    return mapping


def _integer(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise _Refused(f"a number has {len(text):,} digits")
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Refused(f"the number {shorten(text)} is beyond float64")
    return number


def _yaml_lines(node: Any) -> dict[Names, int]:
    """Line numbers of keys and items (PyYAML counts from 0). The loader has limited the depth."""
    line_numbers: dict[Names, int] = {}
    waiting: list[tuple[Names, Any]] = [((), node)] if node.id != "scalar" else []
    while waiting:
        names, current = waiting.pop()
        if current.id == "mapping":
            parts = [((*names, key.value), key, value) for key, value in current.value]
        else:
            parts = [((*names, number), item, item) for number, item in enumerate(current.value)]
        for inner, marked, value in parts:
            line_numbers[inner] = marked.start_mark.line + 1
            if value.id != "scalar":
                waiting.append((inner, value))
    return line_numbers


@cache
def _yaml_dumper() -> Any:
    """PyYAML's safe dumper, which puts a text in quotes only if YAML 1.1 would not read it as text."""
    yaml = require("yaml", extra="onnx", package="pyyaml", feature="YAML files")

    class Dumper(yaml.SafeDumper):  # type: ignore[misc, name-defined]
        def represent_text(self, text: str) -> Any:
            style = "|" if "\n" in text else "'" if _NOT_A_TEXT.fullmatch(text) else None
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, Dumper.represent_text)
    return Dumper


@cache
def _yaml_loader() -> Any:
    """PyYAML's safe loader with what it lacks: limits, and keys that may be there once."""
    yaml = require("yaml", extra="onnx", package="pyyaml", feature="YAML files")

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
                self._refuse("aliases and anchors are not allowed", event.start_mark)
            if event.tag is not None:
                self._refuse(f"tags such as {event.tag[:40]} are not allowed", event.start_mark)
            self.depth += 1
            if self.depth > MAX_DEPTH:
                self._refuse(f"nested more than {MAX_DEPTH} deep", event.start_mark)
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            mapping: dict[Any, Any] = {}
            for key_node, value_node in node.value:
                if not isinstance(key_node, yaml.ScalarNode):
                    self._refuse("a key must be a text or a number", key_node.start_mark)
                key = self.construct_object(key_node, deep=True)
                if key in mapping:
                    self._refuse(f"the key {shorten(key)} appears twice", key_node.start_mark)
                mapping[key] = self.construct_object(value_node, deep=deep)
            return mapping

        def construct_number(self, node: Any) -> Any:
            if len(node.value) > _LONGEST_NUMBER:
                self._refuse(f"a number has {len(node.value):,} characters", node.start_mark)
            is_int = node.tag.endswith(":int")
            try:
                return self.construct_yaml_int(node) if is_int else self.construct_yaml_float(node)
            except (ValueError, OverflowError):  # such as 0b_, or 1_0:60
                self._refuse(f"{shorten(node.value)} is not a number", node.start_mark)

        def _refuse(self, problem: str, mark: Any) -> NoReturn:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)

    for kind in ("int", "float"):
        Loader.add_constructor(f"tag:yaml.org,2002:{kind}", Loader.construct_number)
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":merge", ":value"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


@cache
def _written_loader() -> Any:
    """A YAML loader that keeps the text of plain scalars."""

    class Loader(_yaml_loader()):  # type: ignore[misc]
        """PyYAML's safe loader, whose plain scalars keep their text."""

        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

        def construct_text(self, node: Any) -> Any:
            return read_plain(node.value) if node.style is None else node.value

    Loader.add_constructor("tag:yaml.org,2002:str", Loader.construct_text)
    return Loader
