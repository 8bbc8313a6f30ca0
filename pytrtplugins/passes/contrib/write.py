"""Replace nodes of ``com.microsoft`` by nodes of ONNX's own operators."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from ...errors import ModelError, PytrtpluginsError
from ...model.proto import copy_of, node_name, tensors_of, without_data
from ...utils.optional import onnx, require
from ...utils.repeated import keep_items, set_items
from ...validation import infer, validated
from ...validation.dataflow import subgraphs, walk
from ...validation.operators import node_text, standard_domain, standard_opset
from .node import ContribNode, MalformedError, NotWritableError, UnknownTypeError
from .table import BODIES, CONTRIB, Table

__all__ = ["check_node", "declare_contrib_domain", "known_nodes", "needed_opset", "write_functions"]

_log = logging.getLogger(__name__)
_OPSET = 13
"""The first in which all function bodies mean what they say, but for those of `_LATER`."""
_NORMS_OPSET, _HALF_SCALES_OPSET, _PAIRS_OPSET = 17, 19, 21
_LATER = dict.fromkeys(
    ("EmbedLayerNormalization", "LayerNormalization", "QEmbedLayerNormalization", "SkipLayerNormalization"),
    _NORMS_OPSET,
)
_WRITTEN = {domain for domain, _ in BODIES} - {""}
_FLOATS_OF_CODES = ("DequantizeLinear", "MatMulIntegerToFloat", "QAttention", "QuantizeLinear")
"""Operators whose scales, and then floats, may be float16, which ONNX's DequantizeLinear takes later."""
_BLOCKS_AND_PAIRS = ("DequantizeLinear", "GatherBlockQuantized", "QuantizeLinear")
"""Operators that are written with pairs of Q/DQ, whose codes may have other than 8 bits."""
_UNDECLARED = {"LayerNormalization": _NORMS_OPSET, "SimplifiedLayerNormalization": 1 << 31}
"""Operators that onnxruntime puts into ONNX's domain → the first opset in which ONNX has them."""


def declare_contrib_domain(model: onnx.ModelProto) -> onnx.ModelProto:
    """Move operators that only onnxruntime has, but that stand in ONNX's domain, to its own; returns the same model if there are none."""
    opset = standard_opset(model)

    def is_undeclared(node: onnx.NodeProto) -> bool:
        return not standard_domain(node.domain) and _UNDECLARED.get(node.op_type, 0) > opset

    if not any(map(is_undeclared, walk(model.graph.node))):
        return model
    changed = copy_of(model)
    for node in filter(is_undeclared, walk(changed.graph.node)):
        node.domain = CONTRIB
    _import(changed)
    return changed


def needed_opset(model: onnx.ModelProto) -> int:
    """The oldest opset in which a model's operators of the table can be written with others; 0 where it has none."""
    types = {node.op_type for node in walk(model.graph.node) if _key(node) in BODIES}
    if not types:
        return 0
    pairs = CONTRIB in {node.domain for node in walk(model.graph.node) if node.op_type in _BLOCKS_AND_PAIRS}
    half = _HALF_SCALES_OPSET if types.intersection(_FLOATS_OF_CODES) and _has_half(model) else 0
    wide = _PAIRS_OPSET if pairs and _has_wide_codes(model) else 0
    return max(_OPSET, half, wide, *(_LATER.get(name, 0) for name in types))


def write_functions(model: onnx.ModelProto, table: Table = BODIES) -> onnx.ModelProto:
    """Replace each operator of a table by ONNX's own, in the main graph and in subgraphs.

    What stays as it is: (1) operators that are not in the table; (2) forms that their function body does not compute; (3) nodes of
    whose inputs too little is known; (4) all, where the model has an older opset than function bodies need.

    Args:
        model: A normalized model; it is not changed.
        table: Domain and operator → a function of a node that gives ONNX text.

    Returns:
        A new model, or this very one where there is nothing to write.

    Raises:
        ModelError: a node lacks an input or attribute that its operator needs, or has others than its operator takes.
    """
    if all(_key(node) not in table for node in walk(model.graph.node)) or needed_opset(model) > standard_opset(model):
        return model
    written = copy_of(model)
    while _write_known(written.graph, infer(without_data(written)).graph, {}, table, standard_opset(model)):
        pass  # what was written says the types of what comes behind it
    used = {node.domain for node in walk(written.graph.node)}
    keep_items(written.opset_import, lambda item: item.domain not in _WRITTEN - used)
    return validated(written, large=False)


def known_nodes(model: onnx.ModelProto) -> Iterator[ContribNode]:
    """The nodes of a normalized model, those in branches and bodies of loops too, with the types that shape inference finds."""
    yield from _nodes_with_types(infer(without_data(model)).graph, {})


def _nodes_with_types(graph: onnx.GraphProto, around: Mapping[str, onnx.TypeProto]) -> Iterator[ContribNode]:
    types = {**around, **{name: info.type for name, info in tensors_of(graph).items()}}
    for node in graph.node:
        yield ContribNode(node, types)
        for body in subgraphs(node):
            yield from _nodes_with_types(body, types)


def check_node(node: ContribNode, table: Table) -> None:
    """Require what a node's function body needs, without writing it."""
    with suppress(NotWritableError, UnknownTypeError), _as_model_error(node.node):
        table[_key(node.node)](node)


def _write_known(
    graph: onnx.GraphProto, inferred: onnx.GraphProto, around: Mapping[str, onnx.TypeProto], table: Table, opset: int
) -> bool:
    """Write the nodes of whose inputs enough is known, in a graph and in those inside it; whether there were any."""
    types = {**around, **{name: info.type for name, info in tensors_of(inferred).items()}}
    nodes, changed = list["onnx.NodeProto"](), False
    for node, twin in zip(graph.node, inferred.node, strict=True):
        for body, seen in zip(subgraphs(node), subgraphs(twin), strict=True):
            changed |= _write_known(body, seen, types, table, opset)
        body_nodes = _replacement(node, types, table, opset) if _key(node) in table else None
        nodes += [node] if body_nodes is None else body_nodes
        changed |= body_nodes is not None
    if changed:
        set_items(graph.node, nodes)
    return changed


def _replacement(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], table: Table, opset: int
) -> list[onnx.NodeProto] | None:
    """The nodes that compute what a node does; None if they are not known, or not yet, or if it has no outputs."""
    if not any(node.output):
        return None
    contrib = ContribNode(node, types)
    with _as_model_error(node):
        try:
            function = _parse_function(node, table[_key(node)](contrib), opset)
            contrib.check_reads(name for item in function.node for name in item.input)
        except UnknownTypeError as error:
            _log.debug("%s stays %s: the type or dims of %s are not known", node_name(node), node.op_type, error)
            return None
        except NotWritableError as error:
            _log.info("%s stays %s: %s", node_name(node), node.op_type, error)
            return None
    prefix = node.name or node.output[0]
    names = {"": ""} | dict(zip((*function.input, *function.output), (*node.input, *node.output), strict=True))
    for item in function.node:
        item.name = f"{prefix}/{item.output[0]}"
        item.input[:] = [names.get(name, f"{prefix}/{name}") for name in item.input]
        item.output[:] = [names.get(name, f"{prefix}/{name}") for name in item.output]
    return list(function.node)


@contextmanager
def _as_model_error(node: onnx.NodeProto) -> Iterator[None]:
    """Raise an error of a function body, or of the parser, as a `ModelError` with the node's name."""
    try:
        yield
    except (NotWritableError, PytrtpluginsError, UnknownTypeError):
        raise
    except MalformedError as error:
        raise ModelError(
            f"{node_text(node)} {error}, which {node.op_type} needs.\nDo: export the model again", node=node.name
        ) from None
    except Exception as error:  # bodies, and the parser, trust that a node is as its operator says
        raise ModelError(
            f"{node_text(node)} cannot be written with ONNX's operators: its inputs, their dims and types, or its attributes are not "
            f"those that {node.op_type} takes ({type(error).__name__}: {error}).\nDo: export the model again",
            node=node.name,
        ) from error


def _parse_function(node: onnx.NodeProto, body: str, opset: int) -> onnx.FunctionProto:
    """Parse the text of a function body, with as many inputs and outputs as a node."""
    inputs, outputs = (
        ", ".join(f"{letter}{index}" for index in range(len(names)))
        for letter, names in (("x", node.input), ("y", node.output))
    )
    head = f'<domain: "{CONTRIB}", opset_import: ["": {opset}]> {node.op_type} ({inputs}) => ({outputs})'
    parser = require("onnx.parser", extra="onnx", package="onnx")
    return parser.parse_function(f"{head} {{ {body} }}")  # type: ignore[no-any-return]


def _key(node: onnx.NodeProto) -> tuple[str, str]:
    return standard_domain(node.domain), node.op_type


def _has_wide_codes(model: onnx.ModelProto) -> bool:
    """Whether there are codes of other than 8 bits among the initializers."""
    kinds = onnx.TensorProto
    wide = {kinds.UINT16, kinds.INT16, kinds.UINT4, kinds.INT4}
    return any(tensor.data_type in wide for tensor in model.graph.initializer)


def _has_half(model: onnx.ModelProto) -> bool:
    """Whether an initializer, an input or an output is float16."""
    half = onnx.TensorProto.FLOAT16
    infos = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    return any(tensor.data_type == half for tensor in model.graph.initializer) or any(
        info.type.tensor_type.elem_type == half for info in infos
    )


def _import(model: onnx.ModelProto) -> None:
    if all(item.domain != CONTRIB for item in model.opset_import):
        model.opset_import.add(domain=CONTRIB, version=1)
