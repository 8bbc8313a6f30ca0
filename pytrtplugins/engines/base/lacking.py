"""Operators that an engine lacks, told from what its library says when it cannot build a model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import BuildError
from ...model.fit import node_type
from ...model.proto import node_name
from ...model.skeleton import guide
from ...validation.dataflow import walk

if TYPE_CHECKING:
    import onnx

__all__ = ["guiding", "lacked_node"]

_SAID = (  # with an operator's type, or a node's name, in it
    "No Op registered for {op} ",  # onnxruntime
    r"\b{op}\(-?\d+\) is not a registered function/op",
    r"Could not find an implementation for {op}\(",
    r"No conversion rule found for operations: .*\b{op}\b",  # OpenVINO
    r"node \d+ '{name}': .*(Plugin not found|No importer registered for op)",  # TensorRT
    r"operator (\S+::)?{op} is not known",  # engine reference
    r"does not have the operator \S+::{op} ",  # engine cuda
)


def lacked_node(model: onnx.ModelProto, error: BuildError) -> onnx.NodeProto | None:
    """The node whose operator the engine does not have, as the error says; None where it says no such thing.

    Args:
        model: What the engine was to build.
        error: Of the engine.
    """
    text = f"{error}\n{error.facts.get('text', '')}"
    found = [node for node in walk(model.graph.node) if _is_denied(node, text)]
    named = (node for node in found if repr(node_name(node)) in text or f'"{node_name(node)}"' in text)
    return next(named, next(iter(found), None))


def _is_denied(node: onnx.NodeProto, text: str) -> bool:
    if node.op_type not in text and node_name(node) not in text:  # most nodes, for which no pattern is compiled
        return False
    named = {"op": re.escape(node.op_type), "name": re.escape(node_name(node))}
    return any(re.search(re.sub(r"{(op|name)}", lambda found: named[found[1]], said), text) for said in _SAID)


@contextmanager
def guiding(model: onnx.ModelProto, engine: str) -> Iterator[None]:
    """Where an engine cannot build a model since it lacks an operator, say which, and how to write it as a plugin.

    Raises:
        BuildError: with the node's signature and a plugin class to begin with; ``.text`` is what the library reported. An error of
            another kind stays as it is.
    """
    try:
        yield
    except BuildError as error:
        node = lacked_node(model, error)
        if node is None:
            raise
        said = error.facts.get("text")  # by the library, if the error is not this package's own
        what = (
            str(error).partition(".\n")[0]
            if said is None
            else f"engine {engine!r} does not have the operator {node_type(node)}"
        )
        facts = {} if said is None else {"text": said}
        raise BuildError(f"{what} {guide(model, node)}", engine=engine, op=node.op_type, node=node.name, **facts) from (
            error if said is None or error.__cause__ is None else error.__cause__
        )
