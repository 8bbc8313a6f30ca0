"""What a search saw, as JSON and as a page with plots."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FormatError
from ..utils.figures import INK, MUTED, drawing, svg
from ..utils.files import write_atomic
from ..utils.text_formats import read_json, shorten
from .measure import inf_to_text
from .search import SearchResult

__all__ = ["read_report", "to_dict", "write_html", "write_json"]

FORMAT = 1
_MAX_BYTES = 64 << 20  # 1,000 layers take 2 MB
_SMALLEST, _LARGEST = 1e-6, 1e6  # errors are drawn between these
_MAX_HISTOGRAMS, _MAX_NAMES = 6, 64
_FAR = 3  # a limit so many times beyond the values is written, not drawn
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
_STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:1040px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0}td,th{border-bottom:1px solid #ddd;padding:.25em .7em;text-align:left}
td.number{text-align:right;font-variant-numeric:tabular-nums}svg{max-width:100%;height:auto}"""


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
    data = read_json(path, max_bytes=_MAX_BYTES, error=_unusable)
    try:
        _check(data)
    except _WrongError as error:
        raise _unusable(f"{path}: {error}", path=path) from error
    return dict(data)


def _unusable(problem: str, *, path: str | Path, **facts: object) -> FormatError:
    return FormatError(
        f"{problem}.\nThese are not the figures of a precision search, format {FORMAT}.", path=Path(path), **facts
    )


class _WrongError(ValueError):
    """Something in a report is not what `to_dict` gives."""


def _check(data: object) -> None:
    """Require all that a page shows, in its type."""
    whole = _checked(data, _WHOLE, "the file")
    if whole["format"] != FORMAT:
        raise _WrongError(f"format {shorten(whole['format'])}")
    for part in ("before", "after"):
        for row in whole[part]:
            bins = _checked(row, _ROW, part)["histogram"]
            if not bins or not all(type(count) in (int, float) for count in bins):
                raise _WrongError(f"{part}: histogram: expected numbers, found {shorten(bins)}")
    for layer in whole["layers"].values():
        _checked(layer, _LAYER, "layers")
    for step in whole["steps"]:
        for tried in _checked(step, _STEP, "steps")["tried"]:
            if not (isinstance(tried, list) and len(tried) == 3 and isinstance(tried[0], str)):
                raise _WrongError(f"steps: tried: expected a name, an error and a cost, found {shorten(tried)}")
            _check_number(tried[1], "tried")
            _check_number(tried[2], "tried")
    for pair in whole["reverted"]:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(name, str) for name in pair)):
            raise _WrongError(f"reverted: expected two names, found {shorten(pair)}")


def _checked(value: object, kinds: Mapping[str, Any], where: str) -> dict[str, Any]:
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


def write_html(data: Mapping[str, Any], path: str | Path) -> None:
    """Write a page: the layers that were treated, and three plots. It needs no other file, and no network.

    Raises:
        MissingExtraError: matplotlib is missing.
    """
    facts = data["facts"]
    title = f"{facts.get('precision')} on engine {facts.get('engine')}, {facts.get('tolerance')}"
    state = "The outputs hold" if data["holds"] else f"<b>The outputs do not hold</b>: {html.escape(data['reason'])}"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{state}: error {_number(data['final_before'])} of the tolerance before, {_number(data['final'])} after. Latency "
        f"{_number(data['latency_before_us'])} µs before, {_number(data['latency_us'])} µs after, "
        f"{_number(data['latency_fp32_us'])} µs in float32 ({html.escape(str(facts.get('latency')))}). "
        f"{data['runs']} evaluations; tensors compared on {facts.get('samples')} sample{'s' * (facts.get('samples') != 1)}.</p>",
        "<h2>Layers that are treated</h2>",
        _layers_table(data),
        "<h2>Error of each layer, in the order of the network</h2>",
        _svg((11, 5.4), lambda figure: _draw_errors(figure, data)),
        "<h2>Values of the layers against what the precision holds</h2>",
        _svg((11, 4.4), lambda figure: _draw_ranges(figure, data["before"])),
        _svg((11, 5.8), lambda figure: _draw_histograms(figure, data)),
        "<h2>Latency against accuracy</h2>",
        _svg((8, 4.2), lambda figure: _draw_front(figure, data)),
        "<h2>What was tried</h2>",
        _steps_table(data),
        _reverted(data),
    ]
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
    write_atomic(path, (page + "\n".join(parts) + "</html>\n").encode())


def _layers_table(data: Mapping[str, Any]) -> str:
    if not data["layers"]:
        return "<p>None: every layer computes in low precision.</p>"
    rows = [
        (name, layer["precision"], layer["strategy"], _number(layer["error_before"]), _number(layer["error_after"]),
         _number(layer["latency_us"]), layer["reason"])
        for name, layer in data["layers"].items()
    ]  # fmt: skip
    return _table(("layer", "precision", "strategy", "error before", "after", "µs", "reason"), rows)


def _steps_table(data: Mapping[str, Any]) -> str:
    rows = [
        (number, step["layer"], _number(step["own"]), name, _number(error), _number(cost), "kept" if name == step["action"] else "")
        for number, step in enumerate(data["steps"], 1)
        for name, error, cost in step["tried"]
    ]  # fmt: skip
    head = ("step", "layer", "own error", "intervention", "error with it", "µs more", "")
    return _table(head, rows) if rows else "<p>Nothing.</p>"


def _reverted(data: Mapping[str, Any]) -> str:
    pairs = [html.escape(f"{layer} ({name})") for layer, name in data["reverted"]]
    return f"<p>Taken back in the end, since the outputs hold without: {', '.join(pairs)}.</p>" if pairs else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = "".join(f"<th>{html.escape(item)}</th>" for item in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{cells}</tr>{body}</table>"


def _cell(item: Any) -> str:
    try:
        float(item)
    except ValueError:
        return f"<td>{html.escape(str(item))}</td>"
    return f'<td class="number">{item}</td>'


def _draw_errors(figure: Any, data: Mapping[str, Any]) -> None:
    axes = figure.subplots()
    positions = np.arange(len(data["before"]))
    for key, rows, color, style in (
        ("own", data["before"], "C1", "o"),
        ("total", data["before"], MUTED, "-"),
        ("total", data["after"], "C0", "-"),
    ):
        values = [_drawn(row[key]) if float(row[key]) else math.nan for row in rows]
        when = "after" if rows is data["after"] else "before"
        text = "own, alone on float32's inputs" if key == "own" else f"in the network, {when}"
        axes.plot(positions[: len(values)], values, style, color=color, label=text, markersize=5)
    _draw_tolerance(axes)
    axes.set_yscale("log")
    axes.set_ylabel("error, in units of the tolerance")
    _name_layers(axes, data["before"])
    figure.legend(loc="outside upper center", ncols=3)


def _draw_ranges(figure: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    axes = figure.subplots()
    positions = np.arange(len(rows))
    limits = [float(row["limit"]) or math.nan for row in rows]
    largest = [float(row["amax"]) or math.nan for row in rows]
    axes.plot(positions, largest, "o", color="C0", markersize=4, label="largest |x| in float32")
    axes.plot(positions, limits, "_", color="C1", markersize=9, label="largest that the precision holds")
    axes.set_yscale("log")
    axes.set_ylabel("|x|, in the tensor's own unit")
    _name_layers(axes, rows)
    clipped = axes.twinx()
    shares = [100 * float(row["clipped"]) for row in rows]
    clipped.bar(positions, shares, color="C5", alpha=0.5, label="clipped values")
    clipped.set_ylabel("clipped values, %")
    clipped.set_ylim(0, max(1.0, 1.1 * max(shares, default=0.0)))
    figure.legend(loc="outside upper center", ncols=3)


def _draw_histograms(figure: Any, data: Mapping[str, Any]) -> None:
    """Of the layers with the largest own errors."""
    chosen = sorted(data["before"], key=lambda row: -_drawn(row["own"]))[:_MAX_HISTOGRAMS]
    grid = figure.subplots(2, 3, squeeze=False).ravel()
    for axes, row in zip(grid, chosen, strict=False):
        counts, limit = np.array(row["histogram"], float), float(row["limit"])
        width = float(row["histogram_range"]) / len(counts)
        used = int(np.flatnonzero(counts)[-1]) + 1 if counts.any() else 1
        axes.bar((np.arange(used) + 0.5) * width, counts[:used], width, color=MUTED)
        axes.set_yscale("symlog")
        if 0 < limit <= _FAR * used * width:
            axes.axvline(limit, color="C1")
        elif limit:
            axes.annotate(
                f"holds up to {limit:.4g}", (0.97, 0.9), xycoords="axes fraction", ha="right", color="C1", fontsize=8
            )
        axes.set_title(
            f"{_plain(row['name'])}\nown error {_number(row['own'])}, clipped {float(row['clipped']):.2%}", fontsize=8
        )
        axes.set_xlabel("|x|", fontsize=8)
        axes.tick_params(labelsize=7)
    for axes in grid[::3]:
        axes.set_ylabel("values", fontsize=8)
    for axes in grid[len(chosen) :]:
        axes.set_visible(False)


def _draw_front(figure: Any, data: Mapping[str, Any]) -> None:
    """The numbers are those of the steps."""
    axes = figure.subplots()
    way = [("start", data["latency_before_us"], data["final_before"])]
    way += [
        (str(number), step["latency_us"], step["final"])
        for number, step in enumerate(data["steps"], 1)
        if step["action"]
    ]
    way.append(("end", data["latency_us"], data["final"]))
    errors = [_drawn(error) for _, _, error in way]
    axes.plot([float(latency) for _, latency, _ in way], errors, "o-", color="C0", label="the search's way")
    for index, ((text, latency, _), error) in enumerate(zip(way, errors, strict=True)):
        end = index == len(way) - 1
        axes.annotate(
            text, (float(latency), error), xytext=(5, -11 if end else 5), textcoords="offset points", fontsize=8
        )
    axes.plot([float(data["latency_fp32_us"])], [min(*errors, 1) / 10], "s", color=INK, label="float32: no error")
    _draw_tolerance(axes)
    axes.set_yscale("log")
    axes.set(xlabel="latency, µs", ylabel="error of the outputs,\nin units of the tolerance")
    axes.margins(0.08, 0.12)
    figure.legend(loc="outside upper center", ncols=2)


def _draw_tolerance(axes: Any) -> None:
    axes.axhline(1, color=INK, linewidth=1, linestyle=":")
    axes.annotate("tolerance", (1, 1), xycoords=("axes fraction", "data"), xytext=(-4, 3), textcoords="offset points",
                  ha="right", fontsize=8)  # fmt: skip


def _name_layers(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    step = max(1, math.ceil(len(rows) / _MAX_NAMES))
    axes.set_xticks(range(0, len(rows), step), [_plain(row["name"]) for row in rows[::step]], rotation=90, fontsize=7)
    axes.set_xlim(-1, len(rows))


def _svg(size: tuple[float, float], draw: Callable[[Any], None]) -> str:
    with drawing(*size, feature="a report") as figure:
        draw(figure)
        text = svg(figure, text=True)
    return text[text.index("<svg") :]


def _drawn(value: Any) -> float:
    number = float(value)
    return _LARGEST if number != number else min(max(number, _SMALLEST), _LARGEST)


def _number(value: Any) -> str:
    return "–" if value is None else f"{float(value):.4g}"


def _plain(text: str, length: int = 28) -> str:
    return (text if len(text) <= length else f"…{text[1 - length :]}").replace("$", r"\$")
