"""Unknown operators: the inputs and outputs of a node, and the plugin class to start from."""

from __future__ import annotations

import itertools
import keyword
import math
import re
import shlex
from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plugin.field_kinds import kind_like
from ..plugin.fields import format_value
from ..plugin.onnx_node import STANDARD_DOMAINS, is_plugin_node, node_attributes
from ..tensor import PLUGIN_DTYPES, DType
from ..utils.optional import require
from ..validation.dataflow import constants, subgraphs, walk
from ..validation.operators import standard_domain, standard_opset
from .fit import node_type
from .proto import has_shape, info_dims, node_name, numpy_type, tensors_of, type_text

if TYPE_CHECKING:
    import onnx

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
    """Nodes that are neither ONNX's own operators nor plugins nor calls of functions; those inside of branches, loops and functions too."""
    defs, opset = require("onnx.defs", extra="onnx", feature="reading ONNX models"), standard_opset(model)
    functions = {(function.domain, function.name) for function in model.functions}
    opsets = {item.domain: item.version for item in model.opset_import}

    def is_known(node: onnx.NodeProto) -> bool:
        if (node.domain, node.op_type) in functions or is_plugin_node(node):
            return True
        domain = standard_domain(node.domain)
        version = opsets.get(domain, 0) if domain else opset
        return bool(version and defs.has(node.op_type, version, domain))

    inner = (node for function in model.functions for node in function.node)
    return [node for node in walk([*model.graph.node, *inner]) if not is_known(node)]


def unknown_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Those of `nodes_beyond_onnx` of a domain of somebody's own, which no library below an engine can know."""
    return [node for node in nodes_beyond_onnx(model) if node.domain and not node.domain.startswith(_LIBRARIES)]


class Signatures:
    """What the nodes of a model read and give: ``x: float32[N, 3, 8, 8], w: float32[3] (constant) → y: float32``.

    Args:
        model: With the types and dims of its tensors.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._scopes: dict[int, _Scope] = {}
        self._nodes: list[onnx.NodeProto] = []  # alive, so that each keeps its id
        self._main: _Scope = (ChainMap(), ChainMap())
        self._main = self._add(model.graph, self._main)

    def _add(self, graph: onnx.GraphProto, around: _Scope) -> _Scope:
        infos, fixed = around
        scope = infos.new_child(tensors_of(graph)), fixed.new_child({item.name: True for item in graph.initializer})
        for node in graph.node:
            self._nodes.append(node)
            self._scopes[id(node)] = scope
            for body in subgraphs(node):
                self._add(body, scope)
        return scope

    def of(self, node: onnx.NodeProto) -> str:
        """That of a node of the model, or of a graph inside one of its nodes; others are taken for nodes of the main graph."""
        known, fixed = self._scopes.get(id(node), self._main)

        def described(name: str) -> str:
            if name not in known:
                return f"{name}: type unknown" if name else "nothing"
            dims = f"[{', '.join(map(str, info_dims(known[name])))}]" if has_shape(known, name) else ""
            return f"{name}: {type_text(known[name])}{dims}{' (constant)' if name in fixed else ''}"

        return f"{', '.join(map(described, node.input))} → {', '.join(map(described, node.output))}"


def skeleton(node: onnx.NodeProto, types: Mapping[str, DType] | None = None) -> str:
    """Python source of a plugin class that runs the node as it stands, once its two methods are filled in.

    Args:
        node: The node.
        types: Element types of its tensors, as far as they are known; where they differ, the class says which they are.
    """
    inputs = _identifiers(node.input, "x")
    outputs = [name for name in node.output if name]
    arguments = ", ".join(("self", *inputs))
    attributes = node_attributes(node)
    fields = [line for name, value in attributes.items() if (line := _field(name, value))]
    left_out = [name for name, value in attributes.items() if not _field(name, value)]
    several = len(outputs) > 1
    dims = (
        "(" + ", ".join(inputs[:1] * len(outputs) or ["()"] * len(outputs)) + ")" if several else (inputs or ["()"])[0]
    )
    name = _class_name(node)
    named = "" if name == node.op_type else f", name={node.op_type!r}"
    lines = [
        "import pytrtplugins as ptp",
        *(["import numpy as np"] if any("np." in line for line in fields) else []),
        "", "",
        f"@ptp.plugin(namespace={_namespace(node)!r}{named})",
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
    """The methods of a class whose tensors differ in element type, or are not floats; none where the types are not known."""
    read = [types.get(name) for name in node.input]
    if not read or len(read) != len(inputs) or None in read:
        return []
    guess = next((dtype for dtype in read if dtype in _FLOATS), read[0])  # of an output whose type nobody knows
    given = [types.get(name, guess) for name in outputs]
    if {*read, *given} <= {DType.FLOAT32}:
        return []
    words = [f"ptp.DType.{dtype.name}" for dtype in (*read, *given) if dtype is not None]
    given_words = ", ".join(words[len(read) :])
    return [
        f"    def output_dtypes({', '.join(('self', *inputs))}):",
        f"        return {given_words if len(given) == 1 else f'({given_words})'}  # the types of {', '.join(outputs)}",
        "",
        "    def supports_format(self, position, descs):",
        f"        dtypes = ({', '.join(words)})  # of the inputs, then of the outputs",
        '        return descs[position].layout == "linear" and descs[position].dtype == dtypes[position]',
        "",
    ]


def _known_types(model: onnx.ModelProto, node: onnx.NodeProto) -> dict[str, DType]:
    """Element types of the tensors around a node, where the model says them and plugins have them."""
    kinds = {name: info.type.tensor_type.elem_type for name, info in _infos(model, node).items()}
    named = {dtype.value: dtype for dtype in PLUGIN_DTYPES}
    found = {name: named.get(numpy_type(kind).name) for name, kind in kinds.items() if kind}
    return {name: dtype for name, dtype in found.items() if dtype}


def _infos(model: onnx.ModelProto, node: onnx.NodeProto) -> dict[str, onnx.ValueInfoProto]:
    """The tensors of the graphs around a node."""
    known: dict[str, onnx.ValueInfoProto] = {}
    for graph in (model.graph, *(step for outer in _around(model, node) for step in subgraphs(outer))):
        known |= tensors_of(graph)
    return known


def guide(model: onnx.ModelProto, node: onnx.NodeProto, engine: str, lacking: Iterable[onnx.NodeProto]) -> str:
    """What to do about a node whose operator an engine lacks: its signature, the commands, and the plugin class to begin with.

    Args:
        model: With the types and dims of its tensors.
        node: Of the model, or of a graph inside one of its nodes.
        engine: Name of the engine.
        lacking: All nodes whose operators it lacks; the other operators are listed with their numbers of nodes.
    """
    around = _around(model, node)
    within = "".join(f" within {node_name(outer)!r} ({node_type(outer)})" for outer in around[-1:])
    name, place = _class_name(node), node_name(node)
    file = f"{re.sub(r'[^a-z0-9_]', '_', name.lower())}.py"
    all_lacking = list(lacking)  # alive, so that each keeps its id
    others = Counter({id(item): node_type(item) for item in all_lacking}.values())
    del others[node_type(node)]
    lines = [f"(node {place!r}{within}: {Signatures(model).of(node)})."]
    if others:
        lines.append(
            f"Nor does it have these, of which `pytrt inspect MODEL --engine {engine}` lists the nodes: {_counted(others)}"
        )
    if node.domain.startswith(_LIBRARIES) or not node.domain:
        lines.append("Another engine may have it; `pytrt inspect MODEL --engine NAME` says what an engine lacks.")
    lines.append(f"Do: write it as a plugin, for instance in {file}, from the class below; then")
    if _namespace(node) == node.domain:
        lines.append(f"  pytrt run MODEL --plugins {file}     (in Python: import it before build(...))")
    if not around:
        fixed, given = constants(model.graph), [item for item in node.input if item]
        inputs = f" --inputs {shlex.quote(','.join(given))}" if not fixed.isdisjoint(given) else ""
        attributes = node_attributes(node)
        taken = " --from-node" if attributes and all(_field(*item) for item in attributes.items()) else ""
        lines.append(
            f"  pytrt replace MODEL {shlex.quote(place)} {file}:{name}{taken}{inputs} -o OUT.onnx     (in Python: Graph.replace)"
        )
    elif _namespace(node) != node.domain:
        lines.append(
            f"  export the model again with the operator in the domain {_OWN!r}: nodes inside of others cannot be replaced"
        )
    return "\n".join(lines) + f"\n\n{skeleton(node, _known_types(model, node))}"


def _counted(operators: Counter[str]) -> str:
    """Operators with their numbers of nodes, most nodes first: the first one, and as many more as some lines hold."""
    parts = [f"{kind} ({count})" for kind, count in operators.most_common()]
    lengths = itertools.accumulate(len(part) + 2 for part in parts)
    shown = max(1, sum(length <= _MOST_CHARACTERS for length in lengths))
    return ", ".join(parts[:shown]) + (f", and {len(parts) - shown} more" if len(parts) > shown else "")


def _class_name(node: onnx.NodeProto) -> str:
    return node.op_type if node.op_type.isidentifier() and not keyword.iskeyword(node.op_type) else "Layer"


def _namespace(node: onnx.NodeProto) -> str:
    """The plugin's: the node's domain, unless operators of that domain are never plugins."""
    return _OWN if node.domain in STANDARD_DOMAINS else node.domain


def _around(model: onnx.ModelProto, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The nodes in whose graphs a node stands, from the outermost on."""

    def search(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto] | None:
        for each in nodes:
            if each is node:
                return []
            for body in subgraphs(each):
                found = search(body.node)
                if found is not None:
                    return [each, *found]
        return None

    return search(model.graph.node) or []


def _identifiers(names: Any, default: str) -> list[str]:
    """Names of tensors as names of arguments, each once."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name.rpartition("/")[2]).strip("_") or default
        if not plain.isidentifier() or keyword.iskeyword(plain) or plain == "self":
            plain = f"{default}_{plain}"
        found.append(plain if plain not in found else f"{plain}_{len(found)}")
    return found


def _field(name: str, value: Any) -> str:
    """The declaration of a field; empty for what cannot be one."""
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
