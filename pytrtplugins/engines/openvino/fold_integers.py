"""Fold integer arithmetic on constants with onnxruntime, since OpenVINO's folding rounds and overflows differently."""

from __future__ import annotations

import logging

from ...model.decompose import infer_shapes
from ...model.proto import copy_of, numpy_type
from ...plugin.onnx_node import is_plugin_node
from ...utils.optional import onnx
from ...utils.repeated import set_items
from ...validation.dataflow import constants, subgraphs, tensors_read
from ..base.failures import shorten_message
from ..host.ort_session import Submodels, make_session
from .conditions import MOVES, WHOLE

__all__ = ["fold_integers"]

_log = logging.getLogger(__name__)


def fold_integers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace integer arithmetic on constants by its results; gives the same model where there is none that onnxruntime computes."""
    constant_names = constants(model.graph)
    if not any(node.op_type not in MOVES and tensors_read(node) <= constant_names for node in model.graph.node):
        return model
    typed = infer_shapes(model)
    types = {info.name: info.type.tensor_type.elem_type for info in (*typed.graph.value_info, *typed.graph.output)}
    types.update((tensor.name, tensor.data_type) for tensor in typed.graph.initializer)
    integers = {name for name, kind in types.items() if kind and numpy_type(kind).name in (*WHOLE, "bool")}
    foldable = constant_names & integers
    nodes = [
        node
        for node in typed.graph.node
        if foldable.issuperset((*tensors_read(node), *filter(None, node.output)))
        and not is_plugin_node(node)
        and not any(subgraphs(node))
    ]
    if all(node.op_type in MOVES for node in nodes):
        return model
    submodel = Submodels(typed).extract(nodes)
    try:
        arrays = make_session(submodel.model, 1).run(submodel.outputs, {})
    except Exception as error:  # onnxruntime raises types of its own
        _log.info("engine 'cpu': onnxruntime cannot fold constants: %s", shorten_message(error))
        return model
    constant_nodes = [
        onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array, name))
        for name, array in zip(submodel.outputs, arrays, strict=True)
    ]
    folded = {name for node in nodes for name in node.output}
    result = copy_of(model)
    set_items(
        result.graph.node, (*constant_nodes, *(node for node in result.graph.node if folded.isdisjoint(node.output)))
    )
    return result
