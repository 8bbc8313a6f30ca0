"""Views of tensors (slice, transpose, roll, pad, concat) as index expressions, so that kernels read them without a copy."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....utils.override import override
from .index import Index

__all__ = [
    "Expanded",
    "Gathered",
    "Joined",
    "Move",
    "Padded",
    "Piece",
    "Resampled",
    "Reshaped",
    "Sliced",
    "Source",
    "Transposed",
    "Wrapped",
    "blocks_of",
    "joined",
    "padded",
    "reshaped",
    "sliced",
    "unraveled",
]

Dims = tuple[int, ...]
Guard = tuple[Index, int, int]
"""An index, and the values, from one to less than another, for which something holds."""


@dataclass(frozen=True)
class Piece:
    """Part of a move: a source, the index expressions into it, and the guards under which it holds.

    Attributes:
        source: The tensor; None for the number around one.
        at: Indices along its axes.
        guards: All hold for these values, and for none of those of earlier pieces.
    """

    source: str | int | None
    at: tuple[Index, ...] = ()
    guards: tuple[Guard, ...] = ()

    def limited(self, index: Index, low: int, high: int) -> Piece | None:
        """Restrict the piece to low <= index < high; None if no index is in that range."""
        least, most = index.bounds
        if least >= low and most < high:
            return self
        if most < low or least >= high:
            return None
        return replace(self, guards=(*self.guards, (index, low, high)))


@dataclass(frozen=True)
class Move:
    """A tensor whose values are read in other tensors."""

    dims: Dims

    @abstractmethod
    def pieces(self, at: Sequence[Index]) -> Iterator[Piece]:
        """Yield the pieces that hold the value at some indices; the first one whose guards hold counts."""

    @property
    def below(self) -> tuple[Move, ...]:
        """The moves that this one reads."""
        return ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """The source tensors, in order, as often as they are read."""
        return tuple(source for each in self.below for source in each.sources)

    @property
    def numbers(self) -> frozenset[Any]:
        """The constants of paddings."""
        return frozenset[Any]().union(*(each.numbers for each in self.below))

    @abstractmethod
    def over(self, function: Callable[[Source], Move]) -> Move:
        """The same move with each source replaced."""

    def inverse(self, target: Move) -> Move | None:
        """The inverse move: where each value of the only source goes in a target; None where values are dropped or repeated."""
        return None


@dataclass(frozen=True)
class Source(Move):
    """A tensor in memory, the leaf of a move."""

    tensor: str | int

    @override
    def pieces(self, at: Sequence[Index]) -> Iterator[Piece]:
        yield Piece(self.tensor, tuple(at))

    @property
    @override
    def sources(self) -> tuple[Source, ...]:
        return (self,)

    @override
    def over(self, function: Callable[[Source], Move]) -> Move:
        return function(self)

    @override
    def inverse(self, target: Move) -> Move | None:
        return target


@dataclass(frozen=True)
class _UnaryMove(Move):
    """Base of moves of one other tensor."""

    x: Move

    @property
    @override
    def below(self) -> tuple[Move, ...]:
        return (self.x,)

    @override
    def over(self, function: Callable[[Source], Move]) -> Move:
        return replace(self, x=self.x.over(function))


@dataclass(frozen=True)
class Transposed(_UnaryMove):
    """A tensor with permuted axes."""

    perm: tuple[int, ...]

    @override
    def pieces(self, at: Sequence[Index]) -> Iterator[Piece]:
        return self.x.pieces([at[self.perm.index(axis)] for axis in range(len(self.perm))])

    @override
    def inverse(self, target: Move) -> Move | None:
        back = tuple(self.perm.index(axis) for axis in range(len(self.perm)))
        return self.x.inverse(Transposed(self.x.dims, target, back))


@dataclass(frozen=True)
class Reshaped(_UnaryMove):
    """The same values in the same order with other dims."""

    @override
    def pieces(self, at: Sequence[Index]) -> Iterator[Piece]:
        return self.x.pieces(unraveled(at, self.dims, self.x.dims))

    @override
    def inverse(self, target: Move) -> Move | None:
        return self.x.inverse(reshaped(target, self.x.dims))


@dataclass(frozen=True)
class Sliced(_UnaryMove):
    """A slice of a tensor.

    Attributes:
        first: Of each axis.
        steps: Between those that are taken.
    """

    first: tuple[int, ...]
    steps: tuple[int, ...]

    @override
    def pieces(self, at: Sequence[Index]) -> Iterator[Piece]:
        each = zip(at, self.first, self.steps, strict=True)
        return self.x.pieces([index * step + first for index, first, step in each])


@dataclass(frozen=True)
class Gathered(_UnaryMove):
    """Places along an axis as several axes, as windows have them: place (i, j) is first + i * steps[0] + j * steps[1].

    Attributes:
        axis: Which; the first of the new ones, too.
        first: Not below 0.
        steps: One for each new axis, none below 0.
    """

    axis: int
    first: int
    steps: tuple[int, ...]

    @override
    def pieces(self, at: Sequence[Index]) -> Iterator[Piece]:
        end, place = self.axis + len(self.steps), Index((), self.first)
        for index, step in zip(at[self.axis : end], self.steps, strict=True):
            place = place + index * step
        return self.x.pieces([*at[: self.axis], place, *at[end:]])


@dataclass(frozen=True)
class Resampled(_UnaryMove):
    """Places along an axis that lie evenly, or nearly so: place i is (i * factor + offset) // divisor, kept inside.

    Attributes:
        axis: Which.
        factor: Not below 0.
        offset: Any number.
        divisor: Above 0.
    """

    axis: int
    factor: int
    offset: int
    divisor: int

    @override
    def pieces(self, at: Sequence[Index]) -> Iterator[Piece]:
        turns, last = max(0, -(self.offset // self.divisor)), self.x.dims[self.axis] - 1
        place = (at[self.axis] * self.factor + (self.offset + turns * self.divisor)) // self.divisor
        moved = list(at)
        moved[self.axis] = place.limited(turns, last + turns) + -turns
        return self.x.pieces(moved)


@dataclass(frozen=True)
class Wrapped(_UnaryMove):
    """A tensor rolled or repeated along an axis: index (i + first) % size."""

    axis: int
    first: int

    @override
    def pieces(self, at: Sequence[Index]) -> Iterator[Piece]:
        moved = list(at)
        moved[self.axis] = (at[self.axis] + self.first) % self.x.dims[self.axis]
        return self.x.pieces(moved)

    @override
    def inverse(self, target: Move) -> Move | None:
        if self.dims != self.x.dims:
            return None
        return self.x.inverse(Wrapped(self.dims, target, self.axis, self.dims[self.axis] - self.first))


@dataclass(frozen=True)
class Expanded(_UnaryMove):
    """A tensor broadcast to larger dims."""

    @override
    def pieces(self, at: Sequence[Index]) -> Iterator[Piece]:
        own = at[len(at) - len(self.x.dims) :]
        return self.x.pieces([Index() if size == 1 else index for size, index in zip(self.x.dims, own, strict=True)])


@dataclass(frozen=True)
class Padded(_UnaryMove):
    """A tensor padded with a constant.

    Attributes:
        before: How often it comes first along each axis.
        value: The number.
    """

    before: tuple[int, ...]
    value: Any

    @property
    @override
    def numbers(self) -> frozenset[Any]:
        return self.x.numbers | {self.value}

    @override
    def pieces(self, at: Sequence[Index]) -> Iterator[Piece]:
        inside = [index + -count for index, count in zip(at, self.before, strict=True)]
        for piece in self.x.pieces(inside):
            found: Piece | None = piece
            for index, count, size in zip(at, self.before, self.x.dims, strict=True):
                found = None if found is None else found.limited(index, count, count + size)
            if found is not None:
                yield found
        yield Piece(None)


@dataclass(frozen=True)
class Joined(Move):
    """Tensors concatenated along an axis."""

    parts: tuple[Move, ...]
    axis: int

    @property
    @override
    def below(self) -> tuple[Move, ...]:
        return self.parts

    @override
    def over(self, function: Callable[[Source], Move]) -> Move:
        return replace(self, parts=tuple(part.over(function) for part in self.parts))

    @override
    def pieces(self, at: Sequence[Index]) -> Iterator[Piece]:
        begin, index = 0, at[self.axis]
        for part in self.parts:
            size = part.dims[self.axis]
            inside = [*at[: self.axis], index + -begin, *at[self.axis + 1 :]]
            for piece in part.pieces(inside):
                if (found := piece.limited(index, begin, begin + size)) is not None:
                    yield found
            begin += size


def blocks_of(x: Move, side: int, apart: bool = False) -> Move:
    """Blocks of pixels that are made of channels: those of one pixel side by side, or ``apart``, those of one channel."""
    n, c, h, w = x.dims
    channels = c // side**2
    parts = (n, channels, side, side, h, w) if apart else (n, side, side, channels, h, w)
    order = (0, 1, 4, 2, 5, 3) if apart else (0, 3, 4, 1, 5, 2)
    turned = Transposed(tuple(parts[axis] for axis in order), reshaped(x, parts), order)
    return reshaped(turned, (n, channels, h * side, w * side))


def reshaped(x: Move, dims: Dims) -> Move:
    """Reshape a move."""
    x = x.x if isinstance(x, Reshaped) else x
    return x if dims == x.dims else Reshaped(dims, x)


def sliced(x: Move, first: Sequence[int], sizes: Dims, steps: Sequence[int]) -> Move:
    """Some places of each axis; all of them if there are as many."""
    if sizes == x.dims and not any(first) and all(step == 1 for step in steps):
        return x
    return Sliced(sizes, x, tuple(first), tuple(steps))


def padded(x: Move, before: Sequence[int], dims: Dims, value: Any) -> Move:
    """Pad a move with a constant; negative pads crop."""
    cut, inner = [max(0, -count) for count in before], []
    for size, count, whole in zip(x.dims, before, dims, strict=True):
        behind = whole - size - count
        inner.append(size - max(0, -count) - max(0, -behind))
    x = sliced(x, cut, tuple(inner), [1] * len(cut))
    return x if x.dims == dims else Padded(dims, x, tuple(max(0, count) for count in before), value)


def joined(parts: Sequence[Move], axis: int) -> Move:
    """Concatenate moves; the end of a tensor before its beginning becomes a roll."""
    if len(parts) == 1:
        return parts[0]
    total = sum(part.dims[axis] for part in parts)
    dims = (*parts[0].dims[:axis], total, *parts[0].dims[axis + 1 :])
    first, *others = parts
    if len(others) == 1 and isinstance(first, Sliced) and isinstance(others[0], Sliced):
        x, begin = first.x, first.first[axis]
        rolled = [sliced(x, _with_number(x, axis, at), _with_number(x, axis, size, x.dims), [1] * len(x.dims))
                  for at, size in ((begin, x.dims[axis] - begin), (0, begin))]  # fmt: skip
        if list(parts) == rolled:
            return Wrapped(dims, x, axis, begin)
    return Joined(dims, tuple(parts), axis)


def _with_number(x: Move, axis: int, value: int, others: Dims | None = None) -> Dims:
    """Return numbers per axis, with another one for one axis."""
    rest = others or (0,) * len(x.dims)
    return (*rest[:axis], value, *rest[axis + 1 :])


def unraveled(at: Sequence[Index], dims: Dims, others: Dims) -> list[Index]:
    """Convert indices for dims to the indices of the same row-major element for other dims."""
    found: list[Index] = []
    own, left = list(zip(at, dims, strict=True)), list(others)
    while left:
        taken = [left.pop(0)]
        group: list[tuple[Index, int]] = []
        count = 1
        while count != math.prod(taken):
            if count < math.prod(taken):
                group.append(own.pop(0))
                count *= group[-1][1]
            else:
                taken.append(left.pop(0))
        flat = Index()
        for index, size in group:
            flat = flat * size + index
        for place, size in enumerate(taken):
            index = flat // math.prod(taken[place + 1 :])
            found.append(index % size if place else index)
    return found
