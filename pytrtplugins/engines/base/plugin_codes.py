"""Run plugins between DequantizeLinear and QuantizeLinear directly on int8 codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from ...model.ir import array_of, dtype_of, is_op, remove_unused, set_attributes, swap
from ...passes import Pass, PassResult
from ...plugin.base import Plugin
from ...plugin.onnx_node import SCALES, from_node, is_plugin_node, requantizes, supports_dtype
from ...plugin.policy import RUNNING, chosen_form
from ...tensor import DType
from ...utils.optional import ir
from ...utils.override import override

__all__ = ["WriteCodes", "on_codes"]


class WriteCodes(Pass):
    """Replace DQ → plugin → Q by the plugin on int8 codes, for plugins with ``int8 = "requantize"`` that run `enqueue`.

    The node gets the attribute `SCALES`. Other forms, `compute` and decompositions, compute on the numbers that the codes stand for.
    """

    name: ClassVar[str] = "write-codes"
    needs: ClassVar[tuple[str, ...]] = ("QuantizeLinear",)

    def __init__(self, forms: Sequence[str], requested: Mapping[str, str]) -> None:
        self._forms, self._requested = forms, requested

    @override
    def call(self, model: ir.Model) -> PassResult:
        modified = False
        for graph in model.graphs():
            for node in list(graph):
                if is_plugin_node(node) and requantizes(node):
                    modified |= bool(on_codes(graph, node, self._enqueues))
        if modified:
            remove_unused(model)
        return PassResult(model, modified)

    def _enqueues(self, plugin: Plugin) -> bool:
        return chosen_form(type(plugin), self._forms, self._requested, RUNNING) == "enqueue"


def on_codes(graph: ir.Graph, node: ir.Node, condition: Callable[[Plugin], bool]) -> list[float]:
    """Replace DQ → plugin → Q by the plugin, if it takes int8 in all inputs and outputs and ``condition`` holds.

    Returns:
        The scales of its inputs and outputs, which the node has as `SCALES` then; none if it stays in float.
    """
    plugin = from_node(node)
    before = [None if value is None else value.producer() for value in node.inputs]
    readers = [[use.node for use in value.uses()] for value in node.outputs]
    if (
        not condition(plugin)
        or not all(_gives_int8(dq) for dq in before)
        or not all(len(nodes) == 1 and is_op(nodes[0], "QuantizeLinear") for nodes in readers)
        or any(value.is_graph_output() for value in node.outputs)
        or not all(dtype_of(nodes[0].outputs[0]) is DType.INT8 for nodes in readers)
        or not supports_dtype(node, DType.INT8)
    ):
        return []
    after = [nodes[0] for nodes in readers]
    scales = [array_of(pair.inputs[1]) for pair in (*before, *after) if pair is not None]
    if any(scale is None or scale.size != 1 for scale in scales):
        return []
    for index, dq in enumerate(before):
        node.replace_input_with(index, dq.inputs[0] if dq is not None else None)
    for value, q in zip(node.outputs, after, strict=True):
        swap(graph, [q], value)
    values = [float(scale.item()) for scale in scales if scale is not None]
    set_attributes(node, {SCALES: tuple(values)})
    return values


def _gives_int8(dq: ir.Node | None) -> bool:
    """Whether a node dequantizes int8: plugins have no type for FP8, and stay in float between its pairs."""
    codes = dq.inputs[0] if dq is not None and is_op(dq, "DequantizeLinear") else None
    return codes is not None and dtype_of(codes) is DType.INT8
