"""Parse and evaluate gates, conditions on figures: ``mAP50 within 0.005 of served and p99 below 20 ms``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from ...errors import PipelineError
from ...utils.text_formats import shorten
from .figures import look_up

__all__ = ["Comparison", "Gate", "Verdict"]

Figures: TypeAlias = Mapping[str, Mapping[str, float]]
"""Files by the stem of their names, and the figures in each."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<sign><=|>=|==|!=|[<>()*/+-])|(?P<word>%|[^\W\d][\w-]*(?:\.[\w-]+)*)|(?P<wrong>\S))"
)
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_WORDS = {("below",): "<", ("above",): ">", ("at", "least"): ">=", ("at", "most"): "<=", ("is",): "=="}
_SUMS: dict[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: dict[str, Callable[[float, float], float]] = {"*": operator.mul, "/": operator.truediv}
_KEYWORDS = {"and", "or", "not", "within", "of", "below", "above", "at", "is"}
_UNITS = {
    **{"ns": ("time", 1e-9), "us": ("time", 1e-6), "µs": ("time", 1e-6), "ms": ("time", 1e-3), "s": ("time", 1.0)},
    **{"bytes": ("size", 1.0), "KiB": ("size", 2.0**10), "MiB": ("size", 2.0**20), "GiB": ("size", 2.0**30)},
}
_SUFFIXES = {unit.lower(): unit for unit in _UNITS}
"""A figure's name ends with its unit: ``p99_ms``, ``weights_mib``."""
_LONGEST, _DEEPEST, _LONGEST_LIST = 2000, 32, 600


@dataclass(frozen=True)
class Comparison:
    """One comparison of a gate, with its figures.

    Attributes:
        text: As the gate has it.
        found: The same with figures.
        holds: Whether it holds.
    """

    text: str
    found: str
    holds: bool


@dataclass(frozen=True)
class Verdict:
    """The result of a gate.

    Attributes:
        passes: Whether the pipeline goes on.
        comparisons: All of the gate's, in its order.
    """

    passes: bool
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class _Value:
    """A number with its unit and its text for messages."""

    number: float
    unit: str | None
    text: str
    key: str = ""
    constant: bool = False


_Evaluated = Callable[[Figures, list[Comparison]], bool]
_Computed = Callable[[Figures, str], _Value]


class Gate:
    """A parsed condition on figures.

    ``and``, ``or``, ``not`` and parentheses join comparisons: ``A < B`` (or ``<=``, ``>``, ``>=``, ``==``, ``!=``, ``below``,
    ``above``, ``at least``, ``at most``, ``is``) and ``A within D of B``. Values are numbers, with a unit or ``%`` where
    wanted, and figures, joined by ``+ - * /``, with spaces around the minus. A figure is ``FILE.NAME``, where FILE is a JSON
    file's name without its suffix, or ``NAME`` of the first file that has it; on the right ``FILE`` alone means the same
    figure of that file. A figure's unit is the end of its name, as in ``p99_ms``, which may be left out where the rest is
    clear.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = [
            (match.lastgroup, match.group(match.lastgroup or 0), match.start(match.lastgroup or 0))
            for match in _TOKEN.finditer(text[:_LONGEST])
        ]
        self._next = self._depth = 0
        if len(text) > _LONGEST:
            raise PipelineError(f"expected at most {_LONGEST:,} characters, found {len(text):,}")
        self._evaluated = self._either()
        if self._peek():
            self._refuse("and, or, or the end")

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Read a gate.

        Raises:
            PipelineError: it does not follow the grammar; the message says where.
        """
        return cls(text)

    def check(self, figures: Figures) -> Verdict:
        """Compare figures; all comparisons are made, also where the first decides.

        Raises:
            PipelineError: a figure is missing, or a name may mean several, or units do not fit.
        """
        comparisons: list[Comparison] = []
        passes = self._evaluated(figures, comparisons)
        return Verdict(passes, tuple(comparisons))

    # --- the grammar ---------------------------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> str:
        where = self._next + ahead
        return self._tokens[where][1] if where < len(self._tokens) else ""

    def _take(self, *texts: str) -> str:
        """Take the next token if it is one of these; else an empty text."""
        token = self._peek()
        if token not in texts or not token:
            return ""
        self._next += 1
        return token

    def _refuse(self, expected: str) -> NoReturn:
        where = self._tokens[self._next][2] if self._peek() else len(self.text)
        actual = shorten(self._peek()) if self._peek() else "the end"
        raise PipelineError(
            f"expected {expected} at character {where + 1}, found {actual}, in {shorten(self.text, 200)}"
        )

    def _either(self) -> _Evaluated:
        parts = [self._both()]
        while self._take("or"):
            parts.append(self._both())
        return lambda figures, said: any([part(figures, said) for part in parts])  # noqa: C419  all are evaluated

    def _both(self) -> _Evaluated:
        parts = [self._one()]
        while self._take("and"):
            parts.append(self._one())
        return lambda figures, said: all([part(figures, said) for part in parts])  # noqa: C419  all are evaluated

    def _one(self) -> _Evaluated:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(f"at most {_DEEPEST} levels")
        if self._take("not"):
            inner = self._one()
            condition: _Evaluated = lambda figures, said: not inner(figures, said)  # noqa: E731
        elif self._take("("):
            condition = self._either()
            if not self._take(")"):
                self._refuse("')'")
        else:
            condition = self._comparison()
        self._depth -= 1
        return condition

    def _comparison(self) -> _Evaluated:
        begin = self._next
        left = self._sum()
        if self._take("within"):
            margin = self._sum()
            if not self._take("of"):
                self._refuse("'of'")
            right = self._sum()
            return self._evaluator(begin, left, right, "within", margin)
        return self._evaluator(begin, left, right=None, sign=self._sign(), margin=None)

    def _sign(self) -> str:
        if sign := self._take(*_SIGNS):
            return sign
        for words, sign in _WORDS.items():
            if tuple(self._peek(number) for number in range(len(words))) == words:
                self._next += len(words)
                return sign
        self._refuse("a comparison, such as < or 'below' or 'within'")

    def _evaluator(
        self, begin: int, left: _Computed, right: _Computed | None, sign: str, margin: _Computed | None
    ) -> _Evaluated:
        right = right or self._sum()
        end = self._tokens[self._next][2] if self._peek() else len(self.text)
        text = self.text[self._tokens[begin][2] : end].strip()

        def evaluated(figures: Figures, comparisons: list[Comparison]) -> bool:
            a = left(figures, "")
            b = right(figures, a.key)
            number = _convert_unit(b, a)
            if margin is None:
                holds, text_found = _SIGNS[sign](a.number, number), f"{a.text} {sign} {b.text}"
            else:
                distance = abs(a.number - number)
                holds = distance <= _convert_unit(margin(figures, a.key), a)
                text_found = f"{a.text} differs from {b.text} by {distance:.6g}"
            comparisons.append(Comparison(text, text_found, holds))
            return holds

        return evaluated

    def _sum(self) -> _Computed:
        return self._chain(_SUMS, lambda: self._chain(_PRODUCTS, self._atom))

    def _chain(self, signs: Mapping[str, Callable[[float, float], float]], part: Callable[[], _Computed]) -> _Computed:
        left = part()
        while sign := self._take(*signs):
            left = _combine(left, part(), sign, signs[sign])
        return left

    def _atom(self) -> _Computed:
        """Parse a number or the name of a figure."""
        kind = self._tokens[self._next][0] if self._peek() else ""
        token = self._peek()
        if kind == "number":
            self._next += 1
            unit = self._take("%", *_UNITS)
            number = float(token) / (100 if unit == "%" else 1)
            shown = _Value(number, unit if unit in _UNITS else None, f"{token} {unit}".strip(), constant=True)
            return lambda figures, same: shown
        if kind == "word" and token not in _KEYWORDS and token != "%":
            self._next += 1
            return lambda figures, same: _figure(figures, token, same)
        self._refuse("a number or a figure")


def _combine(left: _Computed, right: _Computed, sign: str, join: Callable[[float, float], float]) -> _Computed:
    def computed(figures: Figures, same: str) -> _Value:
        a, b = left(figures, same), right(figures, same)
        text = f"{a.text} {sign} {b.text}"
        if sign in _SUMS:
            return _Value(join(a.number, _convert_unit(b, a)), a.unit or b.unit, text)
        if a.unit and b.unit and sign == "*":
            raise PipelineError(f"{text}: two units cannot be multiplied")
        if sign == "/" and not b.number:
            raise PipelineError(f"{text}: division by zero")
        if sign == "/" and b.unit:
            return _Value(a.number / _convert_unit(b, a), None, text)
        return _Value(join(a.number, b.number), a.unit or b.unit, text)

    return computed


def _figure(figures: Figures, name: str, same: str) -> _Value:
    """The figure that a name refers to; ``same`` is used if the name is that of a file alone."""
    files = [file_name for file_name in figures if name.startswith(f"{file_name}.") or (name == file_name and same)]
    file = (
        max(files, key=len)
        if files
        else next((file_name for file_name in figures if look_up(figures[file_name], name)), "")
    )
    names = ((name[len(file) + 1 :],) if name != file else (same, same.rpartition(".")[2])) if files else (name,)
    keys = next((keys for file_name in names if file and (keys := look_up(figures[file], file_name))), [])
    if len(keys) != 1:
        known_figures = ", ".join(f"{file_name}.{key}" for file_name in figures for key in figures[file_name])
        known_figures = known_figures if len(known_figures) < _LONGEST_LIST else f"{known_figures[:_LONGEST_LIST]} ..."
        what = f"may mean {', '.join(keys[:8])}" if keys else f"is not among the figures: {known_figures}"
        raise PipelineError(f"{name} {what}")
    number, key = figures[file][keys[0]], keys[0]
    unit = _SUFFIXES.get(key.rpartition("_")[2].lower()) if "_" in key else None
    return _Value(number, unit, f"{file}.{key} {number:.6g}", key)


def _convert_unit(value: _Value, other: _Value) -> float:
    """Convert a number to another's unit: a constant without a unit has the other's."""
    if value.unit == other.unit:
        return value.number
    if value.unit is None or other.unit is None:
        bare, with_unit = (value, other) if value.unit is None else (other, value)
        if not bare.constant:
            raise PipelineError(
                f"{bare.text} has no unit in its name, such as _ms: it cannot be compared with {with_unit.text}"
            )
        return value.number
    (kind, size), (other_kind, other_size) = _UNITS[value.unit], _UNITS[other.unit]
    if kind != other_kind:
        raise PipelineError(f"{value.text} is a {kind}, {other.text} is a {other_kind}: they cannot be compared")
    return value.number * size / other_size
