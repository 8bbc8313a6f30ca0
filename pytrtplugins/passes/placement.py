"""What an engine's int8 kernels take and give, as data for the quantize pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..model.ir import array_of, operand

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Placement", "absorbed", "bounded", "never_negative", "rectifies"]

_RECTIFIERS = ("Clip", "Relu")
_BOUNDED = ("HardSigmoid", "Sigmoid", "Softmax")  # 0..1
_AVERAGING = ("AveragePool", "GlobalAveragePool", "MaxPool")


@dataclass(frozen=True)
class Placement:
    """Where an engine wants Q/DQ. The default is the form of TensorRT, which engine ``cuda`` shares.

    Attributes:
        layers: Layers with weights that have an int8 kernel; others stay in float.
        kernels: Further operators that have one. They read int8 where their results are wanted in int8. Without ``Add``
            among them, residual additions run inside convolutions.
        results: Layers whose int8 kernel gives int8 alone. Their results are quantized, for all readers, where another
            int8 layer follows.
        repeated: Whether Q/DQ stands behind each node that copies values too, again with the same scale.
        unsigned: Whether tensors that cannot be negative are uint8 with zero point 0: with steps half as large, and Relu
            and Clip done by the saturation of the result before them.
        rewritten: Whether operators without an int8 kernel are written with those that have one; see `Int8Forms`.
    """

    layers: frozenset[str] = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
    kernels: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()
    repeated: bool = False
    unsigned: bool = False
    rewritten: bool = False


def rectifies(node: ir.Node | None) -> bool:
    """Whether a node is a Relu, or a Clip from 0 or more."""
    if node is None or node.domain != "" or node.op_type not in _RECTIFIERS:
        return False
    if node.op_type == "Relu":
        return True
    lowest = array_of(operand(node, 1))
    return lowest is not None and lowest.size == 1 and float(lowest.item()) >= 0


def bounded(value: ir.Value) -> bool:
    """Whether a tensor lies in 0..1 by what makes it."""
    node = value.producer()
    return node is not None and node.domain == "" and node.op_type in _BOUNDED


def never_negative(value: ir.Value) -> bool:
    """Whether a tensor cannot be negative by what makes it."""
    node = value.producer()
    while node is not None and node.domain == "" and node.op_type in _AVERAGING and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return rectifies(node) or bounded(value)


def absorbed(value: ir.Value) -> ir.Value:
    """What an int8 kernel writes for a result: behind a Relu or Clip that alone reads it, which saturation does; else itself."""
    users = [use.node for use in value.uses()]
    alone = len(users) == 1 and not value.is_graph_output() and rectifies(users[0])
    return users[0].outputs[0] if alone else value
