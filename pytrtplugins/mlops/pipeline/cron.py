"""Cron schedules with five fields, with the values that Argo Workflows accepts."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...utils.text_formats import shorten

__all__ = ["schedule_problems"]

_MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_PART = re.compile(r"(?:(\*|\?)|(\w+)(?:-(\w+))?)(?:/(\w+))?")
_LEAP_YEAR = 2024


@dataclass(frozen=True)
class _Field:
    """One field of cron: its range, and names for some numbers."""

    name: str
    first: int
    last: int
    names: Mapping[str, int] = field(default_factory=dict)

    def values(self, text: str) -> set[int]:
        """Parse a field into its numbers."""
        return {value for part in text.split(",") for value in self._range(part)}

    def _range(self, part: str) -> range:
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"expected numbers, ranges such as 1-5 and steps such as */2, found {shorten(part)}")
        anything, begin, end, step = match.groups()
        first = self.first if anything else self._number(begin)
        last = self._number(end) if end else self.last if anything or step else first
        if last < first:
            raise ValueError(f"the range {part} ends before it begins")
        if step is not None and not (
            step.isdecimal() and step.isascii() and 1 <= int(step) <= self.last - self.first + 1
        ):
            raise ValueError(f"expected a step from 1 to {self.last - self.first + 1}, found {shorten(step)}")
        return range(first, last + 1, int(step or 1))

    def _number(self, text: str) -> int:
        if text.upper() in self.names:
            return self.names[text.upper()]
        if re.fullmatch("[0-9]{1,9}", text) and self.first <= int(text) <= self.last:
            return int(text)
        names = f", or {next(iter(self.names))} to {list(self.names)[-1]}" if self.names else ""
        raise ValueError(f"expected {self.first} to {self.last}{names}, found {shorten(text)}")


_MONTHS = {name.upper(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS = {name: number for number, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))}
_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 6, _DAYS),
)


def schedule_problems(text: str) -> Iterator[str]:
    """Yield the problems of a schedule, field by field."""
    parts = text.split()
    if text in _MACROS:
        return
    if len(parts) != len(_FIELDS):
        macros = f", or one of {', '.join(_MACROS)}" if text.startswith("@") else ""
        yield f'expected five fields of cron, such as "0 3 * * *"{macros}, found {shorten(text)}'
        return
    values = []
    for cron_field, part in zip(_FIELDS, parts, strict=True):
        try:
            values.append(cron_field.values(part))
        except ValueError as error:
            yield f"{cron_field.name}: {error}"
    if len(values) == len(_FIELDS) and parts[4] in ("*", "?"):  # else any such day of the week runs it
        _, _, days, months, _ = values
        if min(days) > max(calendar.monthrange(_LEAP_YEAR, month)[1] for month in months):
            yield f"day of the month: no month of {parts[3]} has a day {min(days)}: it would never run"
