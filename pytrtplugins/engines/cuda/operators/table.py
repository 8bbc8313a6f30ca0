"""Operator → its function, and which of its inputs that function needs as numbers of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["KNOWN", "OPS", "UNCAPTURED", "Attributes", "Function", "op", "reduced_axes", "refusal"]

Attributes = Mapping[str, Any]
Function = Callable[..., Any]
"""Module of arrays, attributes, dims of the outputs, inputs (None where left out; those of `KNOWN` are NumPy's) → outputs.

float16 and bfloat16 come as float32; what is returned is converted to the output's type.
"""

OPS: dict[str, Function] = {}
"""Standard operators that run array by array, on any layout."""

KNOWN: dict[str, tuple[int, ...]] = {}
"""Operator → its inputs that must be constants while the run is planned: axes, sizes, positions."""


UNCAPTURED: set[str] = set()
"""Operators that cannot be part of a CUDA graph: what CuPy leaves to cuBLAS, and what copies to the host."""


def op(*names: str, known: tuple[int, ...] = (), captured: bool = True) -> Callable[[Function], Function]:
    """Note a function under the names of its operators.

    Args:
        *names: Of operators of ONNX's own domain, or of this engine's.
        known: Inputs that must be constants.
        captured: Whether they may be part of a CUDA graph.
    """

    def keep(function: Function) -> Function:
        for name in names:
            OPS[name] = function
            if known:
                KNOWN[name] = known
            if not captured:
                UNCAPTURED.add(name)
        return function

    return keep


def refusal(name: str, attributes: Attributes, inputs: Sequence[str], constants: Mapping[str, Any]) -> str:
    """Why an operator of `OPS` is not run as a node has it; empty where it is.

    Args:
        name: Of the operator.
        attributes: The node's.
        inputs: Names of the node's.
        constants: Arrays by name.
    """
    for index in KNOWN.get(name, ()):
        if index < len(inputs) and inputs[index] and inputs[index] not in constants:
            return f"with {inputs[index]!r} computed in the run"
    mode = constants.get(inputs[2]) if name == "Dropout" and len(inputs) > 2 else None
    return "as in training" if attributes.get("training_mode") or (mode is not None and mode.any()) else ""


def reduced_axes(attributes: Attributes, given: Any, rank: int) -> tuple[int, ...]:
    """Axes of a reduction, from its input or its attribute; all where neither says."""
    axes = given if given is not None and np.size(given) else attributes.get("axes")
    if axes is None or not np.size(axes):
        return () if attributes.get("noop_with_empty_axes") else tuple(range(rank))
    return tuple(int(axis) % rank for axis in np.asarray(axes).ravel())
