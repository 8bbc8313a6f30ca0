"""A plan's steps, as the tensors of the model that was lowered tell them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ....tensor import TensorDesc
from ...base.fusion import Part
from .planner import make_plan

if TYPE_CHECKING:
    import onnx_ir as ir

    from ..lower.pipeline import OptionalStep

__all__ = ["parts_of"]

_FORM = re.compile(r"@[a-z]+[0-9]*(-nhwc)?[0-9]*")


def parts_of(
    lowered: ir.Model, inputs: Sequence[TensorDesc], disable: Collection[OptionalStep], requested: Mapping[str, str]
) -> tuple[Part, ...]:
    """What runs in one go: the steps of the plan in which all free dims are 1; a tensor in another form has the name of the tensor."""
    sizes = {dim.name: 1 for desc in inputs for dim in desc.dims if not isinstance(dim, int)}
    plan = make_plan(lowered, sizes, disable, requested)
    return tuple(
        Part(step.name, step.kind, *(tuple(map(_plain, names)) for names in (step.inputs, step.outputs)))
        for step in plan.steps
    )


def _plain(name: str) -> str:
    """Without what the planner puts behind a tensor's name for its copies: ``y@float32-nhwc``."""
    plain, at, form = name.rpartition("@")
    return plain if plain and _FORM.fullmatch(at + form) else name
