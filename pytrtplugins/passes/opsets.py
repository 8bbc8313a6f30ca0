"""Convert a model to a newer opset: its main graph with ONNX's converter, and subgraphs as separate models."""

from __future__ import annotations

import logging
from collections.abc import Collection

from ..errors import ModelError
from ..model.ir import unused_name
from ..model.proto import copy_of, infos_of, node_name, tensors_of, with_data, without_data
from ..plugin.onnx_node import is_plugin_node
from ..utils.optional import onnx, require
from ..utils.repeated import keep_items, set_items
from ..validation import validated
from ..validation.broadcasting import BROADCAST_SLOPES
from ..validation.dataflow import outer_scope_reads, rename_reads, subgraphs, tensors_read, walk, walk_graphs
from ..validation.operators import standard_domain, standard_opset
from .old_forms import hide_from_converter, infer_or_keep, restore_meanings, rewrite_old_forms

__all__ = ["OLDEST", "convert_or_keep"]

OLDEST = 13
"""The opset from which on axes are inputs, and Q/DQ has an axis."""
_log = logging.getLogger(__name__)
_FEATURE = "working on ONNX models"
_FIRST_IR = 4  # the first version in which weights need not be inputs
_BODIES = "pytrtplugins.bodies"  # domain of the nodes that stand for those with graphs inside while the converter runs
_SCAN_AXES = 9  # the opset from which on Scan has no axis of batches


class _UnconvertibleError(Exception):
    """A node cannot be converted; the message says why."""

    def __init__(self, node: onnx.NodeProto, reason: str) -> None:
        super().__init__(reason)
        self.node, self.reason = node, reason


def convert_or_keep(model: onnx.ModelProto, opset: int = OLDEST, needed: bool = False) -> onnx.ModelProto:
    """The model in a newer opset, or unchanged, with a log message, if it cannot be converted.

    Args:
        model: The model; it is not changed.
        opset: The opset.
        needed: Whether a model that cannot be converted is an error.

    Raises:
        ModelError: it is needed, or the model has plugins, and it cannot be converted; or a node of the main graph has no equal in
            newer opsets.
    """
    names = {name for graph in (model.graph, *walk_graphs(model.graph.node)) for name in tensors_of(graph)}
    names.update(name for node in walk(model.graph.node) for name in (*node.input, *node.output))
    try:
        newer_model = _convert(model, opset, names)
    except _UnconvertibleError as error:
        return _as_it_is(model, error.node, error.reason, opset, needed)
    _log.info("the model has opset %d; it was converted to opset %d", standard_opset(model), opset)
    return newer_model


def _convert(model: onnx.ModelProto, opset: int, used_names: set[str]) -> onnx.ModelProto:
    """A converted copy; ``used_names``: all names of the whole model, to which new ones are added."""
    converter = require("onnx.version_converter", extra="onnx", feature=_FEATURE)
    old_opset, light = standard_opset(model), without_data(model)
    light.ir_version = max(light.ir_version, _FIRST_IR)  # else weights that are no inputs are unknown to the converter
    outer = _convert_bodies(light, model, opset, used_names)
    ranks, odd = _slopes(light, model) if old_opset < BROADCAST_SLOPES else ({}, None)
    if odd is not None:
        raise _UnconvertibleError(odd, "its slopes, which lie along the channels there, cannot be reshaped")
    _reshape_slopes(light, ranks)
    if old_opset < OLDEST:
        rewrite_old_forms(light)
    before = copy_of(light)
    hide_from_converter(light)
    try:
        newer_model = (
            _newer_import(light, opset) if _is_unchanged(light, opset) else converter.convert_version(light, opset)
        )
    except Exception as error:  # the C++ side raises types of its own
        raise _UnconvertibleError(_unconvertible(light, opset), " ".join(str(error).split())[:300]) from error
    restore_meanings(newer_model, before)
    _restore_bodies(newer_model, outer)
    _name_new(newer_model.graph, before.graph)
    _rename_new(
        newer_model.graph,
        {*tensors_of(before.graph), *(name for node in before.graph.node for name in node.output)},
        used_names,
    )
    newer_model.functions.extend(model.functions)
    del newer_model.graph.value_info[:]  # the converter gives free dims names of its own
    set_items(newer_model.graph.output, model.graph.output)
    newer_model = with_data(newer_model, model)
    _reshape_slopes(newer_model, ranks)
    return validated(newer_model, large=False)


def _is_unchanged(model: onnx.ModelProto, opset: int) -> bool:
    """Whether each operator of the main graph has the same version in both opsets; ONNX's converter takes 5 ms for any model."""
    defs, old_opset = onnx.defs, standard_opset(model)
    types = {node.op_type for node in model.graph.node if not standard_domain(node.domain)}
    try:
        versions = [[defs.get_schema(name, limit).since_version for limit in (old_opset, opset)] for name in types]
    except defs.SchemaError:  # ONNX does not have it
        return False
    return all(old == new for old, new in versions)


def _newer_import(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """A copy of a model that imports a newer version of ONNX's operators; without functions, as ONNX's converter gives it."""
    newer_model = copy_of(model)
    del newer_model.functions[:]
    for item in newer_model.opset_import:
        if not standard_domain(item.domain):
            item.version = opset
    return newer_model


def _reshape_slopes(model: onnx.ModelProto, ranks: dict[str, int]) -> None:
    """Reshape slopes along the channels to have a dim of 1 for each axis after these; large ones become inputs without data."""
    for tensor in model.graph.initializer:
        if tensor.name in ranks and len(tensor.dims) == 1:
            tensor.dims.extend([1] * (ranks[tensor.name] - 2))
    for info in model.graph.input:
        if info.name in ranks:
            for _ in range(ranks[info.name] - 2):
                info.type.tensor_type.shape.dim.add(dim_value=1)


def _convert_bodies(
    light: onnx.ModelProto, model: onnx.ModelProto, opset: int, used_names: set[str]
) -> list[onnx.NodeProto]:
    """Convert the subgraphs of a model; placeholder nodes without subgraphs replace their nodes in it."""
    inner = [index for index, node in enumerate(light.graph.node) if subgraphs(node)]
    if not inner:
        return []
    infos = infos_of(infer_or_keep(light).graph)
    weights = {tensor.name: tensor for tensor in light.graph.initializer}
    outer: list[onnx.NodeProto] = []
    for index in inner:
        node = copy_of(light.graph.node[index])
        if node.op_type == "Scan" and not standard_domain(node.domain) and standard_opset(model) < _SCAN_AXES:
            raise _UnconvertibleError(node, f"a Scan before opset {_SCAN_AXES} has an axis of batches")
        for body in subgraphs(node):
            try:
                body.CopyFrom(_convert_body(body, light, infos, weights, opset, used_names))
            except ModelError as error:
                raise _UnconvertibleError(node, str(error)) from error
        outer.append(node)
        stand_in = type(node)(op_type=node.op_type, domain=_BODIES, name=node.name, output=node.output)
        stand_in.input.extend(_all_reads(node))
        light.graph.node[index].CopyFrom(stand_in)
        declared_names = {info.name for info in (*light.graph.value_info, *light.graph.output)}
        light.graph.value_info.extend(
            infos[name] for name in node.output if name in infos and name not in declared_names
        )
    light.opset_import.add(domain=_BODIES, version=1)
    return outer


def _convert_body(
    body: onnx.GraphProto,
    model: onnx.ModelProto,
    infos: dict[str, onnx.ValueInfoProto],
    weights: dict[str, onnx.TensorProto],
    opset: int,
    used_names: set[str],
) -> onnx.GraphProto:
    """A subgraph in a newer opset; the outer tensors that it reads are inputs and constants during the conversion."""
    outside = sorted(outer_scope_reads(body))
    part = type(model)(ir_version=max(model.ir_version, _FIRST_IR), opset_import=model.opset_import, graph=body)
    part.graph.input.extend(infos.get(name, onnx.ValueInfoProto(name=name)) for name in outside if name not in weights)
    part.graph.initializer.extend(weights[name] for name in outside if name in weights)
    newer_graph = _convert(part, opset, used_names).graph
    changed = [item.name for item in newer_graph.initializer if item.name in weights and item != weights[item.name]]
    if changed:
        raise ModelError(f"it would need other values of {changed[0]!r}, which lies around it")
    for field in (newer_graph.input, newer_graph.initializer):
        keep_items(field, lambda item: item.name not in outside)
    newer_graph.value_info.extend(body.value_info)
    return newer_graph


def _all_reads(node: onnx.NodeProto) -> list[str]:
    """A node's inputs, and the outer tensors that its subgraphs read."""
    return [*node.input, *sorted(tensors_read(node) - {*node.input})]


def _restore_bodies(newer_model: onnx.ModelProto, outer: list[onnx.NodeProto]) -> None:
    """Replace the placeholders by the converted nodes, which come in the same order."""
    waiting = iter(outer)
    for node in newer_model.graph.node:
        if node.domain == _BODIES:
            original = next(waiting)
            for old, new in zip(_all_reads(original), node.input, strict=True):
                if old != new:
                    rename_reads(original, old, new)
            set_items(original.output, node.output)
            node.CopyFrom(original)
    keep_items(newer_model.opset_import, lambda item: item.domain != _BODIES)


def _rename_new(graph: onnx.GraphProto, old: Collection[str], used_names: set[str]) -> None:
    """Rename tensors that a conversion added so that their names are unique in the whole model."""
    added = [item.name for item in graph.initializer] + [name for node in graph.node for name in node.output if name]
    names: dict[str, str] = {}
    for name in added:
        if name not in old:
            names[name] = unused_name(name, used_names)
    for name, new in names.items():
        if name == new:
            continue
        for node in graph.node:
            rename_reads(node, name, new)
            node.output[:] = [new if item == name else item for item in node.output]
        for item in (*graph.initializer, *graph.output):
            item.name = new if item.name == name else item.name


def _name_new(graph: onnx.GraphProto, before: onnx.GraphProto) -> None:
    """Name the nodes that a conversion added after the node whose output they lead to: ``name/Flatten``."""
    old = {node.name for node in before.node}
    of_outputs = {name: node_name(node) for node in before.node for name in node.output if name}
    leads_to = dict[str, str]()
    for node in reversed(graph.node):
        names = [source for name in node.output if (source := of_outputs.get(name) or leads_to.get(name))]
        if not names:
            continue
        leads_to.update(dict.fromkeys(filter(None, node.input), names[0]))
        if node.name not in old or (not node.name and of_outputs.keys().isdisjoint(node.output)):
            node.name = f"{names[0]}/{node.op_type}"


def _slopes(light: onnx.ModelProto, model: onnx.ModelProto) -> tuple[dict[str, int], onnx.NodeProto | None]:
    """Slopes of PRelu, which lie along the channels before opset 7, and must be reshaped to from there on; ONNX's converter does not.

    Args:
        light: The model without large weights, and with other nodes for those that have graphs inside.
        model: The model.

    Returns:
        The name of each that has a number for each channel → the rank of what it multiplies. And a node whose slopes cannot
        be reshaped: they are computed, what they multiply has no known rank, or others read them too.
    """
    graph = infer_or_keep(light).graph
    shapes = {info.name: info.type.tensor_type.shape for info in (*graph.input, *graph.value_info)}
    dims = {tensor.name: [*tensor.dims] for tensor in model.graph.initializer}
    others = {name for node in light.graph.node if node.op_type != "PRelu" for name in node.input}
    ranks: dict[str, int] = {}
    for node in light.graph.node:
        if node.op_type != "PRelu" or dims.get(node.input[1]) == [1]:
            continue
        x, slope = node.input
        rank = len(shapes[x].dim) if x in shapes else 0
        if slope not in dims or not rank or slope in others or ranks.setdefault(slope, rank) != rank:
            return {}, node
    return {slope: rank for slope, rank in ranks.items() if len(dims[slope]) == 1}, None


def _as_it_is(model: onnx.ModelProto, node: onnx.NodeProto, reason: str, opset: int, needed: bool) -> onnx.ModelProto:
    text = (
        f"the model has opset {standard_opset(model)}, and node {node_name(node)!r} ({node.op_type}) cannot be converted to "
        f"opset {opset}: {reason}"
    )
    if needed or any(is_plugin_node(item) for item in walk(model.graph.node)):
        raise ModelError(f"{text}.\nDo: export the model with opset {opset} or newer", node=node.name)
    _log.warning("%s; it stays as it is", text)
    return model


def _unconvertible(model: onnx.ModelProto, opset: int) -> onnx.NodeProto:
    """The first node that cannot be converted by itself."""
    infos = infos_of(infer_or_keep(model).graph)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        part = type(model)(ir_version=model.ir_version, opset_import=model.opset_import)
        part.graph.name = "part"
        part.graph.node.append(node)
        part.graph.initializer.extend(constants[name] for name in node.input if name in constants)
        read = dict.fromkeys(name for name in node.input if name not in constants)
        for values, names in ((part.graph.input, read), (part.graph.output, node.output)):
            values.extend(infos.get(name, onnx.ValueInfoProto(name=name)) for name in names if name)
        try:
            onnx.version_converter.convert_version(part, opset)
        except Exception:  # the C++ side raises types of its own
            return node  # type: ignore[no-any-return]
    return model.graph.node[0]  # type: ignore[no-any-return]
