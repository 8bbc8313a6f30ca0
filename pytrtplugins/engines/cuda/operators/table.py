"""The table of operators: the function of each, its inputs that are needed on the host, and whether it can be captured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ....tensor import DType
from ....utils.optional import require
from ..device.elements import stored

__all__ = [
    "HOST_INPUTS",
    "NOT_CAPTURABLE",
    "OPS",
    "RAW",
    "Attributes",
    "Function",
    "computed",
    "onnx_dtype",
    "op",
    "reduced_axes",
    "unsupported_reason",
]

Attributes = Mapping[str, Any]
Function = Callable[..., Any]
"""Module of arrays, attributes, dims of the outputs, inputs (None where left out; those of `HOST_INPUTS` are NumPy's) → outputs.

float16 and bfloat16 come as float32; what is returned is converted to the output's type.
"""

OPS: dict[str, Function] = {}
"""Standard operators that run array by array, on any layout."""

HOST_INPUTS: dict[str, tuple[int, ...]] = {}
"""Operator → its inputs that its function needs on the host: axes, sizes, positions.

Those that are computed in the run are copied there, for which the host waits.
"""

RAW: set[str] = set()
"""Operators that get their inputs as they are stored, whatever the type."""

NOT_CAPTURABLE: set[str] = set()
"""Operators that cannot be part of a CUDA graph: what CuPy leaves to cuBLAS, what sorts, and what copies to the host."""


def op(
    *names: str, host_inputs: tuple[int, ...] = (), capturable: bool = True, raw: bool = False
) -> Callable[[Function], Function]:
    """Register a function for operators.

    Args:
        *names: Of operators of ONNX's own domain, or of this engine's.
        host_inputs: Inputs that the function needs on the host.
        capturable: Whether they may be part of a CUDA graph.
        raw: Whether the function gets inputs as they are stored.
    """

    def keep(function: Function) -> Function:
        for name in names:
            OPS[name] = function
            if host_inputs:
                HOST_INPUTS[name] = host_inputs
            if not capturable:
                NOT_CAPTURABLE.add(name)
            if raw:
                RAW.add(name)
        return function

    return keep


def unsupported_reason(name: str, attributes: Attributes, inputs: Sequence[str], constants: Mapping[str, Any]) -> str:
    """Why an operator of `OPS` cannot run with a node's attributes and inputs; empty where it can.

    Args:
        name: Of the operator.
        attributes: The node's.
        inputs: Names of the node's.
        constants: Arrays by name.
    """
    training = attributes.get("training_mode")
    if name == "Dropout" and len(inputs) > 2 and inputs[2]:
        mode = constants.get(inputs[2])
        if mode is None:
            return f"with {inputs[2]!r}, its training_mode, computed in the run"
        training = mode.any()
    return "as in training" if training else ""


def computed(name: str, inputs: Sequence[str], constants: Collection[str]) -> tuple[int, ...]:
    """The inputs of `HOST_INPUTS` that are not constants: they are copied to the host in each run."""
    return tuple(
        index
        for index in HOST_INPUTS.get(name, ())
        if index < len(inputs) and inputs[index] and inputs[index] not in constants
    )


def can_be_captured(name: str, attributes: Attributes, inputs: Sequence[str], constants: Collection[str]) -> bool:
    """Whether an operator of `OPS` may be part of a CUDA graph as a node has it; arguments as for `unsupported_reason`."""
    sorts = attributes.get("reduction") == "mul"  # of scatters
    counts = name == "RoiAlign" and not attributes.get("sampling_ratio")  # points by the sizes of the boxes
    return name not in NOT_CAPTURABLE and not sorts and not counts and not computed(name, inputs, constants)


def reduced_axes(attributes: Attributes, given: Any, rank: int) -> tuple[int, ...]:
    """Axes of a reduction, from its input or its attribute; all where neither says."""
    axes = given if given is not None and np.size(given) else attributes.get("axes")
    if axes is None or not np.size(axes):
        return () if attributes.get("noop_with_empty_axes") else tuple(range(rank))
    return tuple(int(axis) % rank for axis in np.asarray(axes).ravel())


def onnx_dtype(number: int) -> np.dtype[Any]:
    """The NumPy dtype of an ONNX number of an element type, as the device stores it."""
    helper = require("onnx.helper", extra="onnx", feature="engine 'cuda'")
    return stored(DType.of(helper.tensor_dtype_to_np_dtype(number)))
