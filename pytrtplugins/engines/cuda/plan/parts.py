"""Describe a plan's steps by the tensors of the lowered model."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from ....tensor import TensorDesc
from ....utils.optional import ir
from ...base.fusion import Part
from ..lower.pipeline import OptionalStep
from .planner import make_plan

__all__ = ["parts_of"]

_FORM = re.compile(r"@[a-z]+[0-9]*(-nhwc)?[0-9]*")


def parts_of(
    lowered: ir.Model, inputs: Sequence[TensorDesc], disable: Collection[OptionalStep], requested: Mapping[str, str]
) -> tuple[Part, ...]:
    """The steps of the plan with all free dims 1, as parts; copies in other formats have the name of their tensor."""
    sizes = {dim.name: 1 for desc in inputs for dim in desc.dims if not isinstance(dim, int)}
    plan = make_plan(lowered, sizes, disable, requested)
    return tuple(
        Part(step.name, step.kind, *(tuple(map(_without_suffix, names)) for names in (step.inputs, step.outputs)))
        for step in plan.steps
    )


def _without_suffix(name: str) -> str:
    """Remove the suffix of a copy's name: ``y@float32-nhwc`` → ``y``."""
    plain, at, form = name.rpartition("@")
    return plain if plain and _FORM.fullmatch(at + form) else name
