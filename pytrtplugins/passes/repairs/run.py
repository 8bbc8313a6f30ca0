"""Run all repairs on a model."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ...errors import UsageError
from ...model import Graph
from ...model.ir import rewrite
from ...model.proto import copy_of
from ...utils.optional import ir, onnx
from ...utils.repeated import keep_items
from ..prepare import load_model
from ._base import Finding, Repair, Repaired, infer_dims
from .batch_norm_spatial import BatchNormSpatial
from .batch_reshape import BatchReshape
from .channel_vectors import ChannelVectors
from .free_batch import FreeBatch
from .label_inputs import LabelInputs
from .leftovers import Leftovers
from .old_opset import OldOpset
from .shape_arithmetic import ShapeArithmetic
from .training_mode import TrainingMode
from .transposes import DoubledTransposes
from .weight_inputs import WeightInputs

__all__ = ["REPAIRS", "RepairedModel", "repair"]

REPAIRS: dict[str, type[Repair]] = {
    each.name: each
    for each in (
        WeightInputs, LabelInputs, BatchNormSpatial, OldOpset, ShapeArithmetic, ChannelVectors, TrainingMode, BatchReshape,
        FreeBatch, DoubledTransposes, Leftovers,
    )
}  # fmt: skip
"""Name → repair, in the order in which they run: each finds what those before it have uncovered."""
_AGAIN = ("channel-vectors",)
"""Repairs behind which more dims are known, so that they may find more."""


@dataclass(frozen=True)
class RepairedModel:
    """A repaired model, and what was found in it.

    Attributes:
        model: The model; the one that was given where nothing was found.
        findings: What was found and mended, in the order in which it was.
    """

    model: onnx.ModelProto
    findings: tuple[Finding, ...]


def repair(
    model: str | Path | onnx.ModelProto | Graph,
    *,
    only: Collection[str] | None = None,
    skip: Collection[str] = (),
    also: Collection[str] = (),
) -> RepairedModel:
    """Repair known faults of exporters, and remove leftovers.

    A fault is what onnxruntime refuses, or what it computes otherwise than was meant; only faults change what a model computes.
    Nodes in bodies of If, Loop and Scan, and in local functions, are left as they are.

    Args:
        model: Path or model; it is not changed.
        only: Names of repairs, from `REPAIRS`; default: all but those that run on request alone.
        skip: Names of repairs that are left out.
        also: Names of repairs that run on request alone, beside the others: ``free-batch``.

    Raises:
        UsageError: there is no repair of a name.
        ModelError: it is no ONNX model, or a broken one that cannot be read; or a repair that was asked for cannot be made.
    """
    for name in (*(only or ()), *skip, *also):
        if name not in REPAIRS:
            raise UsageError(f"there is no repair {name!r}.\nRepairs: {', '.join(REPAIRS)}", name=name)
    loaded = load_model(model)
    findings: list[Finding] = []

    def mend(current: ir.Model) -> bool:
        for name, repair_class in REPAIRS.items():
            is_selected = not repair_class.on_request if only is None else name in only
            if name in skip or not (is_selected or name in also):
                continue
            while True:
                infer_dims(current)
                result = cast("Repaired", repair_class()(current))
                findings.extend(result.findings)
                if not result.findings or name not in _AGAIN:
                    break
        if findings:
            infer_dims(current)
        return bool(findings)

    repaired = rewrite(copy_of(loaded), mend)
    if not findings:
        return RepairedModel(loaded, ())
    declared_names = {info.name for info in loaded.graph.value_info}
    keep_items(repaired.graph.value_info, lambda info: info.name in declared_names)  # inferred types are for repairs
    return RepairedModel(repaired, tuple(findings))
