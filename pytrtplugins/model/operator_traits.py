"""Table of ONNX's operators and their traits: facts that hold for every implementation."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping

__all__ = ["TRAITS", "Trait", "operators"]


class Trait(enum.Flag):
    """A fact about an operator.

    Attributes:
        UNARY: Each element of the result is computed from the element in its place of the first input; further inputs are one number.
        BROADCASTS: Each element of the result is computed from the elements in its place of all inputs, which broadcast.
        ARITHMETIC: One of the four basic operations.
        TRUTH: Results are truth values that it computes.
        ACTIVATION: Layers of networks have it behind them. The slopes of PRelu lie along an axis.
        RECTIFIER: It only cuts off values, as the saturation of codes does.
        KEEPS_ORDER: The elements of its first input in the same order, with other dims at most.
        MOVES: Each element of a result is one of its first input, of the same type, in another place perhaps.
        COPIES: Results have no values but those of the first input (Concat: of all), so that a scale that fits these fits the results;
            no input has indices of elements. Resize only in its mode ``"nearest"``.
        WEIGHTED: A layer: sums of products with its second input, which are its weights.
        GLOBAL_POOL: One number for each channel of each image.
        SUBGRAPHS: It runs graphs that are its attributes.
        DATA_DEPENDENT: The dims of its results depend on values of its inputs that are no sizes or axes.
        READS_SHAPE: It reads the dims of a tensor, and none of its values.
        RANDOM: Each run gives other values.
    """

    UNARY = enum.auto()
    BROADCASTS = enum.auto()
    ARITHMETIC = enum.auto()
    TRUTH = enum.auto()
    ACTIVATION = enum.auto()
    RECTIFIER = enum.auto()
    KEEPS_ORDER = enum.auto()
    MOVES = enum.auto()
    COPIES = enum.auto()
    WEIGHTED = enum.auto()
    GLOBAL_POOL = enum.auto()
    SUBGRAPHS = enum.auto()
    DATA_DEPENDENT = enum.auto()
    READS_SHAPE = enum.auto()
    RANDOM = enum.auto()


_T = Trait
TRAITS: Mapping[str, Trait] = {
    "Abs": _T.UNARY,
    "Acos": _T.UNARY,
    "Acosh": _T.UNARY,
    "Add": _T.BROADCASTS | _T.ARITHMETIC,
    "And": _T.BROADCASTS | _T.TRUTH,
    "Asin": _T.UNARY,
    "Asinh": _T.UNARY,
    "Atan": _T.UNARY,
    "Atanh": _T.UNARY,
    "Bernoulli": _T.RANDOM,
    "BitShift": _T.BROADCASTS,
    "BitwiseAnd": _T.BROADCASTS,
    "BitwiseNot": _T.UNARY,
    "BitwiseOr": _T.BROADCASTS,
    "BitwiseXor": _T.BROADCASTS,
    "Cast": _T.UNARY,
    "Ceil": _T.UNARY,
    "Celu": _T.UNARY | _T.ACTIVATION,
    "Clip": _T.UNARY | _T.ACTIVATION | _T.RECTIFIER,
    "Compress": _T.DATA_DEPENDENT,
    "Concat": _T.COPIES,
    "Conv": _T.WEIGHTED,
    "ConvTranspose": _T.WEIGHTED,
    "Cos": _T.UNARY,
    "Cosh": _T.UNARY,
    "DepthToSpace": _T.MOVES | _T.COPIES,
    "Div": _T.BROADCASTS | _T.ARITHMETIC,
    "Dropout": _T.COPIES,
    "Elu": _T.UNARY | _T.ACTIVATION,
    "Equal": _T.BROADCASTS | _T.TRUTH,
    "Erf": _T.UNARY,
    "Exp": _T.UNARY,
    "Expand": _T.MOVES | _T.COPIES,
    "Flatten": _T.KEEPS_ORDER | _T.MOVES | _T.COPIES,
    "Floor": _T.UNARY,
    "Gather": _T.MOVES,
    "GatherElements": _T.MOVES,
    "GatherND": _T.MOVES,
    "Gelu": _T.UNARY | _T.ACTIVATION,
    "Gemm": _T.WEIGHTED,
    "GlobalAveragePool": _T.GLOBAL_POOL,
    "GlobalLpPool": _T.GLOBAL_POOL,
    "GlobalMaxPool": _T.GLOBAL_POOL,
    "Greater": _T.BROADCASTS | _T.TRUTH,
    "GreaterOrEqual": _T.BROADCASTS | _T.TRUTH,
    "HardSigmoid": _T.UNARY | _T.ACTIVATION,
    "HardSwish": _T.UNARY | _T.ACTIVATION,
    "Identity": _T.UNARY | _T.KEEPS_ORDER | _T.MOVES | _T.COPIES,
    "If": _T.SUBGRAPHS,
    "IsInf": _T.UNARY | _T.TRUTH,
    "IsNaN": _T.UNARY | _T.TRUTH,
    "LeakyRelu": _T.UNARY | _T.ACTIVATION,
    "Less": _T.BROADCASTS | _T.TRUTH,
    "LessOrEqual": _T.BROADCASTS | _T.TRUTH,
    "Log": _T.UNARY,
    "Loop": _T.SUBGRAPHS,
    "MatMul": _T.WEIGHTED,
    "Max": _T.BROADCASTS,
    "MaxPool": _T.COPIES,
    "Mean": _T.BROADCASTS,
    "Min": _T.BROADCASTS,
    "Mish": _T.UNARY | _T.ACTIVATION,
    "Mod": _T.BROADCASTS,
    "Mul": _T.BROADCASTS | _T.ARITHMETIC,
    "Multinomial": _T.RANDOM,
    "Neg": _T.UNARY,
    "NonMaxSuppression": _T.DATA_DEPENDENT,
    "NonZero": _T.DATA_DEPENDENT,
    "Not": _T.UNARY | _T.TRUTH,
    "Or": _T.BROADCASTS | _T.TRUTH,
    "PRelu": _T.ACTIVATION,
    "Pow": _T.BROADCASTS,
    "RandomNormal": _T.RANDOM,
    "RandomNormalLike": _T.RANDOM,
    "RandomUniform": _T.RANDOM,
    "RandomUniformLike": _T.RANDOM,
    "Reciprocal": _T.UNARY,
    "Relu": _T.UNARY | _T.ACTIVATION | _T.RECTIFIER,
    "Reshape": _T.KEEPS_ORDER | _T.MOVES | _T.COPIES,
    "Resize": _T.COPIES,
    "Round": _T.UNARY,
    "Scan": _T.SUBGRAPHS,
    "Selu": _T.UNARY | _T.ACTIVATION,
    "Shape": _T.READS_SHAPE,
    "Shrink": _T.UNARY,
    "Sigmoid": _T.UNARY | _T.ACTIVATION,
    "Sign": _T.UNARY,
    "Sin": _T.UNARY,
    "Sinh": _T.UNARY,
    "Size": _T.READS_SHAPE,
    "Slice": _T.MOVES | _T.COPIES,
    "Softplus": _T.UNARY | _T.ACTIVATION,
    "Softsign": _T.UNARY | _T.ACTIVATION,
    "SpaceToDepth": _T.MOVES | _T.COPIES,
    "Split": _T.MOVES | _T.COPIES,
    "Sqrt": _T.UNARY,
    "Squeeze": _T.KEEPS_ORDER | _T.MOVES | _T.COPIES,
    "Sub": _T.BROADCASTS | _T.ARITHMETIC,
    "Sum": _T.BROADCASTS,
    "Swish": _T.UNARY | _T.ACTIVATION,
    "Tan": _T.UNARY,
    "Tanh": _T.UNARY | _T.ACTIVATION,
    "ThresholdedRelu": _T.UNARY | _T.ACTIVATION,
    "Tile": _T.MOVES | _T.COPIES,
    "Transpose": _T.MOVES | _T.COPIES,
    "Unique": _T.DATA_DEPENDENT,
    "Unsqueeze": _T.KEEPS_ORDER | _T.MOVES | _T.COPIES,
    "Where": _T.BROADCASTS,
    "Xor": _T.BROADCASTS | _T.TRUTH,
}
"""Operator of ONNX's own domain → its traits. Operators that have none of them are left out."""


@functools.cache
def operators(trait: Trait) -> frozenset[str]:
    """Return the names of the operators with a trait; with all of them, where several are given."""
    return frozenset(name for name, traits in TRAITS.items() if trait in traits)
