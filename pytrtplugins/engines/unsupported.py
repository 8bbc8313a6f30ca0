"""The nodes of a model whose operators an engine lacks."""

from __future__ import annotations

from pathlib import Path

from ..errors import BuildError
from ..model import Graph
from ..model.proto import node_name
from ..model.skeleton import nodes_beyond_onnx, unknown_nodes
from ..passes import load_model
from ..utils.optional import onnx
from ..validation.dataflow import walk
from .base.operator_support import probe_unsupported_nodes
from .registry import available_class
from .selection import build

__all__ = ["unsupported_nodes"]


def unsupported_nodes(model: str | Path | onnx.ModelProto | Graph, engine: str) -> list[onnx.NodeProto]:
    """The nodes of a model whose operators an engine lacks, those in branches and loops included.

    A model of ONNX's own operators and plugins is built first: an engine that can build it has them all.

    Args:
        model: An ONNX file, a model, or a graph.
        engine: Name of an engine.

    Raises:
        UnavailableError: the engine cannot be used here.
        ModelError: the file is not a usable ONNX model.
        BuildError: the engine has all operators, and cannot build the model for another reason.
    """
    loaded, cls = load_model(model), available_class(engine)
    nobodys = [] if cls.foreign_operators else unknown_nodes(loaded)
    failed: BuildError | None = None
    if not (cls.asks_fast and nodes_beyond_onnx(loaded)):
        try:
            build(loaded, engine=engine, settings=cls.fast_build, progress=False)
        except BuildError as error:
            failed = error
        else:
            return []
    lacking = [*nobodys, *probe_unsupported_nodes(loaded, cls, failed)]
    inner = (node for function in loaded.functions for node in function.node)
    found = [
        node
        for node in walk([*loaded.graph.node, *inner])
        if any(node is item for item in lacking) or _is_named(node, failed)
    ]
    if failed is not None and not found:
        raise failed
    return found


def _is_named(node: onnx.NodeProto, error: BuildError | None) -> bool:
    """Whether an error says that it is about this node."""
    facts = {} if error is None else error.facts
    return (node.op_type, node.name) == (facts.get("op"), facts.get("node")) or facts.get("node") == node_name(node)
