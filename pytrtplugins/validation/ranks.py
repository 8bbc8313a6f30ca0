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

_ANY = 2**31
_RECURRENT = {0: ("X", 3, 3), 1: ("W", 3, 3), 2: ("R", 3, 3)}
_ALONG = {0: ("x", 1, _ANY)}
_ELEMENTS = {0: ("data", 1, _ANY), 1: ("indices", 1, _ANY)}
_RANKS: Mapping[str, Mapping[int, tuple[str, int, int]]] = {
    "ConstantOfShape": {0: ("input", 1, 1)},
    "CumProd": _ALONG,
    "CumSum": _ALONG,
    "Expand": {1: ("shape", 1, 1)},
    "GRU": _RECURRENT,
    "GatherElements": _ELEMENTS,
    "LSTM": _RECURRENT,
    "LpNormalization": {0: ("input", 1, _ANY)},
    "RNN": _RECURRENT,
    "Reshape": {1: ("shape", 1, 1)},
    "ScatterElements": _ELEMENTS,
    "Tile": {1: ("repeats", 1, 1)},
    "com.microsoft.GatherBlockQuantized": {0: ("data", 1, _ANY), 2: ("scales", 1, _ANY)},
}
"""Operator → place of an input → its name in ONNX, and the fewest and the most axes that it has."""


def check_ranks(model: onnx.ModelProto) -> None:
    """Require the numbers of axes that operators read: 3 of recurrent layers, 1 of shapes, and one to go along, as far as dims are said.

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
        _check_node(node, known)
        for body in bodies(node):
            _check(body, known)


def _check_node(node: onnx.NodeProto, known: Mapping[str, int]) -> None:
    domain = standard_domain(node.domain)
    for place, (said, least, most) in _RANKS.get(f"{domain}.{node.op_type}" if domain else node.op_type, {}).items():
        name = node.input[place] if place < len(node.input) else ""
        found = known.get(name, least)
        if not least <= found <= most:
            raise ModelError(
                f"{node_text(node)}: its input {said}, {name[:200]!r}, has {found} axes; {node.op_type} reads "
                f"{least if least == most else f'at least {least}'}",
                node=node.name,
                tensor=name,
            )
