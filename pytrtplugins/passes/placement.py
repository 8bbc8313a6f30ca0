"""Inputs and outputs of an engine's int8 kernels, as data for the quantize pass."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.ir import array_of, constant, operand
from ..model.operator_traits import RECURRENT, Trait, operators
from ..utils.optional import ir

__all__ = ["Placement", "absorbed", "bounded", "is_pooled", "never_negative", "rectifies"]

_RECTIFIERS = operators(Trait.RECTIFIER)
_BOUNDED = ("HardSigmoid", "Sigmoid", "Softmax")  # 0..1
_GLOBAL, _ACTIVATIONS = operators(Trait.GLOBAL_POOL), operators(Trait.ACTIVATION)
_AVERAGING = ("AveragePool", "GlobalAveragePool", "MaxPool")  # none of their results is below all that they read


@dataclass(frozen=True)
class Placement:
    """Where an engine wants Q/DQ. The default is the form of TensorRT.

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
        pooled: Whether convolutions of a single pixel behind a global pool, as in squeeze-and-excitation, compute in int8 too.
            On a GPU a Q costs a launch, as much as such a convolution does.
        fp8_pools: Whether MaxPool hands FP8 on. Where it does not, Q/DQ stands behind it, which gives the same values: the largest of
            rounded values is the largest value, rounded.
        int8_pools: The same for INT8.
        sliced_pools: The same for INT8, of a MaxPool that a Slice reads, too.
    """

    layers: frozenset[str] = operators(Trait.WEIGHTED).difference(RECURRENT)
    kernels: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()
    repeated: bool = False
    unsigned: bool = False
    rewritten: bool = False
    pooled: bool = False
    fp8_pools: bool = True
    int8_pools: bool = True
    sliced_pools: bool = True


def rectifies(node: ir.Node | None) -> bool:
    """Whether a node is a Relu, or a Clip from 0 or more."""
    if node is None or node.domain != "" or node.op_type not in _RECTIFIERS:
        return False
    if node.op_type == "Relu":
        return True
    lowest = array_of(operand(node, 1))
    return lowest is not None and lowest.size == 1 and float(lowest.item()) >= 0


def bounded(value: ir.Value) -> bool:
    """Whether a tensor's producer limits its values to 0..1."""
    node = value.producer()
    return node is not None and node.domain == "" and node.op_type in _BOUNDED


def never_negative(value: ir.Value) -> bool:
    """Whether a tensor cannot be negative by what makes it."""
    node = value.producer()
    while node is not None and node.domain == "" and node.op_type in _AVERAGING and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return rectifies(node) or bounded(value)


def is_pooled(value: ir.Value | None) -> bool:
    """Whether a tensor has one pixel per channel: after a global pool, and 1x1 convolutions and activations after it."""
    node = None if value is None else value.producer()
    if node is None or node.domain != "":
        return False
    if node.op_type in _GLOBAL:
        return True
    if node.op_type in ("ReduceMean", "ReduceMax"):
        axes = node.attributes["axes"].as_ints() if "axes" in node.attributes else array_of(operand(node, 1))
        keeps_dims = node.attributes.get_int("keepdims", 1) != 0
        return keeps_dims and axes is not None and sorted(map(int, axes)) in ([2, 3], [-2, -1])
    if node.op_type == "Conv":
        weight = constant(operand(node, 1))
        pixel = weight is not None and weight.shape.numpy()[2:] == (1, 1) and not any(_ints(node, "pads"))
        return pixel and is_pooled(node.inputs[0])
    if node.op_type == "Mul":  # SiLU as exporters write it
        return all(is_pooled(tensor) for tensor in node.inputs)
    return node.op_type in _ACTIVATIONS and is_pooled(node.inputs[0])


def _ints(node: ir.Node, name: str) -> tuple[int, ...]:
    return tuple(node.attributes[name].as_ints()) if name in node.attributes else ()


def absorbed(value: ir.Value) -> ir.Value:
    """The tensor that an int8 kernel writes: the output of the Relu or Clip after it, if saturation does its work; else the result."""
    users = [use.node for use in value.uses()]
    alone = len(users) == 1 and not value.is_graph_output() and rectifies(users[0])
    return users[0].outputs[0] if alone else value
