"""Find float32 inputs that the first layers round to float16 or int8, so that the host can convert them before the copy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....tensor import DType
from .plan import Plan

__all__ = ["InputRounding", "find_input_rounding"]

_SCALES = 1e-30, 1e30
"""Where the product of a code and its scale, divided by the scale, is the code again."""


@dataclass(frozen=True)
class InputRounding:
    """The type and scale to which float32 values are rounded.

    Attributes:
        dtype: float16 or int8.
        scale: Of the codes; 1 for float16.
    """

    dtype: DType
    scale: float = 1.0


def find_input_rounding(plan: Plan, name: str) -> InputRounding | None:
    """Find the rounding that all readers of a float32 input apply first; None if one does not round, or they differ.

    Args:
        plan: The plan.
        name: The input's.
    """
    placed, roundings = plan.tensors[name], set[InputRounding]()
    alone = sum(other.storage == placed.storage for other in plan.tensors.values()) == 1
    if placed.format.dtype is not DType.FLOAT32 or not alone or plan.tail is not None or name in plan.outputs.values():
        return None
    for step in plan.steps:
        if name not in step.inputs:
            continue
        if (
            step.kind != "conv"
            or not step.attributes["image"]
            or step.inputs.index(name)
            or step.inputs.count(name) > 1
        ):
            return None
        scale = float(np.float32(step.attributes["x_scale"]))
        roundings.add(InputRounding(DType.of(plan.constants[step.inputs[1]]), scale or 1.0))
    if len(roundings) != 1:
        return None
    rounds = roundings.pop()
    fits = rounds.dtype in (DType.FLOAT16, DType.INT8) and _SCALES[0] < rounds.scale < _SCALES[1]
    return rounds if fits else None
