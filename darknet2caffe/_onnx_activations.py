"""Darknet's activations as ONNX operators (formulas: src/activations.h of pjreddie/darknet, and the fork's own)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytrtplugins.errors import UsageError
from pytrtplugins.model.op_builder import OpBuilder, Value

from ._onnx_writer import OnnxWriter

__all__ = ["LEAKY_SLOPE", "activate", "chosen_activation"]

LEAKY_SLOPE = 0.1
SELU_SCALE, SELU_ALPHA = 1.0507, 1.6732  # src/activations.h, selu_activate

_OPERATORS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "leaky": ("LeakyRelu", {"alpha": LEAKY_SLOPE}),
    "relie": ("LeakyRelu", {"alpha": 0.01}),
    "relu": ("Relu", {}),
    "logistic": ("Sigmoid", {}),
    "tanh": ("Tanh", {}),
    "elu": ("Elu", {"alpha": 1.0}),
    "selu": ("Selu", {"alpha": SELU_ALPHA, "gamma": SELU_SCALE}),
}


def _plse(op: OpBuilder, x: Value) -> Any:
    """A slope of 1/8 from -4 to 4, of 1/100 outside."""
    inside = op.Clip(x, -4.0, 4.0)
    return op.Add(op.Mul(op.Sub(x, inside), 0.01), op.Add(op.Mul(inside, 0.125), 0.5))


def _lhtan(op: OpBuilder, x: Value) -> Any:
    """A slope of 1 from 0 to 1, of 1/1000 outside."""
    inside = op.Clip(x, 0.0, 1.0)
    return op.Add(op.Mul(op.Sub(x, inside), 0.001), inside)


def _stair(op: OpBuilder, x: Value) -> Any:
    """floor(x / 2), plus the fraction of x where floor(x) is odd."""
    floor, half = op.Floor(x), op.Floor(op.Mul(x, 0.5))
    odd = op.Sub(floor, op.Mul(half, 2.0))
    return op.Add(op.Mul(odd, op.Sub(x, floor)), half)


def _gelu(op: OpBuilder, x: Value) -> Any:
    cube = op.Mul(op.Mul(x, x), op.Mul(x, 0.035677))
    return op.Mul(op.Mul(x, 0.5), op.Add(op.Tanh(op.Add(op.Mul(x, 0.797885), cube)), 1.0))


_COMPOSED: Mapping[str, Callable[[OpBuilder, Value], Any]] = {
    "loggy": lambda op, x: op.Tanh(op.Mul(x, 0.5)),  # 2 / (1 + e^-x) - 1, with its digits near 0 kept
    "ramp": lambda op, x: op.Add(op.Relu(x), op.Mul(x, 0.1)),
    "hardtan": lambda op, x: op.Clip(x, -1.0, 1.0),
    "plse": _plse,
    "lhtan": _lhtan,
    "stair": _stair,
    "relu6": lambda op, x: op.Clip(x, 0.0, 6.0),
    "mish": lambda op, x: op.Mul(x, op.Tanh(op.Softplus(x))),
    "swish": lambda op, x: op.Mul(x, op.Sigmoid(x)),
    "hard_mish": lambda op, x: op.Mul(x, op.Mul(op.Clip(op.Add(x, 2.0), 0.0, 2.0), 0.5)),  # x * (x + 2) / 2 between
    "gelu": _gelu,
}


def activate(writer: OnnxWriter, kind: str, value: str, output: str) -> None:
    """Write the activation; ``value`` must not be ``output`` unless it is linear."""
    kind = chosen_activation(kind, writer.options.activation)
    if kind == "linear":
        return
    if kind in _OPERATORS:
        operator, attributes = _OPERATORS[kind]
        writer.node(operator, [value], output, **attributes)
        return
    op = OpBuilder(f"{output}.activation", output)  # the layer itself may have a builder of its name
    writer.finish(op, _COMPOSED[kind](op, Value(value)), output)


def chosen_activation(kind: str, choice: str) -> str:
    """The activation to write for the cfg's: ``choice`` replaces leaky and relu, unless it is ``"as-is"``.

    Raises:
        UsageError: ``choice`` is none of the choices.
    """
    if choice not in ("as-is", "relu", "leaky"):
        raise UsageError(f"activation={choice!r}: expected one of as-is, relu, leaky")
    return choice if choice != "as-is" and kind in ("relu", "leaky") else kind
