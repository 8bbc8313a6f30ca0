"""Read and write a detector's description in a model's metadata: class names, letterbox mode, thresholds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import ModelError, UsageError
from ..utils.name_list import read_class_names
from ..utils.numbers import check_share
from ..utils.optional import onnx
from ..utils.text_formats import parse_json, shorten
from ..vision import MODES

__all__ = ["Description", "describe", "read_description"]

KEY = "pytrtplugins.detector"


@dataclass(frozen=True)
class Description:
    """A detector's description in a model's metadata; None for fields that are not there.

    Fields:
        names: Names of its classes.
        mode: How images are fitted into its input; see `pytrtplugins.vision.letterbox`.
        score_threshold: Scores above it are reported, 0..1.
        iou_threshold: Overlap above which the weaker of two boxes of a class is dropped, 0..1.
    """

    names: tuple[str, ...] | None = None
    mode: str | None = None
    score_threshold: float | None = None
    iou_threshold: float | None = None


def describe(
    model: onnx.ModelProto,
    *,
    names: str | Path | Iterable[str] | None = None,
    mode: str | None = None,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
) -> Description:
    """Write a detector's description into a model; engines built from it, and engine files, contain it too.

    Fields that are not given keep their values. The metadata entry ``pytrtplugins.detector`` contains them as JSON.

    Args:
        model: An ONNX model, which is changed.
        names: Names of the classes: a file with one a line (darknet's .names), or a list.
        mode: How images are fitted into its input; see `pytrtplugins.vision.letterbox`.
        score_threshold: Scores above it are reported, 0..1.
        iou_threshold: Overlap above which the weaker of two boxes of a class is dropped, 0..1.

    Returns:
        The complete description after the change.

    Raises:
        UsageError: a threshold is outside 0..1, the mode is unknown, or the file cannot be read.
    """
    fields = {key: value for key, value in asdict(read_description(model)).items() if value is not None}
    if names is not None:
        fields["names"] = list(read_class_names(names))
    if mode is not None:
        if mode not in MODES:
            raise UsageError(f"mode: expected one of {', '.join(MODES)}, found {mode!r}.", mode=mode)
        fields["mode"] = mode
    for key, value in (("score_threshold", score_threshold), ("iou_threshold", iou_threshold)):
        if value is not None:
            check_share(key, value)
            fields[key] = value
    entry = next((prop for prop in model.metadata_props if prop.key == KEY), None)
    if entry is None and fields:
        entry = model.metadata_props.add(key=KEY)
    if entry is not None:
        entry.value = json.dumps(fields)
    return read_description(model)


def read_description(model: onnx.ModelProto) -> Description:
    """Read a detector's description from a model.

    Raises:
        ModelError: its metadata are damaged.
    """
    for prop in model.metadata_props:
        if prop.key == KEY:
            where = f"model {model.graph.name[:80]!r}: its metadata {KEY!r}"
            fields = parse_json(prop.value, where, error=ModelError)
            if not _is_description(fields):
                raise ModelError(f"{where} do not describe a detector: {shorten(fields)}.")
            names = fields.get("names")
            return Description(**{**fields, "names": None if names is None else tuple(names)})
    return Description()


def _is_description(fields: Any) -> bool:
    if not isinstance(fields, dict) or set(fields) - set(Description.__annotations__):
        return False
    names, mode = fields.get("names"), fields.get("mode")
    thresholds = [fields[key] for key in ("score_threshold", "iou_threshold") if key in fields]
    return (
        (names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names)))
        and (mode is None or mode in MODES)
        and all(type(share) in (int, float) and 0 <= share <= 1 for share in thresholds)
    )
