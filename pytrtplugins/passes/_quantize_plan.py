"""Decide which tensors of a model get Q/DQ and with which scale; the model is not changed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..calibration.table import CalibrationTable
from ..errors import ModelError, UsageError
from ..model.ir import constant, operand
from ..model.operator_traits import RECURRENT
from ..model.proto import node_name
from ..plugin.onnx_node import is_plugin_node, requantizes
from ..utils.optional import ir
from ._int8_demand import WEIGHTED, Int8Demand, find_int8_demand, input_of
from .codes import FP8, INT8, Codes
from .placement import Placement, bounded, is_pooled, never_negative, rectifies

__all__ = ["QuantizePlan", "make_plan", "weight_axis"]

_SIGNED, _UNSIGNED = INT8.largest, 255  # largest codes; tables hold scales of the first
_FEWEST_CHANNELS = 16  # that a layer's input has if it is no image; a space-to-depth of 2x2 makes 12 of RGB


@dataclass(frozen=True)
class QuantizePlan:
    """What the quantize pass will change in a model.

    Attributes:
        layers: Nodes that compute in int8: convolutions, matrix products, residual additions, and the placement's kernels.
        weights: Those of them whose second input is a constant to quantize.
        reads: (node, index) of every input that is to read a dequantized tensor.
        scales: Tensor that gets Q/DQ → its scale; all tensors of a chain have the same one.
        unsigned: Those of them that are uint8 with zero point 0.
        float_layers: Name of every layer that could have been quantized and is not → why.
        required: Names of the tensors whose scales were taken from the table.
        code_readers: Node → indices of the inputs that it reads as codes; those that copy values are among them.
    """

    layers: tuple[ir.Node, ...]
    weights: tuple[ir.Node, ...]
    reads: tuple[tuple[ir.Node, int], ...]
    scales: Mapping[ir.Value, np.float32]
    unsigned: frozenset[ir.Value]
    float_layers: Mapping[str, str]
    required: tuple[str, ...]
    code_readers: Mapping[ir.Node, tuple[int, ...]]


def make_plan(
    model: ir.Model,
    table: CalibrationTable | None,
    *,
    exclude: Collection[str] = (),
    float_first: bool | None = None,
    float_last: bool = True,
    placement: Placement | None = None,
    codes: Codes = INT8,
) -> QuantizePlan:
    """Decide what is quantized.

    Args:
        model: Model in topological order.
        table: Scales; None: the plan is wanted only for its ``required`` names, and its scales are all 1.
        exclude: Names of nodes that stay in float.
        float_first: Keep layers in float that read nothing computed by another layer with weights; None: in FP8 those of them that
            are convolutions of fewer than 16 channels, since they read an image.
        float_last: Keep layers in float whose results reach no other layer with weights.
        placement: What the engine's int8 kernels take and give; None: the default.
        codes: What is quantized to.

    Raises:
        UsageError: a name in ``exclude`` is not a node's.
        ModelError: the model holds Q/DQ already, or its opset is older than the codes'.
        CalibrationTableError: scales are missing; see `CalibrationTable.check_fits`.
    """
    nodes, placement = list(model.graph), placement or Placement()
    _check(model, nodes, codes)
    float_layers = dict.fromkeys(_check_node_names(nodes, exclude), "excluded")
    for node in nodes:
        if node.op_type in WEIGHTED and node.domain == "" and node_name(node) not in float_layers:
            why = _unfit(node, placement, codes) or _at_an_end(node, codes, float_first, float_last)
            if why:
                float_layers[node_name(node)] = why
    int8_nodes: set[ir.Node] = (
        set()
    )  # rectifiers that no saturation does, since their results share a scale with negative values
    requantizing = {node for node in nodes if codes is INT8 and is_plugin_node(node) and requantizes(node)}
    computing = {node for node in nodes if _is_float_pool(node, placement, codes)}
    while True:
        marks = find_int8_demand(nodes, float_layers, placement, int8_nodes, requantizing, computing)
        roots, members = _chains(marks)
        computed = [v for v in reversed(marks.wanted) if v.producer() not in marks.copying]
        required = tuple(str(value.name) for value in computed if not bounded(value))
        if table is not None:
            tensors = [str(value.name) for value in _activations(model.graph.inputs, nodes)]
            table.check_fits(tensors, required=required)
        scales = {root: _scale(values, marks, table, placement) for root, values in members.items()}
        dead = [
            node
            for node, indices in marks.reads.items()
            if node not in marks.copying and any(scales[roots[input_of(node, index)]] == 0 for index in indices)
        ]
        signed = {root for root in members if not placement.unsigned}
        signed.update(roots[value] for value in computed if not never_negative(value))
        signed.update(roots[v] for node in requantizing for v in (*node.inputs, *node.outputs) if v in roots)
        producers = (
            {v.producer() for v in computed if roots[v] in signed and rectifies(v.producer())}
            if placement.results
            else set()
        )
        more = {node for node in producers if node is not None} - int8_nodes
        if not dead and not more:
            break
        int8_nodes |= more
        float_layers |= {node_name(node): "its input was 0 throughout calibration" for node in dead}
    points = {
        v: None
        for v in reversed(marks.wanted)
        if scales[roots[v]] > 0 and (placement.repeated or not _copied_by_onnx(v, marks))
    }
    layers = tuple(node for node in nodes if node in marks.reads and node not in marks.copying)
    reads = [(node, i) for node, indices in marks.reads.items() for i in indices if input_of(node, i) in points]
    alone = [value for value in points if placement.results or value.producer() in requantizing]
    if alone:  # an int8 kernel gives int8 alone: whoever reads its result reads that
        all_reads = [(use.node, use.idx) for value in alone if not value.is_graph_output() for use in value.uses()]
        reads = list(dict.fromkeys([*reads, *(read for read in all_reads if input_of(*read).producer() is not None)]))
    unsigned = frozenset(value for value in points if roots[value] not in signed)
    largest = {v: _UNSIGNED if v in unsigned else codes.largest for v in points}
    point_scales = {v: np.float32(float(scales[roots[v]]) * _SIGNED / largest[v]) for v in points}
    return QuantizePlan(
        layers=layers,
        weights=tuple(node for node in layers if node.op_type in WEIGHTED and node.domain == ""),
        reads=tuple(reads),
        scales=point_scales,
        unsigned=unsigned,
        float_layers=float_layers,
        required=required,
        code_readers=marks.reads,
    )


def _is_float_pool(node: ir.Node, placement: Placement, codes: Codes) -> bool:
    """Whether a node is a MaxPool that an engine does not run on codes."""
    if node.domain != "" or node.op_type != "MaxPool":
        return False
    if codes is FP8:
        return not placement.fp8_pools
    if not placement.int8_pools:
        return True
    return not placement.sliced_pools and any(user.op_type == "Slice" for user in node.successors())


def _copied_by_onnx(value: ir.Value, marks: Int8Demand) -> bool:
    """Whether a tensor comes from a copying node that is an operator of ONNX, and no plugin."""
    node = value.producer()
    return node is not None and node in marks.copying and node.domain == ""


def weight_axis(node: ir.Node) -> int:
    """Axis of the output channels in the weights of a layer."""
    if node.op_type == "ConvTranspose" or node.op_type in RECURRENT:  # of these for all directions, which are axis 0
        return 1
    if node.op_type == "Gemm":
        return 0 if node.attributes.get_int("transB", 0) != 0 else 1
    return 1 if node.op_type == "MatMul" else 0


def _check(model: ir.Model, nodes: list[ir.Node], codes: Codes) -> None:
    opset = model.graph.opset_imports.get("", 0)
    if opset < codes.opset:
        first = "a scale per channel" if codes is INT8 else f"{codes.dtype}"
        raise ModelError(
            f"quantize: the model has opset {opset}: expected {codes.opset} or newer, the first with {first}.\n"
            f"Do: onnx.version_converter.convert_version(model, {max(18, codes.opset)})"
        )
    qdq_nodes = [node for node in nodes if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    if qdq_nodes:
        raise ModelError(
            f"quantize: the model is quantized already: it holds {len(qdq_nodes)} QuantizeLinear and DequantizeLinear nodes, "
            f"the first is {node_name(qdq_nodes[0])!r}.\nDo: give the float model",
            node=node_name(qdq_nodes[0]),
        )


def _check_node_names(nodes: Iterable[ir.Node], names: Collection[str]) -> Collection[str]:
    """Check that ``names`` are names of nodes, and return them."""
    all_names = {node_name(node) for node in nodes}
    for name in names:
        if name not in all_names:
            near = difflib.get_close_matches(name, sorted(all_names), n=3)
            hint = f" Near: {', '.join(map(repr, near))}." if near else ""
            raise UsageError(f"quantize: exclude: the model has no node {name!r}.{hint}", name=name, near=tuple(near))
    return names


def _unfit(node: ir.Node, placement: Placement, codes: Codes) -> str:
    """Why a layer with weights cannot be quantized; "" if it can."""
    if node.op_type not in placement.layers:
        return f"the engine has no int8 kernel for {node.op_type}"
    if node.op_type in RECURRENT and codes is not INT8:
        return f"the weights of {node.op_type} are quantized in INT8 alone"
    if len(node.inputs) < 2 or node.inputs[0] is None or node.inputs[1] is None:
        return "it lacks an input"
    weight = constant(node.inputs[1])
    if weight is None:
        return "its weights are computed at run time"
    if node.op_type == "Conv" and not placement.pooled and is_pooled(node.inputs[0]):
        return "its input is a single pixel"
    if str(weight.dtype) != "FLOAT":
        return f"its weights are {weight.dtype}, not FLOAT"
    if 0 in weight.shape:
        return "its weights have no elements"
    if constant(node.inputs[0]) is not None:
        return "its input is constant"
    if not _finite(weight):
        return "its weights are not finite"
    if node.op_type == "ConvTranspose" and node.attributes.get_int("group", 1) != 1:
        return "a ConvTranspose with groups has no single axis of output channels"
    if node.op_type in ("Gemm", "MatMul") and len(weight.shape) != 2:
        return "its weights are not a matrix"
    if node.op_type == "Gemm" and node.attributes.get_int("transA", 0) != 0:
        return "its input is transposed"
    return ""


def _finite(tensor: ir.TensorProtocol) -> bool:
    """Whether all values are; they are looked at once, since reading them copies them."""
    if "finite" not in tensor.meta:
        tensor.meta["finite"] = bool(np.isfinite(tensor.numpy()).all())
    return bool(tensor.meta["finite"])


def _at_an_end(node: ir.Node, codes: Codes, first: bool | None, last: bool) -> str:
    if last and not _reaches_weights(node, lambda other: other.successors()):
        return "last layer before the outputs (float_last)"
    image = first is None and codes is FP8 and _has_few_channels(node)
    if (first or image) and not _reaches_weights(node, lambda other: other.predecessors()):
        return (
            "FP8 is too coarse for the image that it reads (float_first)"
            if image
            else "first layer behind the inputs (float_first)"
        )
    return ""


def _has_few_channels(node: ir.Node) -> bool:
    """Whether it is a convolution whose input has as few channels as an image."""
    weight = constant(operand(node, 1))
    if node.op_type != "Conv" or weight is None:
        return False
    return int(weight.shape.numpy()[1]) * node.attributes.get_int("group", 1) < _FEWEST_CHANNELS


def _reaches_weights(node: ir.Node, step: Callable[[ir.Node], Iterable[ir.Node]]) -> bool:
    seen: set[ir.Node] = set()
    ahead = list(step(node))
    while ahead:
        other = ahead.pop()
        if other in seen:
            continue
        seen.add(other)
        if other.op_type in WEIGHTED and other.domain == "":
            return True
        ahead.extend(step(other))
    return False


def _chains(marks: Int8Demand) -> tuple[dict[ir.Value, ir.Value], dict[ir.Value, list[ir.Value]]]:
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


def _scale(
    values: list[ir.Value], marks: Int8Demand, table: CalibrationTable | None, placement: Placement
) -> np.float32:
    """The largest scale among the computed tensors of a chain of copies."""
    return max(_table_scale(value, table, placement) for value in values if value.producer() not in marks.copying)


def _table_scale(value: ir.Value, table: CalibrationTable | None, placement: Placement) -> np.float32:
    if table is None:
        return np.float32(1)
    node = value.producer()
    gate = bounded(value) and node is not None and node.op_type in placement.kernels
    if gate or (bounded(value) and str(value.name) not in table):
        return np.float32(1 / _SIGNED)  # 0..1, which no calibrator needs to find; many values near 0.5 mislead entropy
    return table[str(value.name)]


def _activations(inputs: Iterable[ir.Value], nodes: Iterable[ir.Node]) -> Iterator[ir.Value]:
    """Float tensors of a model, constants aside."""
    for value in [*inputs, *(output for node in nodes for output in node.outputs)]:
        if value.name and (value.dtype is None or str(value.dtype) == "FLOAT") and constant(value) is None:
            yield value
