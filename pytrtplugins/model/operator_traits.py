"""Table of ONNX's operators and their traits: facts that hold for every implementation."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["RECURRENT", "TRAITS", "Recurrent", "Trait", "operators"]


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
        RETYPES: It writes a tensor in another type.
        INDEXED: It reads or writes elements at positions, which are the values of one of its inputs.
        REDUCES: It computes one number from all elements along some axes, and may keep these axes.
        WEIGHTED: A layer: sums of products with its second input, which are its weights.
        CONVOLUTION: Sums of products of filters and windows of an image.
        INTEGER: Sums of products of whole numbers, which ONNX defines on codes.
        POOL: One number for each channel of each window of an image.
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
    RETYPES = enum.auto()
    INDEXED = enum.auto()
    REDUCES = enum.auto()
    WEIGHTED = enum.auto()
    CONVOLUTION = enum.auto()
    INTEGER = enum.auto()
    POOL = enum.auto()
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
    "AveragePool": _T.POOL,
    "Bernoulli": _T.RANDOM,
    "BitShift": _T.BROADCASTS,
    "BitwiseAnd": _T.BROADCASTS,
    "BitwiseNot": _T.UNARY,
    "BitwiseOr": _T.BROADCASTS,
    "BitwiseXor": _T.BROADCASTS,
    "Cast": _T.UNARY | _T.RETYPES,
    "CastLike": _T.RETYPES,
    "Ceil": _T.UNARY,
    "Celu": _T.UNARY | _T.ACTIVATION,
    "Clip": _T.UNARY | _T.ACTIVATION | _T.RECTIFIER,
    "Compress": _T.DATA_DEPENDENT,
    "Concat": _T.COPIES,
    "Conv": _T.WEIGHTED | _T.CONVOLUTION,
    "ConvInteger": _T.CONVOLUTION | _T.INTEGER,
    "ConvTranspose": _T.WEIGHTED | _T.CONVOLUTION,
    "Cos": _T.UNARY,
    "Cosh": _T.UNARY,
    "DeformConv": _T.CONVOLUTION,
    "DepthToSpace": _T.MOVES | _T.COPIES,
    "DequantizeLinear": _T.RETYPES,
    "Div": _T.BROADCASTS | _T.ARITHMETIC,
    "Dropout": _T.COPIES,
    "Elu": _T.UNARY | _T.ACTIVATION,
    "Equal": _T.BROADCASTS | _T.TRUTH,
    "Erf": _T.UNARY,
    "Exp": _T.UNARY,
    "Expand": _T.MOVES | _T.COPIES,
    "Flatten": _T.KEEPS_ORDER | _T.MOVES | _T.COPIES,
    "Floor": _T.UNARY,
    "Gather": _T.MOVES | _T.INDEXED,
    "GatherElements": _T.MOVES | _T.INDEXED,
    "GatherND": _T.MOVES | _T.INDEXED,
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
    "LpPool": _T.POOL,
    "MatMul": _T.WEIGHTED,
    "MatMulInteger": _T.INTEGER,
    "Max": _T.BROADCASTS,
    "MaxPool": _T.COPIES | _T.POOL,
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
    "QLinearConv": _T.CONVOLUTION | _T.INTEGER,
    "QLinearMatMul": _T.INTEGER,
    "QuantizeLinear": _T.RETYPES,
    "RandomNormal": _T.RANDOM,
    "RandomNormalLike": _T.RANDOM,
    "RandomUniform": _T.RANDOM,
    "RandomUniformLike": _T.RANDOM,
    "Reciprocal": _T.UNARY,
    "ReduceL1": _T.REDUCES,
    "ReduceL2": _T.REDUCES,
    "ReduceLogSum": _T.REDUCES,
    "ReduceLogSumExp": _T.REDUCES,
    "ReduceMax": _T.REDUCES,
    "ReduceMean": _T.REDUCES,
    "ReduceMin": _T.REDUCES,
    "ReduceProd": _T.REDUCES,
    "ReduceSum": _T.REDUCES,
    "ReduceSumSquare": _T.REDUCES,
    "Relu": _T.UNARY | _T.ACTIVATION | _T.RECTIFIER,
    "Reshape": _T.KEEPS_ORDER | _T.MOVES | _T.COPIES,
    "Resize": _T.COPIES,
    "Round": _T.UNARY,
    "Scan": _T.SUBGRAPHS,
    "Scatter": _T.INDEXED,
    "ScatterElements": _T.INDEXED,
    "ScatterND": _T.INDEXED,
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


@dataclass(frozen=True)
class Recurrent:
    """What ONNX defines of a recurrent layer.

    Attributes:
        gates: Rows of its weights for each hidden unit.
        activations: Of one direction, where the node names none.
    """

    gates: int
    activations: tuple[str, ...]


RECURRENT: Mapping[str, Recurrent] = {
    "RNN": Recurrent(1, ("Tanh",)),
    "GRU": Recurrent(3, ("Sigmoid", "Tanh")),
    "LSTM": Recurrent(4, ("Sigmoid", "Tanh", "Tanh")),
}
"""Operator with a hidden state → its row."""


@functools.cache
def operators(trait: Trait) -> frozenset[str]:
    """Return the names of the operators with a trait; with all of them, where several are given."""
    return frozenset(name for name, traits in TRAITS.items() if trait in traits)
