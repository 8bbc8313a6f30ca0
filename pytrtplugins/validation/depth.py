"""How deep graphs lie within each other: looked at before anything goes from one into the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ModelError
from .dataflow import bodies
from .limits import MAX_DEPTH, MAX_NODES

if TYPE_CHECKING:
    import onnx

__all__ = ["check_depth"]


def check_depth(model: onnx.ModelProto) -> None:
    """Require few graphs within graphs, before anything here or elsewhere goes into them one within the other."""
    waiting: list[tuple[Any, int]] = [(model.graph.node, 1), *((function.node, 1) for function in model.functions)]
    total = 0
    while waiting:
        nodes, depth = waiting.pop()
        total += len(nodes)
        if depth > MAX_DEPTH:
            raise ModelError(f"graphs lie within each other, more than {MAX_DEPTH} deep", found=depth, limit=MAX_DEPTH)
        if total > MAX_NODES:
            raise ModelError(f"the model has more than {MAX_NODES:,} nodes", found=total, limit=MAX_NODES)
        waiting += [(body.node, depth + 1) for node in nodes for body in bodies(node)]
