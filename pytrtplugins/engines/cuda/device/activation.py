"""The activations that kernels compute behind sums, and their numbers in the sources of kernels."""

from __future__ import annotations

import enum

__all__ = ["ACTIVATIONS", "PLAIN", "Activation", "activation_numbers"]


class Activation(enum.IntEnum):
    """What a kernel computes of a value; its number, and the formulas for each number, are in activations.cu.

    A row is a number and, where the value alone counts, the operator and whether the formula is x times a gate: such a formula falls
    somewhere, and no kernel computes it behind a residual. What other formulas need beside the value, a convolution has in its ``bounds``
    or ``slopes``.

    Attributes:
        operator: The operator of ONNX or of this engine; empty where attributes or inputs of a node say which activation it is.
        gated: Whether it is x times a gate.
    """

    operator: str
    gated: bool

    def __new__(cls, number: int, operator: str = "", gated: bool = False) -> Activation:
        """Make a member of its row."""
        activation = int.__new__(cls, number)
        activation._value_, activation.operator, activation.gated = number, operator, gated
        return activation

    LINEAR = 0
    LOGISTIC = 1, "Sigmoid"
    SWISH = 2, "Swish", True
    GELU = 3, "Gelu", True
    GELU_TANH = 4, "GeluTanh", True
    HARD_SWISH = 5, "HardSwish", True
    HARD_SIGMOID = 6
    CLIP = 7
    PRELU = 8
    RELU = 9
    LEAKY = 10
    TANH = 11, "Tanh"
    MISH = 12, "Mish", True
    QUICK_GELU = 13, "QuickGelu", True


ACTIVATIONS = {activation.name.lower(): activation for activation in Activation}
"""Name in attributes of nodes, engine files and caches of tactics → activation."""

PLAIN = {activation.operator: activation for activation in Activation if activation.operator}
"""Operator of ONNX or of this engine → the activation that needs the value alone. One kernel runs it on images."""


def activation_numbers() -> str:
    """Return the C++ enumeration that stands before activations.cu."""
    rows = ", ".join(f"ACTIVATION_{activation.name} = {activation.value}" for activation in Activation)
    return f"enum Activation {{ {rows} }};\n"
