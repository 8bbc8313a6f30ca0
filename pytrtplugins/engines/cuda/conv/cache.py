"""The disk cache of kernel choices, by GPU, driver, kernels and problem."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ....cuda.cache import cache_folder
from ....errors import FormatError, UsageError
from ....utils.atomic import write_atomic
from ....utils.files import read_regular, sha256_hex
from ....utils.text_formats import MAX_BYTES, parse_json, shorten

__all__ = ["FORMAT", "Choice", "TacticCache", "choose"]

FORMAT = 2
_RUNNERS_UP, _SLOWER = 5, 1.3
_MAX_MICROSECONDS = 1e15
_INTERVAL_S = 5.0
"""Seconds between two writings of the file while many choices are made: what a process that is killed loses."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """The kernel that was chosen for a problem.

    Attributes:
        provider: Family of kernels.
        tactic: Which of them.
        microseconds: What it took; 0 where nothing was timed.
        rivals: How many others were timed.
        runners_up: Provider, tactic and time of those that were hardly slower, the fastest first.
    """

    provider: str
    tactic: str
    microseconds: float = 0.0
    rivals: int = 0
    runners_up: tuple[tuple[str, str, float], ...] = ()

    @property
    def title(self) -> str:
        """The kernel's name, for people."""
        return self.provider if self.tactic == self.provider else f"{self.provider} {self.tactic}"


class TacticCache:
    """Choices by problem, in one file for each device and set of libraries; a damaged file counts as empty.

    Args:
        device: All that times depend on beside the problem: GPU, driver, versions of libraries and kernels.
        folder: Where to keep it; None: the user's cache folder.
    """

    def __init__(self, device: Mapping[str, str | int], folder: Path | None = None) -> None:
        base = cache_folder("tactics") if folder is None else folder
        self.device = dict(device)
        text = json.dumps({"format": FORMAT, **self.device}, sort_keys=True)
        self.path = base / f"{sha256_hex(text.encode())[:24]}.json"
        self._choices = self._read()
        self._interval_s, self._written_s, self._unwritten = 0.0, -math.inf, False

    def get(self, key: str) -> Choice | None:
        """The stored choice for a problem; None if there is none."""
        return self._choices.get(key)

    def put(self, choices: Mapping[str, Choice]) -> None:
        """Remember choices, beside those that other processes have written since."""
        self._choices.update(choices)
        self._unwritten = True
        if time.monotonic() - self._written_s >= self._interval_s:
            self._write()

    @contextmanager
    def batched(self) -> Iterator[None]:
        """Inside the block, write what `put` gets every few seconds, and the rest when the block ends.

        The file has the choices of all networks: to read and write it for each choice took longer than many of the measurements.
        """
        self._interval_s = _INTERVAL_S
        try:
            yield
        finally:
            self._interval_s = 0.0
            if self._unwritten:
                self._write()

    def _write(self) -> None:
        self._choices = {**self._read(), **self._choices}
        self._written_s, self._unwritten = time.monotonic(), False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.path, encode(self._choices, self.device).encode(), within=self.path.parent)
        except (OSError, UsageError) as error:
            _log.warning("chosen kernels cannot be kept in %s (%s): they will be chosen again", self.path, error)

    def _read(self) -> dict[str, Choice]:
        try:
            return decode(read_regular(self.path, MAX_BYTES, within=self.path.parent))
        except (OSError, ValueError):
            return {}


def encode(choices: Mapping[str, Choice], device: Mapping[str, str | int]) -> str:
    """Choices as JSON."""
    table = {
        key: [
            *_row(choice.provider, choice.tactic, choice.microseconds),
            choice.rivals,
            [_row(*each) for each in choice.runners_up],
        ]
        for key, choice in sorted(choices.items())
    }
    return json.dumps({"format": FORMAT, "device": dict(device), "choices": table}, indent=1)


def decode(text: str | bytes) -> dict[str, Choice]:
    """Choices from JSON.

    Raises:
        FormatError: it is no such text, or of another format version.
    """
    data = parse_json(text, "the table of tactics")
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("choices"), dict):
        raise FormatError("no table of tactics of this format version")
    choices = {}
    for key, row in data["choices"].items():
        if not (
            isinstance(row, list)
            and len(row) == 5
            and _is_timed(row[:3])
            and type(row[3]) is int
            and isinstance(row[4], list)
            and all(map(_is_timed, row[4]))
        ):
            raise FormatError(
                f"problem {shorten(key)}: expected provider, tactic, time, rivals, runners-up, found {shorten(row)}"
            )
        runners_up = tuple((name, tactic, float(time)) for name, tactic, time in row[4])
        choices[str(key)] = Choice(row[0], row[1], float(row[2]), row[3], runners_up)
    return choices


def _row(provider: str, tactic: str, microseconds: float) -> list[str | float]:
    return [provider, tactic, round(microseconds, 3)]


def _is_timed(row: object) -> bool:
    if not isinstance(row, list) or [type(value) for value in row] not in ([str, str, float], [str, str, int]):
        return False
    return bool(abs(row[2]) < _MAX_MICROSECONDS)


def choose(
    families: Iterable[tuple[str, Iterable[str]]],
    measure: Callable[[str, str], float],
    waits: Mapping[str, float] | None = None,
    patience: Mapping[str, int] | None = None,
    unlikely: Container[str] = (),
) -> Choice:
    """The fastest candidate, with those next to it.

    Args:
        families: Providers with their tactics, the most promising first; the first wins a draw.
        measure: Microseconds that one takes; infinity for one that fails or gives wrong numbers.
        waits: Microseconds that a provider's kernels cost a network beside what was measured.
        patience: How many tactics of a provider, one behind the other, may be too slow to be a runner-up before no more are asked for.
        unlikely: Providers whose tactics are measured only if none of those before them works.

    Raises:
        ValueError: none works.
    """
    found: list[tuple[float, tuple[str, str, float]]] = []
    least = math.inf
    for name, tactics in families:
        if name in unlikely and math.isfinite(least):
            continue
        slow, wait = 0, (waits or {}).get(name, 0.0)
        for tactic in tactics:
            time = measure(name, tactic)
            cost = time + wait
            found.append((cost, (name, tactic, time)))
            least = min(least, cost)
            if math.isfinite(cost):
                slow = slow + 1 if cost >= _SLOWER * least else 0
            if slow == (patience or {}).get(name):
                break
    order = sorted((each for each in found if math.isfinite(each[0])), key=lambda each: each[0])
    if not order:
        raise ValueError("no kernel works")
    (_, best), *others = order
    near = tuple(row for cost, row in others if cost < _SLOWER * least)[:_RUNNERS_UP]
    return Choice(*best, len(found) - 1, near)
