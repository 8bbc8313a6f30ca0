"""Parse amounts as people write them: ``4GiB``, ``30 min``, ``500m``."""

from __future__ import annotations

import math
import re
from typing import Any

from ...utils.text_formats import shorten

__all__ = ["is_number", "is_whole", "read_bytes", "read_cores", "read_count", "read_seconds"]

_AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]*)")
_SIZES = {"": 1, "B": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    f"{prefix}{end}": factor
    for number, prefix in enumerate("KMGT", 1)
    for end, factor in (("i", 1 << 10 * number), ("iB", 1 << 10 * number), ("B", 10 ** (3 * number)))
}
_TIMES = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number; truth values are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a value is a number that is finite; truth values are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def read_bytes(value: Any) -> int:
    """Bytes: a number, or a text such as ``4GiB``, ``512Mi`` or ``2GB``."""
    return round(_amount(value, _SIZES, "bytes, such as 4GiB or 512Mi"))


def read_seconds(value: Any) -> float:
    """Seconds: a number, or a text such as ``30s``, ``15 min``, ``2h``."""
    return _amount(value, _TIMES, "seconds, or a time such as 15min or 2h")


def read_cores(value: Any) -> float:
    """Cores: a number, or a text such as ``500m`` for half of one."""
    return _amount(value, {"": 1.0, "m": 0.001}, "cores, such as 2 or 500m")


def read_count(value: Any) -> int:
    """A whole number, or a text that is one."""
    if is_whole(value) or (isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value)):
        return int(value)
    raise ValueError(f"expected a whole number, found {shorten(value)}")


def _amount(value: Any, units: dict[str, Any], expected: str) -> float:
    match = _AMOUNT.fullmatch(str(value).strip()) if is_number(value) or isinstance(value, str) else None
    if match is None or match[2] not in units:
        raise ValueError(f"expected {expected}, found {shorten(value)}")
    return float(match[1]) * float(units[match[2]])
