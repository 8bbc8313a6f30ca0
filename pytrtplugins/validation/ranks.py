"""Numbers of axes that operators need, where ONNX's inference does not compare them and libraries read behind their memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import ModelError
from .dataflow import bodies
from .operators import node_text, standard_domain

if TYPE_CHECKING:
    import onnx

__all__ = ["check_ranks"]

_EXACT = dict.fromkeys(("GRU", "LSTM", "RNN"), (("X", 3), ("W", 3), ("R", 3)))
"""Operator → its first inputs, with the number of axes that each has."""
_LEAST = {
    **dict.fromkeys(("CumProd", "CumSum"), (("x", 1),)),
    **dict.fromkeys(("GatherElements", "ScatterElements"), (("data", 1), ("indices", 1))),
    "LpNormalization": (("input", 1),),
}
"""Operator → its first inputs, with the fewest axes that each has."""


def check_ranks(model: onnx.ModelProto) -> None:
    """Require the axes of recurrent layers' inputs, and one axis where an operator goes along one, as far as the model says the dims.

    Raises:
        ModelError: an input has others.
    """
    _check(model.graph, {})


def _check(graph: onnx.GraphProto, outer: Mapping[str, int]) -> None:
    known = {**outer, **{tensor.name: len(tensor.dims) for tensor in graph.initializer}}
    for info in (*graph.value_info, *graph.input, *graph.output):
        if info.type.tensor_type.HasField("shape"):
            known[info.name] = len(info.type.tensor_type.shape.dim)
    for node in graph.node:
        if not standard_domain(node.domain):
            _check_node(node, known)
        for body in bodies(node):
            _check(body, known)


def _check_node(node: onnx.NodeProto, known: Mapping[str, int]) -> None:
    exact = node.op_type in _EXACT
    wanted = _EXACT.get(node.op_type) or _LEAST.get(node.op_type, ())
    for (said, axes), name in zip(wanted, node.input, strict=False):
        found = known.get(name, axes)
        if found < axes or (exact and found > axes):
            raise ModelError(
                f"{node_text(node)}: its input {said}, {name[:200]!r}, has {found} axes; {node.op_type} reads "
                f"{axes if exact else f'at least {axes}'}",
                node=node.name,
                tensor=name,
            )
