"""The requirements of CPUs without VNNI for exact INT8, and how engine files record them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...model.proto import tensors_of
from ...utils.cpu_features import cpu_features
from ...utils.optional import onnx

__all__ = ["SAFE_LEVELS", "int8_requirements", "missing_int8_features", "safe_weight_levels", "signed_activations"]

SAFE_LEVELS = 64
"""Largest weight for which two products of uint8 and int8 fit 16 bits: 2 · 255 · 64 < 2¹⁵."""

_EXACT = {"vnni", "amx-int8", "dotprod", "i8mm"}


def exact_int8() -> bool:
    """Whether the CPU adds products of 8-bit numbers in 32 bits."""
    return bool(cpu_features() & _EXACT)


def safe_weight_levels() -> int:
    """Largest int8 weight that gives exact sums on this CPU: 127, or 64 where products are added in 16 bits."""
    return 127 if exact_int8() else SAFE_LEVELS


def int8_requirements(model: onnx.ModelProto) -> dict[str, Any]:
    """The largest int8 weight of a model, for an engine file's metadata; empty for a float model."""
    kind = onnx.TensorProto.INT8
    weights = [tensor for tensor in model.graph.initializer if tensor.data_type == kind and len(tensor.dims) > 1]
    if not weights:
        return {}
    return {
        "largest_int8_weight": max(
            int(np.abs(onnx.numpy_helper.to_array(tensor).astype(np.int16)).max(initial=0)) for tensor in weights
        )
    }


def missing_int8_features(requirements: Mapping[str, Any]) -> str:
    """Why an engine with such weights would compute wrong sums on this CPU; empty if it would not."""
    largest = requirements.get("largest_int8_weight", 0)
    if not isinstance(largest, int) or largest <= SAFE_LEVELS or exact_int8():
        return ""
    return (
        f"it has int8 weights up to {largest}, made for a CPU with VNNI; this CPU has none, adds products in 16 bits, and "
        f"would saturate above {SAFE_LEVELS}"
    )


def signed_activations(model: onnx.ModelProto) -> tuple[str, ...]:
    """Names of the int8 tensors that DequantizeLinear reads and that are not weights."""
    kind = onnx.TensorProto.INT8
    constants = {tensor.name for tensor in model.graph.initializer}
    constants.update(node.output[0] for node in model.graph.node if node.op_type == "Constant")
    types = {name: info.type.tensor_type.elem_type for name, info in tensors_of(model.graph).items()}
    return tuple(
        node.input[0]
        for node in model.graph.node
        if node.op_type == "DequantizeLinear"
        and node.input[0] not in constants
        and types.get(node.input[2] if len(node.input) > 2 else node.input[0]) == kind
    )
