"""The time limit for building and timing a library's plans."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

__all__ = ["SearchTime"]

_LEAST_S = 1.0
"""What every convolution has, so that none goes without a plan because of those before it."""
_GENEROUS = 2
"""How many even shares of what is left a convolution may take: they differ in what they need, and most need less."""


class SearchTime:
    """A time limit, shared out among the convolutions whose kernels are still to be chosen.

    Args:
        seconds: For all of them.
        clock: Gives seconds.

    Attributes:
        seconds: The limit.
        cut: The convolutions for which not all plans were tried, in words.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds, self.cut = seconds, list[str]()
        self._left, self._waiting, self._clock = seconds, 1, clock

    def begin(self) -> None:
        """Begin a search, with all of the time."""
        self._left = self.seconds

    def expect(self, count: int) -> None:
        """Say how many convolutions are still to come, the one at hand included."""
        self._waiting = max(1, count)

    def within(self, title: str, candidates: Iterable[str]) -> Iterator[str]:
        """Candidates of a convolution until its share is over; what happens between one and the next counts."""
        begun, share = self._clock(), max(_LEAST_S, _GENEROUS * self._left / self._waiting)
        try:
            for candidate in candidates:
                if self._clock() - begun > share:
                    self.cut += [title] if title not in self.cut else []
                    return
                yield candidate
        finally:
            self._left -= self._clock() - begun
