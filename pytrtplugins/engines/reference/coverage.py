"""The versions and attributes of operators that are computed here; everything else goes to ``onnx.reference``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["PLAIN_TYPES", "covers", "is_plain"]

_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
PLAIN_TYPES = frozenset(("bool", *_INTEGERS, "float16", "bfloat16", "float32", "float64"))
"""Element types that the functions here take."""

_VERSIONS = {  # (first, last) version of an operator that means what the function computes → operators
    (1, 1): "Not",
    (1, 13): "Gather LRN MatMul ReduceSum",
    (1, 18): "ReduceL1 ReduceL2 ReduceMean ReduceSumSquare",
    (1, 20): "ReduceMax ReduceMin",
    (1, 22): "GlobalAveragePool GlobalMaxPool LpNormalization MaxPool Softplus",
    (1, 25): "Flatten Identity Shape Transpose",
    (1, 28): "DepthToSpace ReduceLogSum ReduceLogSumExp SpaceToDepth",
    (4, 13): "Concat",
    (5, 25): "Reshape",
    (6, 13): "Abs Ceil Exp Floor Gemm Log Max Min Neg Reciprocal Sigmoid Sqrt Sum Tanh Tile",
    (6, 14): "Relu",
    (6, 16): "LeakyRelu",
    (6, 22): "Elu HardSigmoid Selu",
    (6, 28): "Cast",
    (7, 7): "And Or",
    (7, 13): "Greater Less",
    (7, 14): "Add Div Mul Sub",
    (7, 15): "Pow",
    (7, 16): "PRelu",
    (7, 19): "Equal",
    (7, 22): "AveragePool",
    (8, 13): "Expand Mean",
    (9, 13): "Erf Sign",
    (9, 15): "BatchNormalization",
    (9, 16): "Where",
    (9, 25): "ConstantOfShape",
    (10, 13): "Slice",
    (10, 10): "MatMulInteger",
    (10, 11): "NonMaxSuppression",
    (10, 28): "DequantizeLinear Mod QuantizeLinear",
    (11, 11): "DynamicQuantizeLinear",
    (11, 13): "Clip GatherElements",
    (11, 18): "ScatterElements ScatterND",
    (11, 19): "Resize",
    (11, 22): "Conv ConvTranspose LpPool Round",
    (11, 25): "Pad",
    (11, 28): "Unique",
    (12, 16): "GreaterOrEqual LessOrEqual",
    (12, 22): "Dropout",
    (12, 28): "Einsum",
    (13, 13): "LogSoftmax Softmax",
    (13, 18): "Split",
    (13, 25): "Squeeze Unsqueeze",
    (14, 22): "HardSwish",
    (16, 22): "GridSample",
    (18, 22): "Mish",
}
VERSIONS = {name: versions for versions, names in _VERSIONS.items() for name in names.split()}
"""Operator → first and last version that the function of that name computes."""

_POOL = "auto_pad ceil_mode dilations kernel_shape pads strides"
_ANY = {  # attributes that the function reads, or that cannot change its result
    "AveragePool": f"{_POOL} count_include_pad",
    "BatchNormalization": "epsilon momentum",
    "Cast": "to saturate round_mode",  # the last two speak of 8-bit floats, which are not plain
    "Concat": "axis",
    "ConstantOfShape": "value",
    "Conv": "auto_pad dilations group kernel_shape pads strides",
    "ConvTranspose": "auto_pad dilations group kernel_shape output_padding output_shape pads strides",
    "DepthToSpace": "blocksize mode",
    "DequantizeLinear": "axis block_size",
    "Dropout": "seed",
    "Einsum": "equation",
    "Elu": "alpha",
    "Flatten": "axis",
    "Gather": "axis",
    "GatherElements": "axis",
    "Gemm": "alpha beta broadcast transA transB",
    "GridSample": "align_corners mode padding_mode",
    "HardSigmoid": "alpha beta",
    "LRN": "alpha beta bias size",
    "LeakyRelu": "alpha",
    "LogSoftmax": "axis",
    "LpNormalization": "axis",
    "LpPool": f"{_POOL} p",
    "MaxPool": f"{_POOL} num_outputs storage_order",
    "Mod": "fmod",
    "NonMaxSuppression": "center_point_box",
    "Pad": "mode",
    "QuantizeLinear": "axis block_size output_dtype saturate",
    **dict.fromkeys(
        (
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceSum",
            "ReduceSumSquare",
        ),
        "axes keepdims noop_with_empty_axes",
    ),
    "Reshape": "allowzero",
    "Resize": "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value "
    "keep_aspect_ratio_policy mode nearest_mode",
    "ScatterElements": "axis reduction",
    "ScatterND": "reduction",
    "Selu": "alpha gamma",
    "Shape": "start end",
    "Softmax": "axis",
    "SpaceToDepth": "blocksize",
    "Split": "axis equal num_outputs",
    "Transpose": "perm",
    "Unique": "axis sorted",
}
_VALUES: dict[str, dict[str, tuple[Any, ...]]] = {  # values of other attributes that the function computes
    "BatchNormalization": {"training_mode": (0,)},
    "DequantizeLinear": {"output_dtype": (0,)},
    "LpNormalization": {"p": (1, 2)},
    "QuantizeLinear": {"precision": (0,)},
    "SpaceToDepth": {"mode": ("DCR",)},
}
_MANY_OUTPUTS = (
    "Dropout",
    "DynamicQuantizeLinear",
    "MaxPool",
    "Split",
    "Unique",
)  # whose functions here give more than one


@functools.cache  # NumPy makes a type's name anew each time that it is asked for
def is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether the functions here take arrays of a type."""
    return dtype.name in PLAIN_TYPES


def covers(op_type: str, version: int, attributes: Mapping[str, Any], outputs: int) -> bool:
    """Whether the function of an operator's name computes a node; its version is the opset that gave it its present meaning."""
    first, last = VERSIONS.get(op_type, (0, -1))
    if not first <= version <= last or (outputs > 1 and op_type not in _MANY_OUTPUTS):
        return False
    known, values = _ANY.get(op_type, "").split(), _VALUES.get(op_type, {})
    return all(name in known or value in values.get(name, ()) for name, value in attributes.items())
