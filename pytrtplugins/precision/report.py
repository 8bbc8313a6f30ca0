"""Read and write the results of a search as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import FormatError
from ..utils.atomic import write_atomic
from ..utils.text_formats import read_json, shorten
from .measure import inf_to_text
from .search import SearchResult

__all__ = ["read_report", "to_dict", "write_json"]

FORMAT = 1
_MAX_BYTES = 64 << 20  # 1,000 layers take 2 MB
_NUMBER = (int, float, str)  # infinite ones are text
_OPTIONAL = (int, float, str, type(None))
_WHOLE = {
    "format": int, "facts": dict, "layers": dict, "steps": list, "reverted": list, "before": list, "after": list,
    "holds": bool, "reason": str, "runs": int, "final_before": _NUMBER, "final": _NUMBER,
    **dict.fromkeys(("latency_before_us", "latency_us", "latency_fp32_us"), _NUMBER),
}  # fmt: skip
_ROW = {
    "name": str, "histogram": list,
    **dict.fromkeys(("own", "total", "limit", "amax", "clipped", "histogram_range"), _NUMBER),
}  # fmt: skip
_LAYER = {
    "precision": str, "strategy": str, "reason": str,
    **dict.fromkeys(("error_before", "error_after", "latency_us"), _OPTIONAL),
}  # fmt: skip
_STEP = {
    "layer": str,
    "own": _NUMBER,
    "tried": list,
    "action": (str, type(None)),
    "latency_us": _NUMBER,
    "final": _NUMBER,
}


def to_dict(result: SearchResult) -> dict[str, Any]:
    """The figures of a search as values for JSON; infinite ones are text."""
    numbers = ("final_before", "final", "latency_before_us", "latency_us", "latency_fp32_us", "runs", "holds", "reason")
    return {
        "format": FORMAT,
        "facts": dict(result.facts),
        **{name: inf_to_text(getattr(result, name)) for name in numbers},
        "offenders": list(result.offenders),
        "reverted": [list(pair) for pair in result.reverted],
        "layers": {
            name: {key: inf_to_text(value) for key, value in vars(layer).items()}
            for name, layer in result.precisions.layers.items()
        },
        "steps": [
            {
                **{key: inf_to_text(value) for key, value in vars(step).items()},
                "tried": [[name, inf_to_text(error), cost] for name, error, cost in step.tried],
            }
            for step in result.steps
        ],
        "before": [error.to_dict() for error in result.before],
        "after": [error.to_dict() for error in result.after],
    }


def write_json(result: SearchResult, path: str | Path) -> None:
    """Write the figures, whole or not at all."""
    write_atomic(path, (json.dumps(to_dict(result), indent=1) + "\n").encode())


def read_report(path: str | Path) -> dict[str, Any]:
    """Read what `write_json` wrote.

    Raises:
        FormatError: it is something else.
        FileNotFoundError: there is no such file.
    """
    data = read_json(path, max_bytes=_MAX_BYTES, error=_unusable_error)
    try:
        _check(data)
    except _WrongError as error:
        raise _unusable_error(f"{path}: {error}", path=path) from error
    return dict(data)


def _unusable_error(problem: str, *, path: str | Path, **facts: object) -> FormatError:
    return FormatError(
        f"{problem}.\nThese are not the figures of a precision search, format {FORMAT}.", path=Path(path), **facts
    )


class _WrongError(ValueError):
    """A report differs from what `to_dict` writes."""


def _check(data: object) -> None:
    """Require all that a page shows, in its type."""
    report = _check_fields(data, _WHOLE, "the file")
    if report["format"] != FORMAT:
        raise _WrongError(f"format {shorten(report['format'])}")
    for part in ("before", "after"):
        for row in report[part]:
            bins = _check_fields(row, _ROW, part)["histogram"]
            if not bins or not all(type(count) in (int, float) for count in bins):
                raise _WrongError(f"{part}: histogram: expected numbers, found {shorten(bins)}")
    for layer in report["layers"].values():
        _check_fields(layer, _LAYER, "layers")
    for step in report["steps"]:
        for tried in _check_fields(step, _STEP, "steps")["tried"]:
            if not (isinstance(tried, list) and len(tried) == 3 and isinstance(tried[0], str)):
                raise _WrongError(f"steps: tried: expected a name, an error and a cost, found {shorten(tried)}")
            _check_number(tried[1], "tried")
            _check_number(tried[2], "tried")
    for pair in report["reverted"]:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(name, str) for name in pair)):
            raise _WrongError(f"reverted: expected two names, found {shorten(pair)}")


def _check_fields(value: object, kinds: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _WrongError(f"{where}: expected an object, found {shorten(value)}")
    for key, kind in kinds.items():
        if key not in value:
            raise _WrongError(f"{where}: {key} is missing")
        if not isinstance(value[key], kind):
            raise _WrongError(f"{where}: {key}: {shorten(value[key])}")
        if kind in (_NUMBER, _OPTIONAL):
            _check_number(value[key], f"{where}: {key}")
    return value


def _check_number(value: object, where: str) -> None:
    try:
        if value is not None:
            float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise _WrongError(f"{where}: expected a number, found {shorten(value)}") from None
