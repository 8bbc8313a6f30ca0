"""The nodes of a model whose operators an engine lacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BuildError, PytrtpluginsError
from ..model.fit import node_type
from ..model.proto import copy_fields, copy_of, node_name
from ..model.skeleton import nodes_beyond_onnx, unknown_nodes
from ..passes import load_model
from ..utils.optional import require
from ..validation.dataflow import walk
from .base.failures import explaining
from .base.lacking import lacked_node
from .base.types import BuildOptions
from .registry import available_class
from .selection import build

if TYPE_CHECKING:
    import onnx

    from ..model import Graph
    from .base.engine import Engine

__all__ = ["unsupported_nodes"]


def unsupported_nodes(model: str | Path | onnx.ModelProto | Graph, engine: str) -> list[onnx.NodeProto]:
    """The nodes of a model whose operators an engine lacks, those in branches and loops included.

    The engine is asked for each operator beyond ONNX's own, with a model of one node. Where it has these, the model is built: of ONNX's
    own operators it names the first that it lacks.

    Args:
        model: An ONNX file, a model, or a graph.
        engine: Name of an engine.

    Raises:
        UnavailableError: the engine cannot be used here.
        ModelError: the file is no usable ONNX model.
        BuildError: the engine has all operators, and cannot build the model for another reason.
    """
    loaded, cls = load_model(model), available_class(engine)
    nobodys = {node_type(node) for node in unknown_nodes(loaded)} if not cls.foreign_operators else set()
    kinds: dict[str, bool] = {}
    found = []
    for node in nodes_beyond_onnx(loaded):
        kind = node_type(node)
        if kind not in kinds:
            kinds[kind] = kind in nobodys or _lacks(cls, loaded, node)
        if kinds[kind]:
            found.append(node)
    if found:
        return found
    try:
        build(loaded, engine=engine, settings=cls.fast_build, progress=False)
    except BuildError as error:
        about = error.facts.get("op"), error.facts.get("node")
        found = [
            node
            for node in walk(loaded.graph.node)
            if (node.op_type, node.name) == about or error.facts.get("node") == node_name(node)
        ]
        if not found:
            raise
    return found


def _lacks(cls: type[Engine], model: onnx.ModelProto, node: onnx.NodeProto) -> bool:
    """Whether an engine says of a model of this one node that it does not have its operator; types do not matter for that."""
    helper = require("onnx.helper", extra="onnx")
    asked = type(model)()
    copy_fields(model, asked, without=("graph", "functions"))
    asked.graph.name = "one node"
    asked.graph.node.append(copy_of(node))
    for names, infos in ((node.input, asked.graph.input), (node.output, asked.graph.output)):
        infos.extend(helper.make_tensor_value_info(name, 1, None) for name in dict.fromkeys(names) if name)
    try:
        with explaining("asked for one operator", cls.name):
            cls.build(asked, BuildOptions(settings=cls.fast_build))
    except BuildError as error:
        return lacked_node(asked, error) is not None
    except PytrtpluginsError:  # of the types that are made up here
        pass
    return False
