"""Check ranks of inputs where ONNX's inference does not and kernels of libraries would crash the process."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import ModelError
from ..utils.optional import onnx
from .dataflow import walk_with_facts
from .operators import node_text, standard_domain

__all__ = ["check_ranks"]

_ANY = 2**31
_RECURRENT = {0: ("X", 3, 3), 1: ("W", 3, 3), 2: ("R", 3, 3)}
_ALONG = {0: ("x", 1, _ANY)}
_ELEMENTS = {0: ("data", 1, _ANY), 1: ("indices", 1, _ANY)}
_BLOCKED = ("DequantizeLinear", "QuantizeLinear")  # which with `block_size` have a scale for each block along an axis
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
"""Operator → place of an input → its name in ONNX, and the fewest and the most axes that it has: what ONNX's inference does not check."""


def check_ranks(model: onnx.ModelProto) -> None:
    """Check the rank of inputs against their operators, where the model has their dims."""
    for node, ranks in walk_with_facts(model.graph, lambda tensor: len(tensor.dims), _rank_of):
        _check_node(node, ranks)


def _rank_of(declared: onnx.TypeProto.Tensor) -> int | None:
    """The number of axes of a type; None if it has no shape."""
    return len(declared.shape.dim) if declared.HasField("shape") else None


def _check_node(node: onnx.NodeProto, ranks: Mapping[str, int]) -> None:
    domain = standard_domain(node.domain)
    operator = f"{domain}.{node.op_type}" if domain else node.op_type
    blocked = operator in _BLOCKED and any(item.name == "block_size" and item.i for item in node.attribute)
    for place, (input_name, least, most) in (_ALONG if blocked else _RANKS.get(operator, {})).items():
        name = node.input[place] if place < len(node.input) else ""
        rank = ranks.get(name, least)
        if not least <= rank <= most:
            raise ModelError(
                f"{node_text(node)}: its input {input_name}, {name[:200]!r}, has {rank} axes; {node.op_type} reads "
                f"{least if least == most else f'at least {least}'}",
                node=node.name,
                tensor=name,
            )
