"""Convert exceptions of engines' libraries to this package's errors, shortened; exceptions of plugins stay unchanged."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from ...errors import BuildError, EngineError, ExecutionError, PytrtpluginsError
from ...plugin.base import Plugin
from ...utils.listing import first_texts
from ...utils.optional import onnx
from ...validation.dataflow import walk
from ...validation.operators import CONTRIB, node_text, standard_domain, standard_opset

__all__ = [
    "as_error",
    "explained_runs",
    "is_plugins",
    "name_expanded_nodes",
    "names_node",
    "shorten_message",
    "with_suspects",
]

_MAX_CHARACTERS = 1500
_NAMELESS = "Name:'' Status Message"  # of onnxruntime
_BLOCKED = re.compile(r"(Name:'[^']+)_nchwc'")  # what onnxruntime calls a node of the model in its own layout
_SHOWN = 5  # nodes in a message
_OF_SOURCES = re.compile(  # places in OpenVINO's own sources, and the steps of Python that it adds
    r"(Exception from|Check '.*' failed at) \S+\.[ch]pp:\d+:?|At:|\S+\.py\(\d+\): \S+"
)
_QUOTED = re.compile(r"(?:'|Node )([^' ]+)(?:'| of type)")  # OpenVINO's, and its CPU plugin's
_Method = TypeVar("_Method", bound=Callable[..., Any])


def shorten_message(text: object, max_characters: int = _MAX_CHARACTERS) -> str:
    """The first lines of a library's message, without empty and repeated lines and without locations in its sources.

    Where something is left out, the last line says how many characters there are.
    """
    full_text = _BLOCKED.sub(r"\1'", str(text))
    lines = dict.fromkeys(line.strip() for line in full_text.splitlines())
    short = "\n".join(line for line in lines if line and not _OF_SOURCES.fullmatch(line)) or full_text.strip()
    if len(short) <= max_characters:
        return short
    note = f"\n… of {len(full_text):,} characters; the whole text is in .text"
    return short[: max_characters - len(note)].rstrip() + note


def names_node(text: str, model: onnx.ModelProto) -> bool:
    """Whether a library's message quotes a node or tensor of a model, or an operator made from one ("name/MatMul")."""
    words = set(_QUOTED.findall(text))
    words.update(*(word.partition("/")[:1] for word in words))
    return any(not words.isdisjoint((node.name, *node.input, *node.output)) for node in model.graph.node)


def is_plugins(error: BaseException) -> bool:
    """Whether an exception comes out of a plugin's own code."""
    step = error.__traceback__
    while step is not None:
        if isinstance(step.tb_frame.f_locals.get("self"), Plugin):
            return True
        step = step.tb_next
    return False


@contextmanager
def as_error(what: str, engine: str, kind: type[EngineError] = BuildError) -> Iterator[None]:
    """Raise an exception of a library as an error of this package, with the exception as its cause.

    Raises:
        EngineError: of this kind, about ``what`` failed, ``"OpenVINO cannot build the model"``; ``.text`` is all that the library reported.
    """
    try:
        yield
    except PytrtpluginsError:
        raise
    except Exception as error:  # libraries raise types of their own
        if is_plugins(error):
            raise
        text = str(error) or type(error).__name__
        raise kind(f"{what}: {shorten_message(text)}", engine=engine, text=text) from error


@contextmanager
def name_expanded_nodes(model: Callable[[], onnx.ModelProto]) -> Iterator[None]:
    """If onnxruntime fails in a node without a name, name the nodes that it may be part of: those that onnxruntime expands.

    Raises:
        ExecutionError: with the names of these nodes.
    """
    try:
        yield
    except ExecutionError as error:
        nodes = _expandable(model()) if _NAMELESS in str(error.facts.get("text", "")) else []
        if not nodes:
            raise
        raise ExecutionError(
            f"{error}\nThis is part of a node that onnxruntime writes with others: {first_texts(nodes, _SHOWN)}",
            **error.facts,
        ) from error.__cause__


def with_suspects(error: ExecutionError, model: onnx.ModelProto) -> ExecutionError:
    """An error that names a library's operators, extended by the model's nodes that they may belong to.

    Args:
        error: The error; its fact ``text`` is the library's text.
        model: The model. Its nodes whose operator the text has, as in "GRUSequence", come first.
    """
    text = str(error.facts.get("text", ""))
    nodes = list(walk(model.graph.node))
    suspects = [node_text(node) for node in [node for node in nodes if node.op_type in text] or nodes]
    return ExecutionError(f"{error}\nThat can be a part of {first_texts(suspects, _SHOWN)}", **error.facts)


def _expandable(model: onnx.ModelProto) -> list[str]:
    """Nodes of operators that ONNX or onnxruntime defines by others."""
    opset = standard_opset(model)

    def has_definition(node: onnx.NodeProto) -> bool:
        if node.domain == CONTRIB:
            return True
        if standard_domain(node.domain) or not onnx.defs.has(node.op_type, opset, ""):
            return False
        schema: Any = onnx.defs.get_schema(node.op_type, opset, "")
        return bool(schema.has_function or schema.has_context_dependent_function)

    return [node_text(node) for node in walk(model.graph.node) if has_definition(node)]


def explained_runs(what: str) -> Callable[[_Method], _Method]:
    """Decorator of a context's method: exceptions of the engine's library become `ExecutionError`, saying that ``what`` failed."""

    def decorate(method: _Method) -> _Method:
        @functools.wraps(method)
        def explained(self: Any, *args: Any, **kwargs: Any) -> Any:
            with as_error(what, self.engine.name, ExecutionError):
                return method(self, *args, **kwargs)

        return cast("_Method", explained)

    return decorate
