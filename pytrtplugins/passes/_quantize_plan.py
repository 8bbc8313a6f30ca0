"""Which tensors of a model get Q/DQ and with which scale; nothing is changed here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._optional import require
from ..calibration.table import CalibrationTable
from ..errors import FieldError, ModelError, RegistryError, UsageError
from ..onnx_node import from_node, is_plugin_node

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["QuantizePlan", "constant", "input_of", "make_plan", "weight_axis"]

# Values are copied, never computed: a scale that fits the input fits the output. Number of data inputs, None for all.
_COPYING: dict[str, int | None] = {
    "Concat": None,
    "DepthToSpace": 1,
    "Dropout": 1,
    "Expand": 1,
    "Flatten": 1,
    "Identity": 1,
    "MaxPool": 1,
    "Reshape": 1,
    "Resize": 1,
    "Slice": 1,
    "SpaceToDepth": 1,
    "Split": 1,
    "Squeeze": 1,
    "Tile": 1,
    "Transpose": 1,
    "Unsqueeze": 1,
}
_ACTIVATIONS = (
    "Clip",
    "Elu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Mish",
    "PRelu",
    "Relu",
    "Selu",
    "Sigmoid",
    "Tanh",
)
_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class QuantizePlan:
    """What the quantize pass does to a model.

    Attributes:
        layers: Nodes that compute in int8: convolutions, matrix products and residual additions.
        weights: Those of them whose second input is a constant to quantize.
        reads: (node, index) of every input that is to read a dequantized tensor.
        scales: Tensor that gets Q/DQ → its scale; all tensors of a chain have the same one.
        float_layers: Name of every layer that could have been quantized and is not → why.
        required: Names of the tensors whose scales were taken from the table.
    """

    layers: tuple[ir.Node, ...]
    weights: tuple[ir.Node, ...]
    reads: tuple[tuple[ir.Node, int], ...]
    scales: Mapping[ir.Value, np.float32]
    float_layers: Mapping[str, str]
    required: tuple[str, ...]


@dataclass
class _Marks:
    """One walk from the outputs up: who wants int8."""

    reads: dict[ir.Node, tuple[int, ...]] = field(default_factory=dict)
    wanted: dict[ir.Value, None] = field(default_factory=dict)  # a dict, for its order
    copying: set[ir.Node] = field(default_factory=set)


def make_plan(
    model: ir.Model,
    table: CalibrationTable | None,
    *,
    exclude: Collection[str] = (),
    float_first: bool = False,
    float_last: bool = True,
    around_activations: bool = False,
) -> QuantizePlan:
    """Decide what is quantized.

    Args:
        model: Model in topological order.
        table: Scales; None: the plan is wanted only for its ``required`` names, and its scales are all 1.
        exclude: Names of nodes that stay in float.
        float_first: Keep layers in float that read nothing computed by another layer with weights.
        float_last: Keep layers in float whose results reach no other layer with weights.
        around_activations: Quantize between a layer and its activation function too, each with its own scale.

    Raises:
        UsageError: a name in ``exclude`` is no node's.
        ModelError: the model holds Q/DQ already, or its opset is older than 13.
        CalibrationTableError: scales are missing; see `CalibrationTable.check_fits`.
    """
    nodes = list(model.graph)
    _check(model, nodes)
    float_layers = {_label(name): "excluded" for name in _known(nodes, exclude)}
    for node in nodes:
        if node.op_type in _WEIGHTED and node.domain == "" and _label(node) not in float_layers:
            why = _unfit(node) or _at_an_end(node, nodes, float_first, float_last)
            if why:
                float_layers[_label(node)] = why
    while True:
        marks = _mark(nodes, float_layers)
        roots, members = _chains(marks)
        activations = _activation_inputs(marks) if around_activations else {}
        required = tuple(str(v.name) for v in reversed(marks.wanted) if v.producer() not in marks.copying)
        required += tuple(str(value.name) for value in activations.values())
        if table is not None:
            tensors = [str(value.name) for value in _activations(model.graph.inputs, nodes)]
            table.check_fits(tensors, required=required)
        scales = {root: _scale(values, marks, table) for root, values in members.items()}
        dead = [
            node
            for node, indices in marks.reads.items()
            if node not in marks.copying and any(scales[roots[input_of(node, index)]] == 0 for index in indices)
        ]
        if not dead:
            break
        float_layers |= {_label(node): "its input was 0 throughout calibration" for node in dead}
    points = {v: None for v in reversed(marks.wanted) if v.producer() not in marks.copying or _is_plugin(v.producer())}
    layers = tuple(node for node in nodes if node in marks.reads and node not in marks.copying)
    reads = [(node, i) for node, indices in marks.reads.items() for i in indices if input_of(node, i) in points]
    point_scales = {value: scales[roots[value]] for value in points}
    for node, value in activations.items():
        scale = _table_scale(value, table)
        if scale > 0:
            point_scales[value] = scale
            reads.append((node, 0))
    return QuantizePlan(
        layers=layers,
        weights=tuple(node for node in layers if node.op_type in _WEIGHTED),
        reads=tuple(reads),
        scales=point_scales,
        float_layers=float_layers,
        required=required,
    )


def weight_axis(node: ir.Node) -> int:
    """Axis of the output channels in the weights of a layer."""
    if node.op_type == "ConvTranspose":
        return 1
    if node.op_type == "Gemm":
        return 0 if node.attributes.get_int("transB", 0) != 0 else 1
    return 1 if node.op_type == "MatMul" else 0


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Give the value of an initializer or Constant node; None of anything else."""
    if value is None:
        return None
    onnx_ir = require("onnx_ir", extra="onnx", feature="the quantize pass")
    tensor: ir.TensorProtocol | None = onnx_ir.convenience.get_const_tensor(value)
    return tensor


def _check(model: ir.Model, nodes: list[ir.Node]) -> None:
    opset = model.graph.opset_imports.get("", 0)
    if opset < 13:
        raise ModelError(
            f"quantize: the model has opset {opset}: expected 13 or newer, the first with a scale per channel.\n"
            "Do: onnx.version_converter.convert_version(model, 18)"
        )
    held = [node for node in nodes if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    if held:
        raise ModelError(
            f"quantize: the model is quantized already: it holds {len(held)} QuantizeLinear and DequantizeLinear nodes, "
            f"the first is {_label(held[0])!r}.\nDo: give the float model",
            node=_label(held[0]),
        )


def _known(nodes: Iterable[ir.Node], names: Collection[str]) -> Collection[str]:
    """``names``, each of which is a node's."""
    known = {_label(node) for node in nodes}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=3)
            hint = f" Near: {', '.join(map(repr, near))}." if near else ""
            raise UsageError(f"quantize: exclude: the model has no node {name!r}.{hint}", name=name, near=tuple(near))
    return names


def _unfit(node: ir.Node) -> str:
    """Why a layer with weights cannot be quantized; "" if it can."""
    if len(node.inputs) < 2 or node.inputs[0] is None or node.inputs[1] is None:
        return "it lacks an input"
    weight = constant(node.inputs[1])
    if weight is None:
        return "its weights are computed at run time"
    if str(weight.dtype) != "FLOAT":
        return f"its weights are {weight.dtype}, not FLOAT"
    if constant(node.inputs[0]) is not None:
        return "its input is constant"
    if not np.isfinite(weight.numpy()).all():
        return "its weights are not finite"
    if node.op_type == "ConvTranspose" and node.attributes.get_int("group", 1) != 1:
        return "a ConvTranspose with groups has no single axis of output channels"
    if node.op_type in ("Gemm", "MatMul") and len(weight.shape) != 2:
        return "its weights are not a matrix"
    if node.op_type == "Gemm" and node.attributes.get_int("transA", 0) != 0:
        return "its input is transposed"
    return ""


def _at_an_end(node: ir.Node, nodes: list[ir.Node], first: bool, last: bool) -> str:
    if last and not _reaches_weights(node, lambda other: other.successors()):
        return "last layer before the outputs (float_last)"
    if first and not _reaches_weights(node, lambda other: other.predecessors()):
        return "first layer behind the inputs (float_first)"
    return ""


def _reaches_weights(node: ir.Node, step: Callable[[ir.Node], Iterable[ir.Node]]) -> bool:
    seen: set[ir.Node] = set()
    ahead = list(step(node))
    while ahead:
        other = ahead.pop()
        if other in seen:
            continue
        seen.add(other)
        if other.op_type in _WEIGHTED and other.domain == "":
            return True
        ahead.extend(step(other))
    return False


def _mark(nodes: list[ir.Node], float_layers: Mapping[str, str]) -> _Marks:
    marks = _Marks()
    for node in reversed(nodes):
        if _label(node) in float_layers:
            continue
        if node.domain == "" and node.op_type in _WEIGHTED:
            indices: tuple[int, ...] = (0,)
        elif node.domain == "" and node.op_type == "Add":
            indices = _residual_inputs(node, marks, float_layers)
        else:
            wanted = any(output in marks.wanted for output in node.outputs)
            indices = _copied_inputs(node) if wanted and not _gives_output(node) else ()
            if indices:
                marks.copying.add(node)
        if indices:
            marks.reads[node] = indices
            marks.wanted.update(dict.fromkeys(input_of(node, index) for index in indices))
    return marks


def _residual_inputs(node: ir.Node, marks: _Marks, float_layers: Mapping[str, str]) -> tuple[int, ...]:
    """Inputs of an addition of two activations that are read as int8; () if it is something else or stays in float.

    A convolution's own result is left as it is where nobody else reads it: convolution and addition then run as one
    kernel, which rounds once. Everything else is quantized.
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
    for index, value in enumerate((first, second)):
        producer = value.producer()
        fused = producer is not None and producer.op_type == "Conv" and _label(producer) not in float_layers
        if fused and len(value.uses()) == 1 and not value.is_graph_output():
            return (1 - index,)
    return (0, 1)


def _gives_output(node: ir.Node) -> bool:
    """Whether an output of the model would be copied from rounded values, with a scale that it may share with larger ones."""
    return any(output.is_graph_output() for output in node.outputs)


def _copied_inputs(node: ir.Node) -> tuple[int, ...]:
    """Inputs whose values the node hands on unchanged; () if it computes something."""
    if _is_plugin(node):
        count: int | None = len(node.inputs) if _passes_through(node) else 0
    elif node.domain != "" or (node.op_type == "Resize" and node.attributes.get_string("mode", "nearest") != "nearest"):
        count = 0
    else:
        count = _COPYING.get(node.op_type, 0)
    inputs = node.inputs if count is None else node.inputs[:count]
    if any(value is None or constant(value) is not None for value in inputs):
        return ()  # a constant has no scale in the table
    return tuple(range(len(inputs)))


def _is_plugin(node: ir.Node | None) -> bool:
    return node is not None and node.domain != "" and is_plugin_node(_proto(node))


def _passes_through(node: ir.Node) -> bool:
    try:
        return from_node(_proto(node)).int8 == "pass_through"
    except (RegistryError, FieldError):  # the engine that must run it will say so; here it is a float layer
        return False


def _proto(node: ir.Node) -> Any:
    return require("onnx_ir", extra="onnx", feature="the quantize pass").to_proto(node)


def _chains(marks: _Marks) -> tuple[dict[ir.Value, ir.Value], dict[ir.Value, list[ir.Value]]]:
    """Tensor → representative of its chain, and representative → tensors: chains are joined by copying nodes."""
    parent: dict[ir.Value, ir.Value] = {value: value for value in marks.wanted}

    def find(value: ir.Value) -> ir.Value:
        while parent[value] is not value:
            parent[value] = parent[parent[value]]
            value = parent[value]
        return value

    for node in marks.copying:
        ends = [input_of(node, index) for index in marks.reads[node]]
        ends += [output for output in node.outputs if output in marks.wanted]
        for end in ends[1:]:
            parent[find(end)] = find(ends[0])
    members: dict[ir.Value, list[ir.Value]] = {}
    for value in marks.wanted:
        members.setdefault(find(value), []).append(value)
    return {value: find(value) for value in marks.wanted}, members


def _scale(values: list[ir.Value], marks: _Marks, table: CalibrationTable | None) -> np.float32:
    """Largest scale of the tensors of a chain that are computed rather than copied."""
    return max(_table_scale(value, table) for value in values if value.producer() not in marks.copying)


def _table_scale(value: ir.Value, table: CalibrationTable | None) -> np.float32:
    return np.float32(1) if table is None else table[str(value.name)]


def _activation_inputs(marks: _Marks) -> dict[ir.Node, ir.Value]:
    """Activation functions between a quantized layer and a tensor that is wanted in int8, and what they read."""
    found: dict[ir.Node, ir.Value] = {}
    for wanted in reversed(marks.wanted):
        node = wanted.producer()
        if node is None or node.op_type not in _ACTIVATIONS or node.domain != "":
            continue
        value = input_of(node, 0)
        layer = value.producer()
        if layer in marks.reads and layer not in marks.copying and value not in marks.wanted:
            found[node] = value
    return found


def _activations(inputs: Iterable[ir.Value], nodes: Iterable[ir.Node]) -> Iterator[ir.Value]:
    """Float tensors of a model, constants aside."""
    for value in [*inputs, *(output for node in nodes for output in node.outputs)]:
        if value.name and (value.dtype is None or str(value.dtype) == "FLOAT") and constant(value) is None:
            yield value


def input_of(node: ir.Node, index: int) -> ir.Value:
    """Give an input that is known to be there."""
    value = node.inputs[index]
    if value is None:
        raise ModelError(f"quantize: node {_label(node)!r} lacks input {index}.")
    return value


def _label(node: ir.Node | str) -> str:
    """Name of a node, or of its first output where it has none."""
    return node if isinstance(node, str) else str(node.name or node.outputs[0].name)
