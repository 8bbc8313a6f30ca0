"""Walk a model from its outputs up, and find which nodes read int8 and which tensors are quantized for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..errors import ModelError
from ..model.ir import constant, depths
from ..model.operator_traits import Trait, operators
from ..model.proto import node_name
from ..plugin.onnx_node import passes_int8_through
from ..utils.optional import ir
from .placement import Placement, absorbed

__all__ = ["WEIGHTED", "Int8Demand", "find_int8_demand", "input_of"]

_COPYING = operators(Trait.COPIES)
_ACTIVATIONS = operators(Trait.ACTIVATION)
_RECTIFIERS = operators(Trait.RECTIFIER)
WEIGHTED = operators(Trait.WEIGHTED)
"""Layers with weights."""


@dataclass
class Int8Demand:
    """Which nodes read int8, and which tensors are quantized for them.

    Attributes:
        reads: Node → indices of the inputs that it reads as int8.
        wanted: Tensors that are read so, those nearest to the outputs first.
        copying: Nodes that hand int8 values on.
        followed: Nodes behind which comes a layer that computes in int8.
    """

    reads: dict[ir.Node, tuple[int, ...]] = field(default_factory=dict)
    wanted: dict[ir.Value, None] = field(default_factory=dict)  # a dict, for its order
    copying: set[ir.Node] = field(default_factory=set)
    followed: set[ir.Node] = field(default_factory=set)


def find_int8_demand(
    nodes: list[ir.Node],
    float_layers: Mapping[str, str],
    placement: Placement,
    kept: Collection[ir.Node],
    requantizing: Collection[ir.Node] = (),
    computing: Collection[ir.Node] = (),
) -> Int8Demand:
    """Walk a model from its outputs up, and find the demand for int8 tensors.

    Args:
        nodes: Its nodes in topological order.
        float_layers: Names of the nodes that stay in float.
        placement: What the engine's int8 kernels take and give.
        kept: Relu and Clip nodes that read int8 themselves, since the saturation of what they read does not do their work.
        requantizing: Nodes of plugins that compute on int8 codes with scales of their own.
        computing: Nodes that copy values and stay in float all the same.
    """
    marks, depth = Int8Demand(), depths(nodes)
    for node in reversed(nodes):
        users = set(node.successors())
        if any(user in marks.followed or (user in marks.reads and user.op_type in WEIGHTED) for user in users):
            marks.followed.add(node)
        if node_name(node) in float_layers:
            continue
        if node.domain == "" and node.op_type in WEIGHTED:
            indices: tuple[int, ...] = (0,)
            if node.op_type in placement.results and node in marks.followed:
                _want_result(node.outputs[0], marks, kept)
        elif node.domain == "" and (node.op_type in placement.kernels or node in kept):
            indices = _kernel_inputs(node, marks, placement, kept)
        elif node.domain == "" and node.op_type == "Add":
            indices = _residual_inputs(node, marks, float_layers, depth)
        elif node in requantizing:
            indices = _plugin_inputs(node, marks)
        else:
            is_int8_output = any(output in marks.wanted for output in node.outputs)
            copies = is_int8_output and node not in computing and not _gives_output(node)
            indices = _copied_inputs(node) if copies else ()
            if indices:
                marks.copying.add(node)
        if indices:
            marks.reads[node] = indices
            marks.wanted.update(dict.fromkeys(input_of(node, index) for index in indices))
    return marks


def _residual_inputs(
    node: ir.Node, marks: Int8Demand, float_layers: Mapping[str, str], depth: Mapping[ir.Node, int]
) -> tuple[int, ...]:
    """Inputs of an addition of two activations that are read as int8; () if it is something else or stays in float.

    A convolution's own result is left as it is where nobody else reads it: convolution and addition then run as one
    kernel, which rounds once. Of two such convolutions it is the one with more nodes before it: the other one, a projection
    of the block's input, can run beside the block. Everything else is quantized.
    """
    first, second = node.inputs
    after = node.outputs[0]
    users = [use.node for use in after.uses()]
    if len(users) == 1 and users[0].op_type in _ACTIVATIONS:
        after = users[0].outputs[0]
    if after not in marks.wanted or first is None or second is None or first is second:
        return ()
    if constant(first) is not None or constant(second) is not None:
        return ()
    if first.shape is None or second.shape is None or first.shape != second.shape:
        return ()
    fused: dict[int, int] = {}  # depths, by the input's index
    for index, value in enumerate((first, second)):
        producer = value.producer()
        if producer is None or producer.op_type != "Conv" or node_name(producer) in float_layers:
            continue
        if len(value.uses()) == 1 and not value.is_graph_output():
            fused[index] = depth[producer]
    return (1 - max(fused, key=fused.__getitem__),) if fused else (0, 1)


def _plugin_inputs(node: ir.Node, marks: Int8Demand) -> tuple[int, ...]:
    """All inputs of a plugin that computes on int8 codes, where one of its results is read so; all of them become codes then.

    Nothing where it reads a constant, which has no scale in the table, or gives an output of the model.
    """
    if _gives_output(node) or not any(output in marks.wanted for output in node.outputs):
        return ()
    if any(value is None or constant(value) is not None for value in node.inputs):
        return ()
    marks.wanted.update(dict.fromkeys(node.outputs))
    return tuple(range(len(node.inputs)))


def _want_result(value: ir.Value, marks: Int8Demand, kept: Collection[ir.Node]) -> None:
    """Demand an int8 result of a layer whose kernel writes int8 only, unless a demanded tensor after it replaces it."""
    behind = absorbed(value)
    stands = behind in marks.wanted and behind.producer() not in kept
    if not stands and not value.is_graph_output():
        marks.wanted[value] = None


def _kernel_inputs(
    node: ir.Node, marks: Int8Demand, placement: Placement, kept: Collection[ir.Node]
) -> tuple[int, ...]:
    """Indices of inputs that an operator with an int8 kernel reads as int8.

    Nothing where nobody wants its result so, it reads a constant, or what makes its inputs computes in float, as in a GELU that
    is written with Tanh: each would be rounded for this operator alone.
    """
    behind = absorbed(node.outputs[0])
    if behind.producer() in kept:
        behind = node.outputs[0]
    operands = node.inputs[:1] if node in kept else node.inputs
    if behind not in marks.wanted or any(value is None or constant(value) is not None for value in operands):
        return ()
    if not any(_may_be_int8(value, placement) for value in operands):
        return ()
    return tuple(range(len(operands)))


def _may_be_int8(value: ir.Value | None, placement: Placement) -> bool:
    """Whether a tensor enters the model, or comes from a node that has an int8 kernel for it or copies values."""
    node = value.producer() if value is not None else None
    if node is None:
        return True
    if node.domain != "" or node.op_type in WEIGHTED or node.op_type in _COPYING or node.op_type in _RECTIFIERS:
        return True
    return node.op_type in placement.kernels and all(constant(operand) is None for operand in node.inputs)


def _gives_output(node: ir.Node) -> bool:
    """Whether an output of the model would be copied from rounded values, with a scale that it may share with larger ones."""
    return any(output.is_graph_output() for output in node.outputs)


def _copied_inputs(node: ir.Node) -> tuple[int, ...]:
    """Inputs whose values the node passes on unchanged; () if it computes something."""
    if node.domain != "":
        count = len(node.inputs) if passes_int8_through(node) else 0
    elif node.op_type == "Resize" and node.attributes.get_string("mode", "nearest") != "nearest":
        count = 0
    else:
        count = len(node.inputs) if node.op_type == "Concat" else int(node.op_type in _COPYING)
    inputs = node.inputs[:count]
    if any(value is None or constant(value) is not None for value in inputs):
        return ()  # a constant has no scale in the table
    return tuple(range(len(inputs)))


def input_of(node: ir.Node, index: int) -> ir.Value:
    """An input that is known to exist."""
    value = node.inputs[index]
    if value is None:
        raise ModelError(f"quantize: node {node_name(node)!r} lacks input {index}.")
    return value
