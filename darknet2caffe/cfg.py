"""Parse a darknet .cfg into sections of options with line numbers; numbers are parsed strictly, and only here."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from pytrtplugins.errors import CfgError
from pytrtplugins.utils.files import open_regular

__all__ = ["Cfg", "Option", "Section", "parse_cfg", "read_cfg"]

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1 << 20  # the longest published cfg has 40 kB; this only stops a weights file given as a cfg
MAX_SECTIONS = 10_000
MAX_TEXT = 1000  # characters of a message
MAX_FLOAT = 3.4028234e38  # of float32
_INT = re.compile(r"[+-]?[0-9]{1,18}")
_FLOAT = re.compile(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True)
class Option:
    """One ``key=value`` line.

    Attributes:
        key: Text before the first ``=``, without blanks.
        value: Text after it, without blanks, as darknet keeps it.
        line: Line number in the file, from 1.
    """

    key: str
    value: str
    line: int


@dataclass(frozen=True)
class Section:
    """A ``[type]`` and its options, in the file's order.

    Attributes:
        type: The name between the brackets.
        options: All options, repeated and unknown ones too.
        line: Line number of the name, from 1.
        path: Name of the file, for messages.
    """

    type: str
    options: tuple[Option, ...]
    line: int
    path: str

    def option(self, key: str) -> Option | None:
        """The option of that key; None when it is absent.

        Raises:
            CfgError: the key is there several times with different values: darknet takes the first without a word.
        """
        matches = [option for option in self.options if option.key == key]
        for other in matches[1:]:
            if other.value != matches[0].value:
                self.fail(
                    f"{key}={other.value} repeats a key with another value ({key}={matches[0].value} on line"
                    f" {matches[0].line}; darknet uses that first one)",
                    other.line,
                    "remove one of the two lines",
                )
        return matches[0] if matches else None

    @property
    def first_options(self) -> tuple[Option, ...]:
        """The options that count: the first of each key."""
        first: dict[str, Option] = {}
        for option in self.options:
            first.setdefault(option.key, option)
        return tuple(first.values())

    def text(self, key: str, default: str) -> str:
        """The value as text; the default when the key is absent."""
        option = self.option(key)
        return default if option is None else option.value

    def integer(self, key: str, default: int, *, minimum: int = 0, maximum: int = 2**31 - 1) -> int:
        """The value as an int in ``minimum..maximum``; the default when the key is absent.

        Raises:
            CfgError: the value is not a whole number, or out of range.
        """
        option = self.option(key)
        return default if option is None else self._integer(option, option.value, minimum, maximum)

    def integers(self, key: str, *, minimum: int, maximum: int = 2**31 - 1) -> tuple[int, ...] | None:
        """The value as ints between commas; None when the key is absent.

        Raises:
            CfgError: an item is not a whole number, or there is a comma behind the last one or in a comment behind the
                value: darknet counts commas, and reads 0 there.
        """
        option = self.option(key)
        if option is None:
            return None
        numbers, comment = _strip_comment(option.value), option.value[len(_strip_comment(option.value)) :]
        if numbers.endswith(",") or "," in comment:
            self.fail(
                f"{key}={option.value}: darknet counts the commas, and takes what stands behind the last number for 0",
                option.line,
                "remove the commas behind the last number",
            )
        return tuple(self._integer(option, item, minimum, maximum) for item in numbers.split(","))

    def number(self, key: str, default: float) -> float:
        """The value as a finite float; the default when the key is absent."""
        option = self.option(key)
        return default if option is None else self._number(option, option.value)

    def numbers(self, key: str) -> tuple[float, ...] | None:
        """The value as finite floats between commas; None when the key is absent."""
        option = self.option(key)
        if option is None:
            return None
        return tuple(self._number(option, item) for item in _strip_comment(option.value).rstrip(",").split(","))

    def line_of(self, key: str) -> int:
        """Line of a key, or of the section when the key is absent."""
        return next((option.line for option in self.options if option.key == key), self.line)

    def fail(self, problem: str, line: int | None = None, action: str = "") -> NoReturn:
        """Raise a `CfgError` that names file, line, section and problem."""
        line = self.line if line is None else line
        ending = f"\nDo: {action}." if action else ""
        raise CfgError(f"{self.path}:{line}: [{self.type}]: {_short(problem)}.{ending}", path=self.path, line=line)

    def with_values(self, **values: int) -> Section:
        """The section with new numbers for some keys; missing keys are added."""
        others = [option for option in self.options if option.key not in values]
        changed = [Option(key, str(value), self.line_of(key)) for key, value in values.items()]
        return replace(self, options=tuple(changed + others))

    def _integer(self, option: Option, text: str, minimum: int, maximum: int) -> int:
        text = _strip_comment(text)
        if not _INT.fullmatch(text):
            self.fail(f"{option.key}={option.value}: expected a whole number, found {text[:40]!r}", option.line)
        value = int(text)
        if not minimum <= value <= maximum:
            self.fail(f"{option.key}={value}: expected a number from {minimum:,} to {maximum:,}", option.line)
        return value

    def _number(self, option: Option, text: str) -> float:
        """Parse an option's number strictly."""
        text = _strip_comment(text)
        value = float(text) if _FLOAT.fullmatch(text) else math.nan
        if not abs(value) <= MAX_FLOAT:
            self.fail(f"{option.key}={option.value}: expected a float32 number, found {text[:40]!r}", option.line)
        return value


@dataclass(frozen=True)
class Cfg:
    """A whole .cfg.

    Attributes:
        path: Name of the file, for messages.
        sections: ``[net]`` first, then one section per layer.
    """

    path: str
    sections: tuple[Section, ...]

    @property
    def net(self) -> Section:
        """The ``[net]`` section."""
        return self.sections[0]

    @property
    def layers(self) -> tuple[Section, ...]:
        """The layers' sections; their indices are darknet's layer indices."""
        return self.sections[1:]

    def with_net(self, **values: int) -> Cfg:
        """The cfg with new numbers in ``[net]``, such as ``width=608``."""
        return replace(self, sections=(self.net.with_values(**values), *self.layers))

    def to_text(self) -> str:
        """The cfg as text: every section and option in order, without comments."""
        blocks = (
            "\n".join([f"[{section.type}]", *(f"{option.key}={option.value}" for option in section.options)])
            for section in self.sections
        )
        return "\n\n".join(blocks) + "\n"


def read_cfg(path: str | Path) -> Cfg:
    """Read a darknet .cfg.

    Returns:
        Its sections. Layer types and keys are judged later, by `read_network`.

    Raises:
        CfgError: the file cannot be read or is not a cfg; ``.path`` and ``.line`` say where.
    """
    path = Path(path)
    try:
        with open_regular(str(path), error=partial(CfgError, line=0)) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CfgError(f"{path}: cannot be read: {error.strerror or error}.", path=str(path), line=0) from error
    if len(data) > MAX_FILE_BYTES or b"\0" in data:
        raise CfgError(
            f"{path}: this is not a text file.\nDo: give the .cfg first and the .weights second.",
            path=str(path),
            line=0,
        )
    return parse_cfg(data.decode("utf-8", errors="replace"), str(path))


def parse_cfg(text: str, path: str = "<cfg>") -> Cfg:
    """Read the text of a darknet .cfg; see `read_cfg`."""
    sections: list[tuple[str, int, list[Option]]] = []
    for number, raw in enumerate(text.split("\n"), start=1):
        line = "".join(raw.split())  # darknet removes every blank, inside words too
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            if not re.fullmatch(r"\[[A-Za-z0-9_]+\]", line):
                _fail(path, number, f"expected a section such as [convolutional], found {line[:40]!r}")
            if len(sections) > MAX_SECTIONS:
                _fail(path, number, f"more than {MAX_SECTIONS:,} sections")
            sections.append((line[1:-1], number, []))
            continue
        key, equals, value = line.partition("=")
        if not (key and equals and value):
            _fail(path, number, f"expected key=value, found {line[:40]!r}")
        if not sections:
            _fail(path, number, f"{line[:40]!r} stands before the first section; expected [net] first")
        sections[-1][2].append(Option(key, value, number))
    if not sections:
        _fail(path, 1, "no sections: this is not a darknet cfg")
    if sections[0][0] not in ("net", "network"):
        _fail(path, sections[0][1], f"the first section is [{sections[0][0]}], expected [net] or [network]")
    cfg = Cfg(path, tuple(Section(name, tuple(options), line, path) for name, line, options in sections))
    _warn_of_repeats(cfg.sections)
    return cfg


def _warn_of_repeats(sections: Iterable[Section]) -> None:
    for section in sections:
        first: dict[str, int] = {}
        warned: set[str] = set()
        for option in section.options:
            if first.setdefault(option.key, option.line) != option.line and option.key not in warned:
                warned.add(option.key)
                log.warning(
                    "%s:%d: [%s]: %s is given again (first on line %d); the first one counts",
                    *(section.path, option.line, section.type, option.key, first[option.key]),
                )


def _short(problem: str) -> str:
    """The problem without the middle of a value that fills pages."""
    return problem if len(problem) <= MAX_TEXT else f"{problem[: MAX_TEXT // 2]} ... {problem[-MAX_TEXT // 2 :]}"


def _strip_comment(value: str) -> str:
    return re.split("[#;]", value, maxsplit=1)[0]


def _fail(path: str, line: int, problem: str) -> NoReturn:
    raise CfgError(f"{path}:{line}: {problem}.", path=path, line=line)
