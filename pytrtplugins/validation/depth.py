"""How deep graphs lie within each other: looked at before anything goes from one into the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ModelError
from .dataflow import bodies
from .limits import MOST_DEPTH, MOST_NODES

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
        if depth > MOST_DEPTH:
            raise ModelError(
                f"graphs lie within each other, more than {MOST_DEPTH} deep", found=depth, limit=MOST_DEPTH
            )
        if total > MOST_NODES:
            raise ModelError(f"the model has more than {MOST_NODES:,} nodes", found=total, limit=MOST_NODES)
        waiting += [(body.node, depth + 1) for node in nodes for body in bodies(node)]
