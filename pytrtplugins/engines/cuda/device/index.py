"""Arithmetic of indices whose ranges are known: sums, quotients and remainders, kept as simple as the ranges allow."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Atom", "Clamped", "Counter", "Index", "Quotient", "Remainder"]


@dataclass(frozen=True)
class Counter:
    """A variable of a kernel and its range.

    Attributes:
        name: In C.
        size: It goes from 0 to one less.
    """

    name: str
    size: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest value."""
        return 0, self.size - 1

    @property
    def text(self) -> str:
        """The index as a C++ expression."""
        return self.name

    @property
    def names(self) -> frozenset[str]:
        """Names of the variables in it."""
        return frozenset((self.name,))


@dataclass(frozen=True)
class _OfIndex:
    of: Index

    @property
    def names(self) -> frozenset[str]:
        """Names of the variables in it."""
        return self.of.names


@dataclass(frozen=True)
class Quotient(_OfIndex):
    """An index divided by a number, rounded down."""

    by: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest value."""
        low, high = self.of.bounds
        return low // self.by, high // self.by

    @property
    def text(self) -> str:
        """The index as a C++ expression."""
        return f"({self.of.text}) / {self.by}u"


@dataclass(frozen=True)
class Remainder(_OfIndex):
    """The remainder of an index divided by a constant."""

    by: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest value."""
        return 0, self.by - 1

    @property
    def text(self) -> str:
        """The index as a C++ expression."""
        return f"({self.of.text}) % {self.by}u"


@dataclass(frozen=True)
class Clamped(_OfIndex):
    """An index clamped to [low, high]."""

    low: int
    high: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest value."""
        low, high = (min(max(end, self.low), self.high) for end in self.of.bounds)
        return low, high

    @property
    def text(self) -> str:
        """The index as a C++ expression."""
        return f"min(max(static_cast<int>({self.of.text}), {self.low}), {self.high})"


Atom = Counter | Clamped | Quotient | Remainder


@dataclass(frozen=True)
class Index:
    """A linear combination of variables, quotients and remainders, plus a constant.

    In C it is unsigned, and right wherever it is not negative.

    Attributes:
        terms: What is multiplied, and by what.
        constant: What is added.
    """

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    @classmethod
    def counter(cls, name: str, size: int) -> Index:
        """The index of a kernel variable of this size; the constant 0 if the size is 1."""
        return cls(((Counter(name, size), 1),)) if size > 1 else cls()

    @property
    def bounds(self) -> tuple[int, int]:
        """Lower and upper bound of the index."""
        low = high = self.constant
        for atom, factor in self.terms:
            ends = [end * factor for end in atom.bounds]
            low, high = low + min(ends), high + max(ends)
        return low, high

    @property
    def names(self) -> frozenset[str]:
        """Names of the variables in it."""
        return frozenset[str]().union(*(atom.names for atom, _ in self.terms))

    @property
    def text(self) -> str:
        """The index as a C++ expression."""
        parts = [f"{atom.text} * {factor}u" if factor > 1 else atom.text for atom, factor in self.terms if factor > 0]
        if self.constant > 0 or not parts:
            parts.append(f"{max(self.constant, 0)}u")
        behind = [f" - {atom.text} * {-factor}u" for atom, factor in self.terms if factor < 0]
        if self.constant < 0:
            behind.append(f" - {-self.constant}u")
        return " + ".join(parts) + "".join(behind)

    def factor(self, name: str) -> int | None:
        """The coefficient of a variable; None where it is inside a quotient or remainder."""
        if any(name in atom.names and not isinstance(atom, Counter) for atom, _ in self.terms):
            return None
        return next((factor for atom, factor in self.terms if name in atom.names), 0)

    def is_multiple(self, of: int, but: str = "") -> bool:
        """Whether all terms but that of a variable are multiples of a number."""
        terms = (factor for atom, factor in self.terms if not (isinstance(atom, Counter) and atom.name == but))
        return self.constant % of == 0 and all(factor % of == 0 for factor in terms)

    def limited(self, low: int, high: int) -> Index:
        """Clamp the index to two limits; an index that may be negative must not be clamped."""
        least, most = self.bounds
        return self if low <= least and most <= high else Index(((Clamped(self, low, high), 1),))

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.constant + other)
        return _recombine_divmod(_sum((*self.terms, *other.terms), self.constant + other.constant))

    def __mul__(self, factor: int) -> Index:
        if not factor:
            return Index()
        return Index(tuple((atom, each * factor) for atom, each in self.terms), self.constant * factor)

    def __floordiv__(self, by: int) -> Index:
        whole = Index(tuple((atom, each // by) for atom, each in self.terms if each % by == 0), self.constant // by)
        left = Index(tuple((atom, each) for atom, each in self.terms if each % by), self.constant % by)
        if left._is_below(by):
            return whole
        if (parts := left._split_by_divisor(by)) is not None:
            unit, multiple, _ = parts
            return whole + multiple // (by // unit)
        if len(left.terms) == 1 and not left.constant and left.terms[0][1] == 1:
            atom = left.terms[0][0]
            if isinstance(atom, Quotient):
                return whole + atom.of // (atom.by * by)
        turns = left._multiples_to_non_negative(by)
        return whole + -turns + Index(((Quotient(left + turns * by, by), 1),))

    def __mod__(self, by: int) -> Index:
        left = Index(tuple((atom, each) for atom, each in self.terms if each % by), self.constant % by)
        if left._is_below(by):
            return left
        if (parts := left._split_by_divisor(by)) is not None:
            unit, multiple, rest = parts
            return (multiple % (by // unit)) * unit + rest
        if len(left.terms) == 1 and not left.constant and left.terms[0][1] == 1:
            atom = left.terms[0][0]
            if isinstance(atom, Remainder) and atom.by % by == 0:
                return atom.of % by
        return Index(((Remainder(left + left._multiples_to_non_negative(by) * by, by), 1),))

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _is_below(self, number: int) -> bool:
        low, high = self.bounds
        return low >= 0 and high < number

    def _multiples_to_non_negative(self, by: int) -> int:
        """How often ``by`` must be added to make the index non-negative, as C++'s unsigned division needs it."""
        return max(0, -(self.bounds[0] // by))

    def _split_by_divisor(self, by: int) -> tuple[int, Index, Index] | None:
        """Split the index into unit * quotient + remainder for a divisor ``unit`` of ``by``; None where no divisor fits."""
        units = sorted({math.gcd(by, factor) for _, factor in self.terms} - {1, by}, reverse=True)
        for unit in units:
            rest = Index(tuple((atom, each) for atom, each in self.terms if each % unit), self.constant % unit)
            if rest._is_below(unit):
                multiple = tuple((atom, each // unit) for atom, each in self.terms if each % unit == 0)
                return unit, Index(multiple, self.constant // unit), rest
        return None


def _sum(terms: Iterable[tuple[Atom, int]], constant: int) -> Index:
    factors: dict[Atom, int] = {}
    for atom, factor in terms:
        factors[atom] = factors.get(atom, 0) + factor
    return Index(tuple((atom, factor) for atom, factor in factors.items() if factor), constant)


def _recombine_divmod(index: Index) -> Index:
    """Simplify q * divisor + remainder to the dividend."""
    for atom, factor in index.terms:
        if not isinstance(atom, Remainder):
            continue
        for other, multiple in index.terms:
            if multiple != factor * atom.by:
                continue
            if isinstance(other, Quotient) and (other.of, other.by) == (atom.of, atom.by):
                whole = atom.of
            elif isinstance(other, Remainder) and other.of == atom.of // atom.by:
                whole = atom.of % (atom.by * other.by)
            else:
                continue
            others = tuple(term for term in index.terms if term[0] not in (atom, other))
            return Index(others, index.constant) + whole * factor
    return index
