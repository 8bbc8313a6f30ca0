"""Find the unsupported operators of a model, from a build error's text or by building one-node models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import BuildError, PytrtpluginsError
from ...model.fit import node_type
from ...model.proto import copy_fields, copy_of, node_name, numpy_type, tensors_of
from ...model.shapes import infer_without_weights
from ...model.skeleton import guide
from ...passes.prepare import of_onnx, prepare_loaded
from ...plugin.base import Plugin
from ...plugin.onnx_node import from_node, is_plugin_node
from ...utils.optional import onnx
from ...validation.dataflow import tensors_read, walk, walk_graphs
from .engine import Engine
from .failures import as_error
from .types import BuildOptions

__all__ = ["explain_unsupported_operators", "probe_unsupported_nodes", "unsupported_nodes_in_error"]

_SAID = (  # with an operator's type, or a node's name, in it
    "No Op registered for {op} ",  # onnxruntime
    r"\b{op}\(-?\d+\) is not a registered function/op",
    r"Could not find an implementation for {op}\(",
    r"No conversion rule found for operations: .*\b{op}\b",  # OpenVINO
    r"node \d+ '.*' \({op}\): .*(Plugin not found|operator is not supported)",  # TensorRT
    r"operator (\S+::)?{op} is not known",  # engine reference
    r"does not have the operator (\S+::)?{op}\b",  # engine cuda, and engines of other packages
)


def unsupported_nodes_in_error(model: onnx.ModelProto, error: BuildError) -> list[onnx.NodeProto]:
    """The nodes whose operators the engine lacks, by the error's text; nodes that it names come first.

    Args:
        model: What the engine was to build.
        error: The engine's build error.
    """
    text = f"{error}\n{error.facts.get('text', '')}"
    nodes = [node for node in walk(model.graph.node) if _is_refused(node, text)]
    return sorted(nodes, key=lambda node: repr(node_name(node)) not in text and f'"{node_name(node)}"' not in text)


def probe_unsupported_nodes(
    model: onnx.ModelProto, cls: type[Engine], error: BuildError | None = None
) -> Iterator[onnx.NodeProto]:
    """All nodes with unsupported operators, in the model's order, including those in subgraphs and functions.

    The engine is asked for each operator, once for each combination of its inputs' types, with a model of one node. An engine that
    does not build fast is not asked: it says all in its error.

    Args:
        model: With all its nodes.
        cls: The engine.
        error: The engine's build error, if it tried to build the model.
    """
    denied = [] if error is None else unsupported_nodes_in_error(model, error)
    asking = _OperatorProbe(model, cls) if cls.asks_fast else None
    inner = (node for function in model.functions for node in function.node)
    for node in walk([*model.graph.node, *inner]):
        if any(node is denied_node for denied_node in denied) or (asking is not None and asking.lacks(node)):
            yield node


class _OperatorProbe:
    """Asks an engine whether it supports an operator, by building a model of one node."""

    def __init__(self, model: onnx.ModelProto, cls: type[Engine]) -> None:
        self._cls, self._empty = cls, type(model)()
        copy_fields(model, self._empty, without={"graph", "functions"})
        self._empty.graph.name = "one node"
        self._functions = {(function.domain, function.name) for function in model.functions}
        try:
            typed = infer_without_weights(model)
        except PytrtpluginsError:  # a type that is not known is float32 below
            typed = model
        self._known = {name: info for graph in _graphs(typed) for name, info in tensors_of(graph).items()}
        self._constants = {tensor.name: tensor for graph in _graphs(model) for tensor in graph.initializer}
        self._answers: dict[tuple[object, ...], bool] = {}

    def lacks(self, node: onnx.NodeProto) -> bool:
        """Whether the engine does not have the operator, for inputs of these types."""
        if is_plugin_node(node) or (node.domain, node.op_type) in self._functions:
            return False
        kind = node_type(node), *(self._type(name) for name in node.input)
        if kind not in self._answers:
            self._answers[kind] = self._ask(node)
        return self._answers[kind]

    def _type(self, name: str) -> int:
        return int(self._known[name].type.tensor_type.elem_type) if name in self._known else 0

    def _ask(self, node: onnx.NodeProto) -> bool:
        model = copy_of(self._empty)
        model.graph.node.append(copy_of(node))
        read = sorted(tensors_read(node))
        model.graph.initializer.extend(self._constants[name] for name in read if name in self._constants)
        inputs = [name for name in read if name not in self._constants]
        for names, infos in ((inputs, model.graph.input), (node.output, model.graph.output)):
            infos.extend(
                copy_of(self._known[name]) if self._type(name) else onnx.helper.make_tensor_value_info(name, 1, None)
                for name in dict.fromkeys(names)
                if name
            )
        try:
            with as_error("asked for one operator", self._cls.name):
                self._cls.build(
                    prepare_loaded(model, native=self._cls.runs_contrib), BuildOptions(settings=self._cls.fast_build)
                )
        except BuildError as error:
            return any(unsupported is model.graph.node[0] for unsupported in unsupported_nodes_in_error(model, error))
        except PytrtpluginsError:  # of the types that are made up here
            pass
        return False


def _graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """The model's graph, and those inside its nodes."""
    return [model.graph, *walk_graphs(model.graph.node)]


def _is_refused(node: onnx.NodeProto, text: str) -> bool:
    """Whether an engine's message says that it lacks the node's operator."""
    if node.op_type not in text and node_name(node) not in text:  # most nodes, for which no pattern is compiled
        return False
    named = {"op": re.escape(node.op_type), "name": re.escape(node_name(node))}
    return any(re.search(re.sub(r"{(op|name)}", lambda found: named[found[1]], pattern), text) for pattern in _SAID)


def _ambiguous_output_type(model: onnx.ModelProto) -> str:
    """A plugin with inputs of different types whose class does not define its output types; empty if there is none."""
    infos = tensors_of(model.graph)
    for node in filter(is_plugin_node, model.graph.node):
        plugin = from_node(node)
        kinds = [infos[name].type.tensor_type.elem_type for name in node.input if name in infos]
        if len(set(kinds)) > 1 and type(plugin).output_dtypes is Plugin.output_dtypes:
            words = " and ".join(numpy_type(kind).name for kind in dict.fromkeys(kinds))
            return (
                f"Causes: the plugin of node {node_name(node)!r} reads {words}, and its outputs are {numpy_type(kinds[0]).name}, "
                f"as its first input is.\nDo: write output_dtypes and supports_format in {type(plugin).__name__}"
            )
    return ""


@contextmanager
def explain_unsupported_operators(model: onnx.ModelProto, cls: type[Engine]) -> Iterator[None]:
    """In the block, extend a build error with the unsupported operators, and how to write the first as a plugin.

    Raises:
        BuildError: with the node's signature and a plugin class to begin with; or with the plugin whose outputs have a type that
            nobody chose. ``.text`` is what the library reported. An error of another kind stays as it is.
    """
    try:
        yield
    except BuildError as error:
        named = unsupported_nodes_in_error(model, error)
        if not named and (cause := _ambiguous_output_type(model)):
            what = str(error).partition("\nDo: ")[0]
            raise BuildError(f"{what}\n{cause}", **error.facts) from error.__cause__
        if not named:
            for node in unsupported_nodes_in_error(
                of_onnx(model), error
            ):  # one that the library writes an operator of com.microsoft with
                raise BuildError(
                    f"node {node_name(node)!r} ({node_type(node)}): {error}", **error.facts
                ) from error.__cause__
            raise
        node, library_text = named[0], error.facts.get("text")  # by the library, if the error is not this package's own
        what = (
            str(error).partition(".\n")[0].rstrip(".")
            if library_text is None
            else f"engine {cls.name!r} does not have the operator {node_type(node)}"
        )
        facts = {} if library_text is None else {"text": library_text}
        others = probe_unsupported_nodes(model, cls, error)
        raise BuildError(
            f"{what} {guide(model, node, cls.name, others)}", engine=cls.name, op=node.op_type, node=node.name, **facts
        ) from (error if library_text is None or error.__cause__ is None else error.__cause__)
