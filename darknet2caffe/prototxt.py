"""Parse protobuf's text format without a schema, with the line number of each field.

A caffe network may have layers of types that no schema knows, so the fields are read as they are written, and who reads one
says what it must be. Fields that nobody asked for are errors (`Message.finish`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from pytrtplugins.errors import ModelError
from pytrtplugins.utils.files import open_regular

__all__ = ["Message", "parse_prototxt", "read_prototxt"]

MAX_BYTES = 4 << 20  # the longest published networks have 0.3 MB
MAX_DEPTH = 32
MAX_DIGITS = 100
_FLOAT32_MAX = float(np.finfo(np.float32).max)

_TOKEN = re.compile(
    r"""(?P<blank>[\s,;]+|\#[^\n]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>-?(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?))
    |(?P<word>-?[A-Za-z_][A-Za-z0-9_.]*)
    |(?P<mark>[][{}<>:])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class _Word(str):
    """An unquoted value that is not a number: true, MAX, TRAIN."""

    __slots__ = ()


class Field(NamedTuple):
    """One parsed field."""

    name: str
    value: Any
    line: int


class _Token(NamedTuple):
    """One token, with its line number."""

    kind: str
    text: str
    line: int


class Message:
    """The fields of a message, or of the whole file.

    Attributes:
        fields: In the file's order; a repeated field is there several times.
    """

    def __init__(self, path: str, line: int) -> None:
        self.path, self.line = path, line
        self.fields: list[Field] = []
        self._asked: set[str] = set()

    def fail(self, problem: str, *, line: int | None = None, action: str = "", **facts: object) -> NoReturn:
        """Raise a `ModelError` for the message; ``.path`` and ``.line`` give the place."""
        line = self.line if line is None else line
        ending = f"\nDo: {action}." if action else ""
        raise ModelError(f"{self.path}:{line}: {problem}.{ending}", path=self.path, line=line, **facts)

    def has(self, name: str) -> bool:
        """Whether the field is there."""
        return any(field.name == name for field in self.fields)

    def integers(self, name: str, *, minimum: int = 0, maximum: int = 2**31 - 1) -> list[int]:
        """The field's values, whole numbers."""
        return [self._integer(field, minimum, maximum) for field in self._all(name)]

    def integer(self, name: str, default: int, *, minimum: int = 0, maximum: int = 2**31 - 1) -> int:
        """The field's value, a whole number."""
        field = self._one(name)
        return default if field is None else self._integer(field, minimum, maximum)

    def numbers(self, name: str) -> list[float]:
        """The field's values, numbers that float32 can hold."""
        return [self._number(field) for field in self._all(name)]

    def number(self, name: str, default: float) -> float:
        """The field's value, a number that float32 can hold."""
        field = self._one(name)
        return default if field is None else self._number(field)

    def flag(self, name: str, default: bool) -> bool:
        """The field's value, true or false."""
        field = self._one(name)
        if field is None:
            return default
        value = {"true": True, "false": False, "1": True, "0": False}.get(str(field.value))
        if value is None or type(field.value) not in (_Word, int):
            self._expected(field, "true or false")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """The field's value, one of an enumeration's names; its number is taken too."""
        field = self._one(name)
        if field is None:
            return default
        if type(field.value) is int and 0 <= field.value < len(choices):
            return choices[field.value]
        if type(field.value) is not _Word or field.value not in choices:
            self._expected(field, f"one of {', '.join(choices)}")
        return str(field.value)

    def texts(self, name: str) -> list[str]:
        """The field's values, texts in quotes."""
        fields = self._all(name)
        for field in fields:
            if type(field.value) is not str:
                self._expected(field, "a text in quotes")
        return [field.value for field in fields]

    def text(self, name: str, default: str) -> str:
        """The field's value, a text in quotes."""
        self._one(name)
        return next(iter(self.texts(name)), default)

    def messages(self, name: str) -> list[Message]:
        """The field's values, messages in braces."""
        fields = self._all(name)
        for field in fields:
            if not isinstance(field.value, Message):
                self._expected(field, "fields in braces")
        return [field.value for field in fields]

    def message(self, name: str) -> Message:
        """The field's value, a message in braces; an empty one where there is none."""
        self._one(name)
        return next(iter(self.messages(name)), Message(self.path, self.line))

    def mapping(self) -> dict[str, Any]:
        """All fields as Python values: a repeated field is a list."""
        lists: dict[str, list[Any]] = {}
        for field in self.fields:
            value = field.value
            if isinstance(value, Message):
                value = value.mapping()
            elif type(value) is _Word:
                value = {"true": True, "false": False}.get(value, str(value))
            lists.setdefault(field.name, []).append(value)
            self._asked.add(field.name)
        return {name: values[0] if len(values) == 1 else values for name, values in lists.items()}

    def finish(self, ignored: frozenset[str] = frozenset()) -> None:
        """Require that every field was read, except those without effect."""
        for field in self.fields:
            if field.name not in self._asked and field.name not in ignored:
                self.fail(f"the field {field.name} is not supported here", line=field.line)

    def _all(self, name: str) -> list[Field]:
        self._asked.add(name)
        return [field for field in self.fields if field.name == name]

    def _one(self, name: str) -> Field | None:
        fields = self._all(name)
        if len(fields) > 1:
            self.fail(f"{name} is there {len(fields)} times, once at most is right", line=fields[1].line)
        return fields[0] if fields else None

    def _integer(self, field: Field, minimum: int, maximum: int) -> int:
        if type(field.value) is not int or not minimum <= field.value <= maximum:
            self._expected(field, f"a whole number from {minimum:,} to {maximum:,}")
        return int(field.value)

    def _number(self, field: Field) -> float:
        if type(field.value) not in (int, float) or not abs(field.value) <= _FLOAT32_MAX:
            self._expected(field, "a number that float32 can hold")
        return float(field.value)

    def _expected(self, field: Field, what: str) -> NoReturn:
        actual = "fields in braces" if isinstance(field.value, Message) else repr(field.value)[:60]
        self.fail(f"{field.name}: expected {what}, found {actual}", line=field.line)


def read_prototxt(path: str | Path) -> Message:
    """Read a .prototxt.

    Raises:
        ModelError: the file cannot be read or is not in protobuf's text format; ``.path`` and ``.line`` say where.
    """
    try:
        with open_regular(str(path), error=partial(ModelError, line=0)) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}.", path=str(path), line=0) from error
    if len(data) > MAX_BYTES:
        raise ModelError(
            f"{path}: the file has more than {MAX_BYTES:,} bytes; is it a prototxt?", path=str(path), line=0
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ModelError(
            f"{path}:{line}: not UTF-8; a .prototxt is a text, the .caffemodel is the other file.",
            path=str(path),
            line=line,
        ) from error
    return parse_prototxt(text, str(path))


def parse_prototxt(text: str, path: str = "the prototxt") -> Message:
    """Read protobuf's text format."""
    root = Message(path, 1)
    tokens = _tokens(text, root)
    _read_fields(root, tokens, "", 0)
    return root


def _tokens(text: str, root: Message) -> Iterator[_Token]:
    place, line = 0, 1
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            root.fail(f"{text[place : place + 20]!r} is not part of protobuf's text format", line=line)
        kind, text_of_token = str(match.lastgroup), match.group()
        if kind != "blank":
            yield _Token(kind, text_of_token, line)
        line += text_of_token.count("\n")
        place = match.end()
    yield _Token("end", "", line)


def _read_fields(message: Message, tokens: Iterator[_Token], closing: str, depth: int) -> None:
    """Fields up to the closing brace, or the end of the file."""
    for token in tokens:
        if token.text == closing:  # texts have their quotes here
            return
        if token.kind != "word" or token.text.startswith("-"):
            actual = "the end of the file" if token.kind == "end" else repr(token.text[:40])
            message.fail(f"expected a field's name, found {actual}", line=token.line)
        value = next(tokens)
        if value.text == ":":
            value = next(tokens)
        elif value.text not in ("{", "<"):
            message.fail(f"{token.text[:40]}: expected a colon or a brace", line=value.line)
        if value.text == "[":
            _read_list(message, token, tokens, depth)
        else:
            _read_value(message, token, value, tokens, depth)


def _read_list(message: Message, name: _Token, tokens: Iterator[_Token], depth: int) -> None:
    for token in tokens:
        if token.text == "]":
            return
        _read_value(message, name, token, tokens, depth)


def _read_value(message: Message, name: _Token, token: _Token, tokens: Iterator[_Token], depth: int) -> None:
    value: Any = None
    if token.kind == "text":
        value = _unescape(message, token)
    elif token.kind == "number":
        value = _parse_number(message, token)
    elif token.kind == "word":
        value = _Word(token.text)
        if token.text.lower().lstrip("-") in ("inf", "infinity", "nan"):
            value = float(token.text)
    elif token.text in ("{", "<"):
        if depth == MAX_DEPTH:
            message.fail(f"braces in braces, more than {MAX_DEPTH} deep", line=token.line)
        value = Message(message.path, token.line)
        _read_fields(value, tokens, "}" if token.text == "{" else ">", depth + 1)
    else:
        message.fail(f"{name.text[:40]}: expected a value, found {token.text[:40]!r}", line=token.line)
    message.fields.append(Field(name.text, value, name.line))


def _parse_number(message: Message, token: _Token) -> int | float:
    if len(token.text) > MAX_DIGITS:
        message.fail(f"a number of {len(token.text):,} characters", line=token.line)
    if re.fullmatch("-?0[0-7]+", token.text):
        return int(token.text, 8)  # as C has it
    if re.fullmatch("-?[0-9]+", token.text):
        return int(token.text)
    if "x" in token.text.lower():
        return int(token.text, 16)
    value = float(token.text.rstrip("fF"))
    return value if math.isfinite(value) else math.copysign(math.inf, value)


def _unescape(message: Message, token: _Token) -> str:
    inner = token.text[1:-1]
    if "\\" not in inner:
        return inner
    # each byte of UTF-8 may be written as an escape of its own
    data = _ESCAPE.sub(lambda match: _byte(match.group(1)), inner.encode().decode("latin-1")).encode("latin-1")
    try:
        return data.decode()
    except UnicodeDecodeError:
        message.fail(f"the text {token.text[:40]} is not UTF-8", line=token.line)


def _byte(escape: str) -> str:
    if escape[0] in "01234567":
        return chr(int(escape, 8) & 255)
    if escape[0] == "x" and len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _ESCAPED.get(escape, escape)
