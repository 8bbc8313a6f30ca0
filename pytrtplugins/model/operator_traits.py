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
        GATE: Recurrent layers may name it as an activation.
        KEEPS_DIMS: Results have the dims of the first input, which no other input has to fit.
        KEEPS_ORDER: The elements of its first input in the same order, with other dims at most.
        MOVES: Each element of a result is one of its first input, of the same type, in another place perhaps.
        COPIES: Results have no values but those of the first input (Concat: of all), so that a scale that fits these fits the results;
            no input has indices of elements. Resize only in its mode ``"nearest"``.
        STRIDED: Each result is the first input, or a part of it, with other dims and strides; Gather only with one index.
        REPEATS: It enlarges its first input by repeating elements. Resize only in its mode ``"nearest"``.
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
    GATE = enum.auto()
    KEEPS_DIMS = enum.auto()
    KEEPS_ORDER = enum.auto()
    MOVES = enum.auto()
    COPIES = enum.auto()
    STRIDED = enum.auto()
    REPEATS = enum.auto()
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
_U, _K = _T.UNARY | _T.KEEPS_DIMS, _T.KEEPS_ORDER | _T.STRIDED
TRAITS: Mapping[str, Trait] = {
    "Abs": _U,
    "Acos": _U,
    "Acosh": _U,
    "Add": _T.BROADCASTS | _T.ARITHMETIC,
    "And": _T.BROADCASTS | _T.TRUTH,
    "Asin": _U,
    "Asinh": _U,
    "Atan": _U,
    "Atanh": _U,
    "AveragePool": _T.POOL,
    "Bernoulli": _T.RANDOM | _T.KEEPS_DIMS,
    "BitShift": _T.BROADCASTS,
    "BitwiseAnd": _T.BROADCASTS,
    "BitwiseNot": _U,
    "BitwiseOr": _T.BROADCASTS,
    "BitwiseXor": _T.BROADCASTS,
    "Cast": _U | _T.RETYPES,
    "CastLike": _T.RETYPES | _T.KEEPS_DIMS,
    "Ceil": _U,
    "Celu": _U | _T.ACTIVATION,
    "Clip": _U | _T.ACTIVATION | _T.RECTIFIER,
    "Compress": _T.DATA_DEPENDENT,
    "Concat": _T.COPIES,
    "Conv": _T.WEIGHTED | _T.CONVOLUTION,
    "ConvInteger": _T.CONVOLUTION | _T.INTEGER,
    "ConvTranspose": _T.WEIGHTED | _T.CONVOLUTION,
    "Cos": _U,
    "Cosh": _U,
    "CumProd": _T.KEEPS_DIMS,
    "CumSum": _T.KEEPS_DIMS,
    "DeformConv": _T.CONVOLUTION,
    "DepthToSpace": _T.MOVES | _T.COPIES,
    "DequantizeLinear": _T.RETYPES,
    "Div": _T.BROADCASTS | _T.ARITHMETIC,
    "Dropout": _T.COPIES | _T.KEEPS_DIMS,
    "Elu": _U | _T.ACTIVATION | _T.GATE,
    "Equal": _T.BROADCASTS | _T.TRUTH,
    "Erf": _U,
    "Exp": _U,
    "Expand": _T.MOVES | _T.COPIES | _T.STRIDED | _T.REPEATS,
    "Flatten": _K | _T.MOVES | _T.COPIES,
    "Floor": _U,
    "GRU": _T.WEIGHTED,
    "Gather": _T.MOVES | _T.INDEXED | _T.STRIDED,
    "GatherElements": _T.MOVES | _T.INDEXED,
    "GatherND": _T.MOVES | _T.INDEXED,
    "Gelu": _U | _T.ACTIVATION,
    "Gemm": _T.WEIGHTED,
    "GlobalAveragePool": _T.GLOBAL_POOL,
    "GlobalLpPool": _T.GLOBAL_POOL,
    "GlobalMaxPool": _T.GLOBAL_POOL,
    "Greater": _T.BROADCASTS | _T.TRUTH,
    "GreaterOrEqual": _T.BROADCASTS | _T.TRUTH,
    "HardSigmoid": _U | _T.ACTIVATION | _T.GATE,
    "HardSwish": _U | _T.ACTIVATION,
    "Hardmax": _T.KEEPS_DIMS,
    "Identity": _U | _K | _T.MOVES | _T.COPIES,
    "If": _T.SUBGRAPHS,
    "IsInf": _U | _T.TRUTH,
    "IsNaN": _U | _T.TRUTH,
    "LRN": _T.KEEPS_DIMS,
    "LSTM": _T.WEIGHTED,
    "LeakyRelu": _U | _T.ACTIVATION | _T.GATE,
    "Less": _T.BROADCASTS | _T.TRUTH,
    "LessOrEqual": _T.BROADCASTS | _T.TRUTH,
    "Log": _U,
    "LogSoftmax": _T.KEEPS_DIMS,
    "Loop": _T.SUBGRAPHS,
    "LpNormalization": _T.KEEPS_DIMS,
    "LpPool": _T.POOL,
    "MatMul": _T.WEIGHTED,
    "MatMulInteger": _T.INTEGER,
    "Max": _T.BROADCASTS,
    "MaxPool": _T.COPIES | _T.POOL,
    "Mean": _T.BROADCASTS,
    "MeanVarianceNormalization": _T.KEEPS_DIMS,
    "Min": _T.BROADCASTS,
    "Mish": _U | _T.ACTIVATION,
    "Mod": _T.BROADCASTS,
    "Mul": _T.BROADCASTS | _T.ARITHMETIC,
    "Multinomial": _T.RANDOM,
    "Neg": _U,
    "NonMaxSuppression": _T.DATA_DEPENDENT,
    "NonZero": _T.DATA_DEPENDENT,
    "Not": _U | _T.TRUTH,
    "Or": _T.BROADCASTS | _T.TRUTH,
    "PRelu": _T.ACTIVATION,
    "Pow": _T.BROADCASTS,
    "QLinearConv": _T.CONVOLUTION | _T.INTEGER,
    "QLinearMatMul": _T.INTEGER,
    "QuantizeLinear": _T.RETYPES,
    "RNN": _T.WEIGHTED,
    "RandomNormal": _T.RANDOM,
    "RandomNormalLike": _T.RANDOM | _T.KEEPS_DIMS,
    "RandomUniform": _T.RANDOM,
    "RandomUniformLike": _T.RANDOM | _T.KEEPS_DIMS,
    "Reciprocal": _U,
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
    "Relu": _U | _T.ACTIVATION | _T.RECTIFIER | _T.GATE,
    "Reshape": _K | _T.MOVES | _T.COPIES,
    "Resize": _T.COPIES | _T.REPEATS,
    "Round": _U,
    "Scan": _T.SUBGRAPHS,
    "Scatter": _T.INDEXED,
    "ScatterElements": _T.INDEXED,
    "ScatterND": _T.INDEXED,
    "Selu": _U | _T.ACTIVATION,
    "Shape": _T.READS_SHAPE,
    "Shrink": _U,
    "Sigmoid": _U | _T.ACTIVATION | _T.GATE,
    "Sign": _U,
    "Sin": _U,
    "Sinh": _U,
    "Size": _T.READS_SHAPE,
    "Slice": _T.MOVES | _T.COPIES | _T.STRIDED,
    "Softmax": _T.KEEPS_DIMS,
    "Softplus": _U | _T.ACTIVATION | _T.GATE,
    "Softsign": _U | _T.ACTIVATION | _T.GATE,
    "SpaceToDepth": _T.MOVES | _T.COPIES,
    "Split": _T.MOVES | _T.COPIES | _T.STRIDED,
    "Sqrt": _U,
    "Squeeze": _K | _T.MOVES | _T.COPIES,
    "Sub": _T.BROADCASTS | _T.ARITHMETIC,
    "Sum": _T.BROADCASTS,
    "Swish": _U | _T.ACTIVATION,
    "Tan": _U,
    "Tanh": _U | _T.ACTIVATION | _T.GATE,
    "ThresholdedRelu": _U | _T.ACTIVATION | _T.GATE,
    "Tile": _T.MOVES | _T.COPIES | _T.REPEATS,
    "Transpose": _T.MOVES | _T.COPIES | _T.STRIDED,
    "Trilu": _T.KEEPS_DIMS,
    "Unique": _T.DATA_DEPENDENT,
    "Unsqueeze": _K | _T.MOVES | _T.COPIES,
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
