"""The versions and attributes of operators that are computed here; everything else goes to ``onnx.reference``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["COVERED", "PLAIN_TYPES", "Covered", "covers", "is_plain"]

_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
PLAIN_TYPES = frozenset(("bool", *_INTEGERS, "float16", "bfloat16", "float32", "float64"))
"""Element types that the functions here take."""

_POOL = "auto_pad ceil_mode dilations kernel_shape pads strides"
_AXES = "axes keepdims noop_with_empty_axes"


@dataclass(frozen=True)
class Covered:
    """The nodes of an operator that the function of its name computes.

    Attributes:
        first: The first version that means what the function computes.
        last: The last one.
        attributes: Those that the function reads, or that cannot change its result.
        many: Whether the function gives more than one output.
        values: Further attribute → its values that the function computes.
    """

    first: int
    last: int
    attributes: frozenset[str]
    many: bool
    values: Mapping[str, tuple[Any, ...]]


def _row(first: int, last: int, attributes: str = "", many: bool = False, **values: tuple[Any, ...]) -> Covered:
    return Covered(first, last, frozenset(attributes.split()), many, values)


COVERED: Mapping[str, Covered] = {
    "Abs": _row(6, 13),
    "Add": _row(7, 14),
    "And": _row(7, 7),
    "AveragePool": _row(7, 22, f"{_POOL} count_include_pad"),
    "BatchNormalization": _row(9, 15, "epsilon momentum", training_mode=(0,)),
    "Cast": _row(6, 28, "to saturate round_mode"),  # the last two speak of 8-bit floats, which are not plain
    "Ceil": _row(6, 13),
    "Clip": _row(11, 13),
    "Concat": _row(4, 13, "axis"),
    "ConstantOfShape": _row(9, 25, "value"),
    "Conv": _row(11, 22, "auto_pad dilations group kernel_shape pads strides"),
    "ConvTranspose": _row(11, 22, "auto_pad dilations group kernel_shape output_padding output_shape pads strides"),
    "DepthToSpace": _row(1, 28, "blocksize mode"),
    "DequantizeLinear": _row(10, 28, "axis block_size", output_dtype=(0,)),
    "Div": _row(7, 14),
    "Dropout": _row(12, 22, "seed", many=True),
    "DynamicQuantizeLinear": _row(11, 11, many=True),
    "Einsum": _row(12, 28, "equation"),
    "Elu": _row(6, 22, "alpha"),
    "Equal": _row(7, 19),
    "Erf": _row(9, 13),
    "Exp": _row(6, 13),
    "Expand": _row(8, 13),
    "Flatten": _row(1, 25, "axis"),
    "Floor": _row(6, 13),
    "Gather": _row(1, 13, "axis"),
    "GatherElements": _row(11, 13, "axis"),
    "Gemm": _row(6, 13, "alpha beta broadcast transA transB"),
    "GlobalAveragePool": _row(1, 22),
    "GlobalMaxPool": _row(1, 22),
    "Greater": _row(7, 13),
    "GreaterOrEqual": _row(12, 16),
    "GridSample": _row(16, 22, "align_corners mode padding_mode"),
    "HardSigmoid": _row(6, 22, "alpha beta"),
    "HardSwish": _row(14, 22),
    "Identity": _row(1, 25),
    "LRN": _row(1, 13, "alpha beta bias size"),
    "LeakyRelu": _row(6, 16, "alpha"),
    "Less": _row(7, 13),
    "LessOrEqual": _row(12, 16),
    "Log": _row(6, 13),
    "LogSoftmax": _row(13, 13, "axis"),
    "LpNormalization": _row(1, 22, "axis", p=(1, 2)),
    "LpPool": _row(11, 22, f"{_POOL} p"),
    "MatMul": _row(1, 13),
    "MatMulInteger": _row(10, 10),
    "Max": _row(6, 13),
    "MaxPool": _row(1, 22, f"{_POOL} num_outputs storage_order", many=True),
    "Mean": _row(8, 13),
    "Min": _row(6, 13),
    "Mish": _row(18, 22),
    "Mod": _row(10, 28, "fmod"),
    "Mul": _row(7, 14),
    "Neg": _row(6, 13),
    "NonMaxSuppression": _row(10, 11, "center_point_box"),
    "Not": _row(1, 1),
    "Or": _row(7, 7),
    "PRelu": _row(7, 16),
    "Pad": _row(11, 25, "mode"),
    "Pow": _row(7, 15),
    "QuantizeLinear": _row(10, 28, "axis block_size output_dtype saturate", precision=(0,)),
    "Reciprocal": _row(6, 13),
    "ReduceL1": _row(1, 18, _AXES),
    "ReduceL2": _row(1, 18, _AXES),
    "ReduceLogSum": _row(1, 28, _AXES),
    "ReduceLogSumExp": _row(1, 28, _AXES),
    "ReduceMax": _row(1, 20, _AXES),
    "ReduceMean": _row(1, 18, _AXES),
    "ReduceMin": _row(1, 20, _AXES),
    "ReduceSum": _row(1, 13, _AXES),
    "ReduceSumSquare": _row(1, 18, _AXES),
    "Relu": _row(6, 14),
    "Reshape": _row(5, 25, "allowzero"),
    "Resize": _row(
        11,
        19,
        "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside "
        "extrapolation_value keep_aspect_ratio_policy mode nearest_mode",
    ),
    "Round": _row(11, 22),
    "ScatterElements": _row(11, 18, "axis reduction"),
    "ScatterND": _row(11, 18, "reduction"),
    "Selu": _row(6, 22, "alpha gamma"),
    "Shape": _row(1, 25, "start end"),
    "Sigmoid": _row(6, 13),
    "Sign": _row(9, 13),
    "Slice": _row(10, 13),
    "Softmax": _row(13, 13, "axis"),
    "Softplus": _row(1, 22),
    "SpaceToDepth": _row(1, 28, "blocksize", mode=("DCR",)),
    "Split": _row(13, 18, "axis equal num_outputs", many=True),
    "Sqrt": _row(6, 13),
    "Squeeze": _row(13, 25),
    "Sub": _row(7, 14),
    "Sum": _row(6, 13),
    "Tanh": _row(6, 13),
    "Tile": _row(6, 13),
    "Transpose": _row(1, 25, "perm"),
    "Unique": _row(11, 28, "axis sorted", many=True),
    "Unsqueeze": _row(13, 25),
    "Where": _row(9, 16),
}
"""Operator → its row."""
VERSIONS = {name: (row.first, row.last) for name, row in COVERED.items()}


@functools.cache  # NumPy makes a type's name anew each time that it is asked for
def is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether the functions here take arrays of a type."""
    return dtype.name in PLAIN_TYPES


def covers(op_type: str, version: int, attributes: Mapping[str, Any], outputs: int) -> bool:
    """Whether the function of an operator's name computes a node; its version is the opset that gave it its present meaning."""
    row = COVERED.get(op_type)
    if row is None or not row.first <= version <= row.last or (outputs > 1 and not row.many):
        return False
    return all(name in row.attributes or value in row.values.get(name, ()) for name, value in attributes.items())
