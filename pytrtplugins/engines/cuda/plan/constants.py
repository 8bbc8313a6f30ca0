"""Compute steps that read constants alone while planning."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ....model.operator_traits import Trait, operators
from ....tensor import DType
from ..operators import OPS
from .plan import Step
from .tensors import Tensors

__all__ = ["constant_results"]

_TYPES = (DType.FLOAT32, DType.FLOAT16, DType.FLOAT64, DType.INT32, DType.INT64, DType.BOOL)
_RANDOM = operators(Trait.RANDOM)
_MAX_ELEMENTS = 1 << 24
"""Of all inputs and outputs together."""


def constant_results(step: Step, tensors: Tensors) -> dict[str, npt.NDArray[Any]]:
    """What an operator's array function gives for constants, by the outputs' names; empty for a step that is to run.

    ONNX's reference implementation, which folds constants before, does not compute every operator as ONNX says, nor operands of
    different float types, which a conversion to float16 leaves among constants.

    What runs: (1) what reads a tensor, or nothing; (2) random numbers, and operators without an array function; (3) types that
    NumPy lacks; (4) much data; (5) results of other dims than the plan's, and what raises, which the run explains.
    """
    names = [name for name in step.inputs if name]
    outputs = [name for name in step.outputs if name]
    if (
        not names or step.op not in OPS or step.op in _RANDOM or not all(name in tensors.constants for name in names)
    ):  # cases 1 and 2
        return {}
    described = [tensors.described(name) for name in outputs]
    if not {DType.of(tensors.constants[name]) for name in names} | {kind for _, kind in described} <= set(_TYPES):
        return {}  # case 3
    sizes = [tensors.constants[name].size for name in names]
    if sum(sizes) + sum(int(np.prod(dims)) for dims, _ in described) > _MAX_ELEMENTS:  # case 4
        return {}
    arrays = [_computable(tensors.constants[name]) if name else None for name in step.inputs]
    all_dims = [tensors.dims(name) if name else None for name in step.outputs]
    try:
        with np.errstate(all="ignore"):
            found = OPS[step.op](np, step.attributes, all_dims, *arrays)
    except Exception:  # case 5
        return {}
    found = found if isinstance(found, (list, tuple)) else [found]
    results = {name: np.asarray(array) for name, array in zip(step.outputs, found, strict=False) if name}
    if any(results[name].shape != dims for name, (dims, _) in zip(outputs, described, strict=True)):  # case 5
        return {}
    with np.errstate(over="ignore"):
        return {name: results[name].astype(kind.numpy) for name, (_, kind) in zip(outputs, described, strict=True)}


def _computable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array in a type that array functions compute in: float16 becomes float32."""
    return array.astype(np.float32) if array.dtype == np.float16 else array
