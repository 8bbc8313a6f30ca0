"""Rewrite attributes that onnxruntime interprets differently from ONNX's text, so that both agree."""

from __future__ import annotations

from ..model.proto import infos_of, without_data
from ..utils.optional import onnx
from ..validation import infer
from ..validation.dataflow import walk
from ..validation.operators import standard_domain
from ..validation.pooling import drop_ceil_mode, ignores_ceil_mode

__all__ = ["is_misread", "write_unmistakably"]


def is_misread(node: onnx.NodeProto) -> bool:
    """Whether a node has an attribute that onnxruntime misreads."""
    return ignores_ceil_mode(node) or _counts_from_the_end(node)


def write_unmistakably(model: onnx.ModelProto) -> None:
    """Rewrite such attributes in place.

    1. Pools with ``auto_pad`` lose ``ceil_mode``, which their formulas have no part for.
    2. Axes of Resize with ``keep_aspect_ratio_policy`` that count from the end count from the beginning, where the rank is known: with
       them onnxruntime leaves sizes as they are.
    """
    for node in filter(ignores_ceil_mode, walk(model.graph.node)):
        drop_ceil_mode(node)
    nodes = [node for node in model.graph.node if _counts_from_the_end(node)]
    infos = infos_of(infer(without_data(model)).graph) if nodes else {}
    for node in nodes:
        kind = infos[node.input[0]].type.tensor_type if node.input[0] in infos else None
        if kind is not None and kind.HasField("shape"):
            rank = len(kind.shape.dim)
            for attribute in node.attribute:
                if attribute.name == "axes":
                    attribute.ints[:] = [axis + rank if -rank <= axis < 0 else axis for axis in attribute.ints]


def _counts_from_the_end(node: onnx.NodeProto) -> bool:
    if node.op_type != "Resize" or standard_domain(node.domain):
        return False
    attributes = {attribute.name: attribute for attribute in node.attribute}
    keeps = "keep_aspect_ratio_policy" in attributes and attributes["keep_aspect_ratio_policy"].s != b"stretch"
    return keeps and "axes" in attributes and min(attributes["axes"].ints, default=0) < 0
