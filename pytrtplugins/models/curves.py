"""Plot precision over recall."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import NoDataError
from ..utils.figures import FAINT, INK, MUTED, PALETTE, check_figure, drawing, save
from .evaluate import ClassResult, Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["draw_curves"]

_LINES = [
    (f"C{number % len(PALETTE)}", ("-", "--")[number // len(PALETTE)]) for number in range(8)
]  # colour and dashes
_LONGEST_NAME, _LONGEST_TITLE = 24, 72


def draw_curves(result: Evaluation, path: str | Path, *, title: str = "") -> None:
    """Draw precision over recall at IoU 0.5: a line per class, and their mean in black, the area below which is mAP50.

    Classes have a colour, or colour and dashes, and a name where there are at most eight; of more, the eight with the most objects, and the
    others are thin and grey. A line ends where it falls to 0, at the first recall that its class does not reach. Classes
    without an object have none.

    Args:
        result: What :func:`evaluate` found.
        path: The image; the suffix chooses .png, .svg or .pdf.
        title: What was measured, such as ``"yolov2-voc.onnx, cpu, fp32"``; stands above the figures.

    Raises:
        UsageError: the suffix is another, or the folder does not exist.
        NoDataError: no class has an object.
        MissingExtraError: matplotlib is missing.
    """
    path = check_figure(path)
    # the most frequent first; the sort is stable, so that equal ones keep the data's order
    present = sorted((row for row in result.classes if row.objects), key=lambda row: -row.objects)
    if not present:
        raise NoDataError("precision over recall: the images hold no object of a class that the detector knows.")
    with drawing(9, 5, feature="a plot") as figure:
        axes = figure.subplots()
        lines = [*_draw_classes(axes, present), _draw_mean(axes, present)]
        axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
        axes.set_xticks(np.arange(11) / 10)
        axes.set_yticks(np.arange(11) / 10)
        axes.grid(color=FAINT)
        axes.set_title(_title(result, present, title))
        figure.legend(handles=lines[::-1], loc="outside right upper", title="AP50  class (objects)")
        save(figure, path)


def _draw_classes(axes: Axes, present: Sequence[ClassResult]) -> Iterator[Line2D]:
    """Draw a line per class, and yield the lines of the legend in reverse order."""
    legend_rows, other_rows = present[: len(_LINES)], present[len(_LINES) :]
    grey_lines = [_draw_line(axes, row.precision_at_50, color=MUTED, linewidth=0.6, zorder=1) for row in other_rows]
    if grey_lines:
        grey_lines[0].set_label(f"{len(grey_lines)} other{'s' if len(grey_lines) > 1 else ''}")
        yield grey_lines[0]
    for row, (color, dashes) in reversed(list(zip(legend_rows, _LINES, strict=False))):
        line = _draw_line(axes, row.precision_at_50, color=color, linestyle=dashes, zorder=2)
        line.set_label(f"{row.ap50:.3f}  {_escape_text(row.name, _LONGEST_NAME)} ({row.objects:,})")
        yield line


def _draw_mean(axes: Axes, present: Sequence[ClassResult]) -> Line2D:
    mean = np.mean([row.precision_at_50 for row in present], axis=0)
    line = _draw_line(axes, mean, color=INK, linewidth=2.6, zorder=3)
    line.set(label=f"{mean.mean():.3f}  mean of {len(present)}", gid="mean")
    return line


def _draw_line(axes: Axes, precision: Sequence[float] | npt.NDArray[np.float64], **style: Any) -> Line2D:
    """Draw one curve up to the first recall at which precision is 0."""
    recall_count = int(np.count_nonzero(precision))  # precision never rises again: pycocotools gives its envelope
    recalls = np.linspace(0, 1, len(precision))
    return axes.plot(recalls[: recall_count + 1], precision[: recall_count + 1], **style)[0]


def _title(result: Evaluation, present: Sequence[ClassResult], title: str) -> str:
    summary = (
        f"mAP50 {result.map50:.3f}: {result.images:,} images, {sum(row.objects for row in present):,} objects of "
        f"{len(present)} class{'es' if len(present) > 1 else ''}"
    )
    return f"{_escape_text(title, _LONGEST_TITLE)}\n{summary}" if title else summary


def _escape_text(text: str, length: int) -> str:
    """Shorten a text, and escape ``$``, which matplotlib would read as mathematics."""
    text = text if len(text) <= length else text[: length - 3] + "..."
    return text.replace("$", r"\$")
