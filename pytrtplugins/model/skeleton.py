"""Unknown operators: signatures of their nodes, and source of a plugin class to start from."""

from __future__ import annotations

import functools
import itertools
import keyword
import math
import re
import shlex
from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..plugin.field_kinds import kind_like
from ..plugin.fields import format_value
from ..plugin.onnx_node import STANDARD_DOMAINS, is_plugin_node, node_attributes
from ..tensor import PLUGIN_DTYPES, DType
from ..utils.listing import first_texts
from ..utils.optional import onnx
from ..validation.dataflow import constants, subgraphs, walk
from ..validation.operators import standard_domain, standard_opset
from .fit import node_type
from .proto import has_shape, info_dims, node_name, numpy_type, tensors_of, type_text

__all__ = ["Signatures", "guide", "nodes_beyond_onnx", "skeleton", "unknown_nodes"]

_LIBRARIES = (*STANDARD_DOMAINS[1:], "com.ms.", "org.openvinotoolkit", "org.pytorch")
"""What the domains begin with whose operators a library below an engine may know."""
_OWN = "custom"  # the domain that is proposed for a plugin whose operator has one of a library's
_FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
_MOST_CHARACTERS = 300
"""Of a list of operators."""
_Scope = tuple[ChainMap[str, "onnx.ValueInfoProto"], ChainMap[str, bool]]
"""Descriptions of the tensors that a node may read, by name, and the names of those that are constants."""


def nodes_beyond_onnx(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the nodes, also of subgraphs and functions, that are no ONNX operators, plugins or function calls."""
    opset = standard_opset(model)
    functions = {(function.domain, function.name) for function in model.functions}
    opsets = {item.domain: item.version for item in model.opset_import}

    @functools.cache
    def is_standard(op_type: str, node_domain: str) -> bool:
        domain = standard_domain(node_domain)
        version = opsets.get(domain, 0) if domain else opset
        return (node_domain, op_type) in functions or bool(version and onnx.defs.has(op_type, version, domain))

    inner = (node for function in model.functions for node in function.node)
    others = (node for node in walk([*model.graph.node, *inner]) if not is_standard(node.op_type, node.domain))
    return [node for node in others if not is_plugin_node(node)]


def unknown_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the nodes of custom domains, which neither ONNX nor an engine's library can know."""
    return [node for node in nodes_beyond_onnx(model) if node.domain and not node.domain.startswith(_LIBRARIES)]


class Signatures:
    """Signatures of a model's nodes as text: ``x: float32[N, 3, 8, 8], w: float32[3] (constant) → y: float32``.

    Args:
        model: With the types and dims of its tensors.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._scopes: dict[int, _Scope] = {}
        self._nodes: list[onnx.NodeProto] = []  # alive, so that each keeps its id
        self._main: _Scope = (ChainMap(), ChainMap())
        self._main = self._add(model.graph, self._main)

    def _add(self, graph: onnx.GraphProto, outer_scope: _Scope) -> _Scope:
        infos, constant_names = outer_scope
        scope = (
            infos.new_child(tensors_of(graph)),
            constant_names.new_child({item.name: True for item in graph.initializer}),
        )
        for node in graph.node:
            self._nodes.append(node)
            self._scopes[id(node)] = scope
            for body in subgraphs(node):
                self._add(body, scope)
        return scope

    def of(self, node: onnx.NodeProto) -> str:
        """Return the signature of a node of the model or of a subgraph; other nodes count as nodes of the main graph."""
        infos, constant_names = self._scopes.get(id(node), self._main)

        def tensor_text(name: str) -> str:
            if name not in infos:
                return f"{name}: type unknown" if name else "nothing"
            dims = f"[{', '.join(map(str, info_dims(infos[name])))}]" if has_shape(infos, name) else ""
            return f"{name}: {type_text(infos[name])}{dims}{' (constant)' if name in constant_names else ''}"

        return f"{', '.join(map(tensor_text, node.input))} → {', '.join(map(tensor_text, node.output))}"


def skeleton(node: onnx.NodeProto, types: Mapping[str, DType] | None = None) -> str:
    """Return Python source of a plugin class for a node; its two methods are to be filled in.

    Args:
        node: The node.
        types: Element types of its tensors, as far as they are known; where they differ, the class says which they are.
    """
    inputs = _identifiers(node.input, "x")
    outputs = [name for name in node.output if name]
    arguments = ", ".join(("self", *inputs))
    attributes = node_attributes(node)
    fields = [line for name, value in attributes.items() if (line := _field_source(name, value))]
    left_out = [name for name, value in attributes.items() if not _field_source(name, value)]
    has_several_outputs = len(outputs) > 1
    dims = (
        "(" + ", ".join(inputs[:1] * len(outputs) or ["()"] * len(outputs)) + ")"
        if has_several_outputs
        else (inputs or ["()"])[0]
    )
    name = _class_name(node)
    name_argument = "" if name == node.op_type else f", name={node.op_type!r}"
    lines = [
        "import pytrtplugins as ptp",
        *(["import numpy as np"] if any("np." in line for line in fields) else []),
        "", "",
        f"@ptp.plugin(namespace={_namespace(node)!r}{name_argument})",
        f"class {name}(ptp.Plugin):",
        f'    """What {node.op_type} computes."""',
        "",
        *(f"    {line}" for line in fields),
        *(f"    # attribute {item!r} cannot be a field" for item in left_out),
        *([""] if attributes else []),
        f"    def output_dims({arguments}):",
        f"        return {dims}  # the dims of {', '.join(outputs) or 'what it gives'}",
        "",
        *_types_source(node, inputs, outputs, types or {}),
        f"    def compute({arguments}):",
        f'        raise NotImplementedError("compute {", ".join(outputs)}, in arrays")',
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _types_source(
    node: onnx.NodeProto, inputs: Sequence[str], outputs: Sequence[str], types: Mapping[str, DType]
) -> list[str]:
    """Return source lines of the methods for element types other than float32; none if the types are unknown."""
    input_types = [types.get(name) for name in node.input]
    if not input_types or len(input_types) != len(inputs) or None in input_types:
        return []
    default = next(
        (dtype for dtype in input_types if dtype in _FLOATS), input_types[0]
    )  # of an output whose type nobody knows
    output_types = [types.get(name, default) for name in outputs]
    if {*input_types, *output_types} <= {DType.FLOAT32}:
        return []
    words = [f"ptp.DType.{dtype.name}" for dtype in (*input_types, *output_types) if dtype is not None]
    output_words = ", ".join(words[len(input_types) :])
    return [
        f"    def output_dtypes({', '.join(('self', *inputs))}):",
        f"        return {output_words if len(output_types) == 1 else f'({output_words})'}  # the types of {', '.join(outputs)}",
        "",
        "    def supports_format(self, position, descs):",
        f"        dtypes = ({', '.join(words)})  # of the inputs, then of the outputs",
        '        return descs[position].layout == "linear" and descs[position].dtype == dtypes[position]',
        "",
    ]


def _known_types(model: onnx.ModelProto, node: onnx.NodeProto) -> dict[str, DType]:
    """Return the known element types of the tensors in a node's scope, if plugins support them."""
    kinds = {name: info.type.tensor_type.elem_type for name, info in _scope_infos(model, node).items()}
    dtype_of = {dtype.value: dtype for dtype in PLUGIN_DTYPES}
    dtypes = {name: dtype_of.get(numpy_type(kind).name) for name, kind in kinds.items() if kind}
    return {name: dtype for name, dtype in dtypes.items() if dtype}


def _scope_infos(model: onnx.ModelProto, node: onnx.NodeProto) -> dict[str, onnx.ValueInfoProto]:
    """Return the `ValueInfoProto` of each tensor in a node's scope, by name."""
    infos: dict[str, onnx.ValueInfoProto] = {}
    for graph in (
        model.graph,
        *(graph_inside for outer in _containers(model, node) for graph_inside in subgraphs(outer)),
    ):
        infos |= tensors_of(graph)
    return infos


def guide(model: onnx.ModelProto, node: onnx.NodeProto, engine: str, lacking: Iterable[onnx.NodeProto]) -> str:
    """Return advice on a node that an engine does not support: its signature, commands, and source of a plugin class.

    Args:
        model: With the types and dims of its tensors.
        node: Of the model, or of a graph inside one of its nodes.
        engine: Name of the engine.
        lacking: All nodes whose operators it lacks; the other operators are listed with their numbers of nodes.
    """
    containers = _containers(model, node)
    container_text = "".join(f" within {node_name(outer)!r} ({node_type(outer)})" for outer in containers[-1:])
    name, place = _class_name(node), node_name(node)
    file = f"{re.sub(r'[^a-z0-9_]', '_', name.lower())}.py"
    all_lacking = list(lacking)  # alive, so that each keeps its id
    others = Counter({id(item): node_type(item) for item in all_lacking}.values())
    del others[node_type(node)]
    lines = [f"(node {place!r}{container_text}: {Signatures(model).of(node)})."]
    if others:
        lines.append(
            f"Nor does it have these, of which `pytrt inspect MODEL --engine {engine}` lists the nodes: {_operator_counts_text(others)}"
        )
    if node.domain.startswith(_LIBRARIES) or not node.domain:
        lines.append("Another engine may have it; `pytrt inspect MODEL --engine NAME` says what an engine lacks.")
    lines.append(f"Do: write it as a plugin, for instance in {file}, from the class below; then")
    if _namespace(node) == node.domain:
        lines.append(f"  pytrt run MODEL --plugins {file}     (in Python: import it before build(...))")
    if not containers:
        constant_names, input_names = constants(model.graph), [item for item in node.input if item]
        inputs = f" --inputs {shlex.quote(','.join(input_names))}" if not constant_names.isdisjoint(input_names) else ""
        attributes = node_attributes(node)
        from_node_option = (
            " --from-node" if attributes and all(_field_source(*item) for item in attributes.items()) else ""
        )
        lines.append(
            f"  pytrt replace MODEL {shlex.quote(place)} {file}:{name}{from_node_option}{inputs} -o OUT.onnx     (in Python: Graph.replace)"
        )
    elif _namespace(node) != node.domain:
        lines.append(
            f"  export the model again with the operator in the domain {_OWN!r}: nodes inside of others cannot be replaced"
        )
    return "\n".join(lines) + f"\n\n{skeleton(node, _known_types(model, node))}"


def _operator_counts_text(operators: Counter[str]) -> str:
    """Return operators with their node counts as text, most nodes first, shortened to a few lines."""
    parts = [f"{kind} ({count})" for kind, count in operators.most_common()]
    lengths = itertools.accumulate(len(part) + 2 for part in parts)
    shown = max(1, sum(length <= _MOST_CHARACTERS for length in lengths))
    return first_texts(parts, shown, last=", and ")


def _class_name(node: onnx.NodeProto) -> str:
    return node.op_type if node.op_type.isidentifier() and not keyword.iskeyword(node.op_type) else "Layer"


def _namespace(node: onnx.NodeProto) -> str:
    """Return the namespace for a node's plugin: its domain, or ``custom`` if operators of that domain are never plugins."""
    return _OWN if node.domain in STANDARD_DOMAINS else node.domain


def _containers(model: onnx.ModelProto, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return the nodes whose subgraphs contain a node, outermost first."""

    def search(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto] | None:
        for candidate in nodes:
            if candidate is node:
                return []
            for body in subgraphs(candidate):
                path = search(body.node)
                if path is not None:
                    return [candidate, *path]
        return None

    return search(model.graph.node) or []


def _identifiers(names: Any, default: str) -> list[str]:
    """Return unique Python identifiers for tensor names."""
    identifiers: list[str] = []
    for name in names:
        identifier = re.sub(r"\W", "_", name.rpartition("/")[2]).strip("_") or default
        if not identifier.isidentifier() or keyword.iskeyword(identifier) or identifier == "self":
            identifier = f"{default}_{identifier}"
        identifiers.append(identifier if identifier not in identifiers else f"{identifier}_{len(identifiers)}")
    return identifiers


def _field_source(name: str, value: Any) -> str:
    """Return the source of a field's declaration; ``""`` if the attribute cannot be a field."""
    if not name.isidentifier() or keyword.iskeyword(name):
        return ""
    value = tuple(value) if isinstance(value, list) else value
    kind = kind_like(value)
    if kind is None:
        return ""
    if isinstance(value, np.ndarray):
        return f"{name}: {kind.source}"
    items = value if isinstance(value, tuple) else (value,)
    is_finite = all(math.isfinite(item) for item in items if isinstance(item, float))
    return f"{name}: {kind.source} = {format_value(value)}" if is_finite else ""
