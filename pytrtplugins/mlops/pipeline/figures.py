"""Read figures of a step: the numbers in a JSON file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...errors import FormatError
from ...utils.files import read_regular
from ...utils.named_numbers import named_numbers
from ...utils.text_formats import MAX_BYTES, parse_json

__all__ = ["look_up", "read_figures"]

_MOST = 10_000
_COMMANDS = {"command", "version", "ok", "options", "result"}
"""The keys of what ``pytrt ... --json`` prints: its figures are in the last."""


def read_figures(path: str | Path, name: str = "", *, within: str | Path | None = None) -> dict[str, float]:
    """The numbers in a JSON file by their keys, with dots between those of nested objects; truth values are 0 and 1.

    Of what ``pytrt ... --json`` prints it is the result. ``name`` is what messages call the file; ``within`` is that of
    `open_regular`.

    Raises:
        FormatError: it is not JSON, or holds no numbers, or more than 10,000; ``.path`` says which.
    """
    name = name or str(path)
    data = parse_json(read_regular(path, MAX_BYTES, within=within), name, allow_nan=True)
    if isinstance(data, dict) and data.keys() == _COMMANDS:
        data = data["result"]
    figures: dict[str, float] = {}
    for key, value in named_numbers(data):
        figures[key] = value
        if len(figures) > _MOST:
            raise FormatError(f"{name}: expected at most {_MOST:,} figures.", path=path)
    if not figures:
        raise FormatError(f'{name}: expected figures, such as {{"mAP50": 0.65}}, found no number.', path=path)
    return figures


def look_up(figures: Mapping[str, float], name: str) -> list[str]:
    """Keys that a name matches: exactly; or as the part after a dot; or with a unit appended, such as ``p99`` for ``p99_ms``."""
    if name in figures:
        return [name]
    ends = [key for key in figures if key.endswith(f".{name}")]
    return ends or [key for key in figures if key.rpartition(".")[2].rpartition("_")[0] == name]
