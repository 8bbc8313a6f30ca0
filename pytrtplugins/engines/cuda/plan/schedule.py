"""Schedule independent steps on several streams: the stream of each step, and the steps that it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Access", "Schedule", "one_stream", "schedule"]

MAX_STREAMS = 4


@dataclass(frozen=True)
class Access:
    """A memory access of a step: a part of a storage, read or written.

    Attributes:
        storage: Its name.
        begin: First byte of a pixel, for a run of channels of a larger tensor.
        end: Behind the last one.
        writes: Whether it writes.
    """

    storage: str
    begin: int
    end: int
    writes: bool

    def conflicts(self, other: Access) -> bool:
        """Whether two accesses overlap and one of them writes, so that their order matters."""
        same = self.storage == other.storage and self.begin < other.end and other.begin < self.end
        return same and (self.writes or other.writes)


@dataclass(frozen=True)
class Schedule:
    """The stream of each step, and the steps before it.

    Attributes:
        streams: Stream of each step; 0 is the main one.
        waits: Steps on other streams that each waits for.
        before: Steps that are sure to be done before each, as bits.
    """

    streams: tuple[int, ...]
    waits: tuple[tuple[int, ...], ...]
    before: tuple[int, ...]

    def ordered(self, first: int, second: int) -> bool:
        """Whether the first step has always ended when the second one begins."""
        return bool(self.before[second] >> first & 1)


def one_stream(count: int) -> Schedule:
    """Schedule all steps on one stream."""
    return Schedule((0,) * count, ((),) * count, tuple((1 << index) - 1 for index in range(count)))


def schedule(steps: Sequence[Sequence[Access]], max_streams: int = MAX_STREAMS) -> Schedule:
    """Schedule steps on streams.

    A step follows its latest predecessor where that is the last of its stream so far. Otherwise a branch begins: on a stream
    whose last step comes before this one anyway, on a new one while there are less than ``max_streams``, else behind the predecessor.

    Args:
        steps: What each reads and writes, in an order that is right.
        max_streams: How many streams there may be.
    """
    before: list[int] = []
    tails: list[int] = []
    streams: list[int] = []
    waits: list[tuple[int, ...]] = []
    accessed: dict[str, list[tuple[int, Access]]] = {}  # storage → accesses of the steps so far
    for index, accesses in enumerate(steps):
        needed = sorted({n for b in accesses for n, a in accessed.get(b.storage, ()) if a.conflicts(b)})
        for access in accesses:
            accessed.setdefault(access.storage, []).append((index, access))
        known = 0
        for earlier in needed:
            known |= before[earlier] | 1 << earlier
        stream = _choose_stream(needed, known, tails, streams, max_streams)
        if stream == len(tails):
            tails.append(index)
        else:
            known |= before[tails[stream]] | 1 << tails[stream]
            tails[stream] = index
        implied = 0
        for earlier in needed:
            implied |= before[earlier]
        waits.append(tuple(earlier for earlier in needed if streams[earlier] != stream and not implied >> earlier & 1))
        streams.append(stream)
        before.append(known)
    return Schedule(tuple(streams), tuple(waits), tuple(before))


def _choose_stream(
    needed: Sequence[int], known: int, tails: Sequence[int], streams: Sequence[int], max_streams: int
) -> int:
    for earlier in reversed(needed):
        if tails[streams[earlier]] == earlier:
            return streams[earlier]
    for stream, tail in enumerate(tails):
        if known >> tail & 1:
            return stream
    if len(tails) < max_streams:
        return len(tails)
    return streams[needed[-1]] if needed else 0
