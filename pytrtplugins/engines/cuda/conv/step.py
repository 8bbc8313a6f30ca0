"""A planned step as a convolution: its problem and its operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ....tensor import DType
from ..device.layout import as_rows
from ..plan.plan import Plan, Step
from .problem import ConvProblem, Operands

__all__ = ["conv_operands", "conv_problem"]

Number = TypeVar("Number", int, float)


def conv_problem(step: Step, plan: Plan, tf32: bool) -> ConvProblem:
    """The problem that a ``conv`` step poses.

    Args:
        step: The step.
        plan: Its plan.
        tf32: Whether a convolution in float32 may round its operands to TF32.
    """
    at, names = step.attributes, step.inputs
    weights = plan.constants[names[1]]
    residual = plan.tensors[names[3]].format if len(names) > 3 and names[3] else None
    x, y = plan.tensors[names[0]].format, plan.tensors[step.outputs[0]].format
    if at["rows"]:
        x, y, residual = as_rows(x), as_rows(y), None if residual is None else as_rows(residual)
    element = DType.of(weights) if at["image"] else None
    return ConvProblem(
        x=x,
        y=y,
        kernel=_pair(weights.shape[2:], int),
        strides=_pair(at["strides"], int),
        pads=_pads(at["pads"]),
        dilations=_pair(at["dilations"], int),
        groups=int(at["group"]),
        activation=at["activation"],
        bounds=_pair(at["bounds"], float),
        residual=residual,
        residual_activation=at["residual_activation"],
        residual_bounds=_pair(at["residual_bounds"], float),
        tensor_cores=tf32 or (element or x.dtype) is not DType.FLOAT32,
        pool=bool(at["pool"]),
        element=element,
        reorg=int(at["reorg"]),
        blocks=int(at["blocks"]),
        cut=_pads(at["cut"]),
    )


def _pads(values: Iterable[Any]) -> tuple[int, int, int, int]:
    top, left, bottom, right = map(int, values)
    return top, left, bottom, right


def _pair(values: Iterable[Any], kind: Callable[[Any], Number]) -> tuple[Number, Number]:
    first, second = map(kind, values)
    return first, second


def conv_operands(
    step: Step, constants: Mapping[str, npt.NDArray[Any]], weights: Callable[[str], npt.NDArray[Any]] | None = None
) -> Operands:
    """The constant operands of a ``conv`` step; ``weights`` returns by name those that the plan leaves out."""
    at, names = step.attributes, step.inputs
    scale = None
    if at["x_scale"]:
        scale = (np.float64(at["x_scale"]) * constants[names[4]].astype(np.float64)).astype(np.float32)
    return Operands(
        load=lambda: (weights or constants.__getitem__)(names[1]),
        bias=constants[names[2]].astype(np.float32),
        scale=scale,
        slopes=constants[names[5]].astype(np.float32) if len(names) > 5 and names[5] else None,
        y_scale=float(np.float32(at["y_scale"])) or 1.0,
        residual_scale=float(np.float32(at["residual_scale"])) or 1.0,
        x_scale=float(np.float32(at["x_scale"])) or 1.0,
    )
