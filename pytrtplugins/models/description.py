"""A detector's description in its model: class names, how images are fitted into its input, thresholds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ModelError, UsageError
from ..utils.name_list import read_class_names
from ..utils.numbers import check_share
from ..utils.text_formats import parse_json, shorten
from ..vision import MODES

if TYPE_CHECKING:
    import onnx

__all__ = ["Description", "describe", "read_description"]

KEY = "pytrtplugins.detector"


@dataclass(frozen=True)
class Description:
    """What a model says of itself; None where it does not.

    Fields:
        names: Of its classes.
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
    """Write into a model what a detector needs to know; engines that are built of it, and their files, know it too.

    What is not given stays as it was. The model's metadata ``pytrtplugins.detector`` hold it as JSON.

    Args:
        model: An ONNX model, which is changed.
        names: Names of the classes: a file with one a line (darknet's .names), or a list.
        mode: How images are fitted into its input; see `pytrtplugins.vision.letterbox`.
        score_threshold: Scores above it are reported, 0..1.
        iou_threshold: Overlap above which the weaker of two boxes of a class is dropped, 0..1.

    Returns:
        All that the model says now.

    Raises:
        UsageError: a threshold is outside 0..1, the mode is unknown, or the file cannot be read.
    """
    facts = {key: value for key, value in asdict(read_description(model)).items() if value is not None}
    if names is not None:
        facts["names"] = list(read_class_names(names))
    if mode is not None:
        if mode not in MODES:
            raise UsageError(f"mode: expected one of {', '.join(MODES)}, found {mode!r}.", mode=mode)
        facts["mode"] = mode
    for key, value in (("score_threshold", score_threshold), ("iou_threshold", iou_threshold)):
        if value is not None:
            check_share(key, value)
            facts[key] = value
    entry = next((prop for prop in model.metadata_props if prop.key == KEY), None)
    if entry is None and facts:
        entry = model.metadata_props.add(key=KEY)
    if entry is not None:
        entry.value = json.dumps(facts)
    return read_description(model)


def read_description(model: onnx.ModelProto) -> Description:
    """What a model says of itself.

    Raises:
        ModelError: its metadata are damaged.
    """
    for prop in model.metadata_props:
        if prop.key == KEY:
            where = f"model {model.graph.name[:80]!r}: its metadata {KEY!r}"
            facts = parse_json(prop.value, where, error=ModelError)
            if not _is_description(facts):
                raise ModelError(f"{where} do not describe a detector: {shorten(facts)}.")
            names = facts.get("names")
            return Description(**{**facts, "names": None if names is None else tuple(names)})
    return Description()


def _is_description(facts: Any) -> bool:
    if not isinstance(facts, dict) or set(facts) - set(Description.__annotations__):
        return False
    names, mode = facts.get("names"), facts.get("mode")
    shares = [facts[key] for key in ("score_threshold", "iou_threshold") if key in facts]
    return (
        (names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names)))
        and (mode is None or mode in MODES)
        and all(type(share) in (int, float) and 0 <= share <= 1 for share in shares)
    )
