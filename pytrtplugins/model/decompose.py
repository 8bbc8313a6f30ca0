"""Replace plugins by standard ONNX operators: as local functions, or inlined into the graph."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import NamedTuple

from ..errors import DimsError, ModelError
from ..plugin.base import Plugin
from ..plugin.onnx_node import from_node, is_plugin_node
from ..tensor import Dims, DType, is_concrete
from ..utils.optional import onnx, require
from ..utils.repeated import keep_items, set_items
from ..validation import check_sizes, infer, validated
from ..validation.dataflow import subgraphs, walk, walk_graphs
from ..validation.operators import standard_opset
from .op_builder import FLOATS, OpBuilder, Value
from .proto import copy_of, has_shape, info_dims, numpy_type, tensors_of, without_data

__all__ = [
    "add_functions",
    "add_shapes",
    "check_claims",
    "infer_shapes",
    "inferred_infos",
    "inline_plugins",
    "known_to_be_sound",
]

_FEATURE = "working on ONNX models"
_KINDS = {1: DType.FLOAT32, 10: DType.FLOAT16, 16: DType.BFLOAT16}  # of onnx.TensorProto
_OPSET = 18
"""Of the operators that decompositions bring into a model without any of ONNX's own."""
_log = logging.getLogger(__name__)
_sound: ContextVar[tuple[onnx.ModelProto, ...]] = ContextVar("sound", default=())


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Add the dims and types of all tensors: ONNX's rules for its operators, `output_dims` for plugins.

    Args:
        model: Any model; it is not changed.

    Returns:
        A new model with complete ``value_info``, and dims on its outputs.

    Raises:
        ModelError: shapes contradict each other.
        DimsError: a plugin refuses the dims of its inputs.
        RegistryError: a plugin is not registered.
    """
    return add_shapes(copy_of(validated(model, large=False)))


def add_shapes(full: onnx.ModelProto) -> onnx.ModelProto:
    """Do what `infer_shapes` does, in place, for a model that was validated already; return it."""
    light, known = _infer_light(full)
    outputs = {info.name for info in full.graph.output}
    produced = {name for node in full.graph.node for name in node.output}
    inner = (info for name, info in known.items() if name in produced and name not in outputs)
    set_items(full.graph.value_info, inner)
    for info in full.graph.output:
        if has_shape(known, info.name) or (info.name in known and info.type.WhichOneof("value") is None):
            info.type.CopyFrom(known[info.name].type)
    for body, seen in zip(walk_graphs(full.graph.node), walk_graphs(light.graph.node), strict=True):
        set_items(body.value_info, seen.value_info)
    return full


def inferred_infos(light: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Return the inferred `ValueInfoProto` of each tensor of the main graph of a model without large weights, by name."""
    return _infer_plugins(light, light)[1]


def check_claims(model: onnx.ModelProto, weights_location: str | None = None) -> onnx.ModelProto:
    """Require a valid model whose tensors fit into memory; see `pytrtplugins.validation`.

    Args:
        model: The model; it is not changed.
        weights_location: Location that stands in the place of weights which were left out on purpose.

    Returns:
        The model; sorted, where its nodes were not in order.
    """
    if _is_complete(model):
        return model
    is_derived = any(model is sound for sound in _sound.get())
    model = validated(model, weights_location=weights_location, large=not is_derived)
    if not is_derived:
        _infer_light(model)
    return model


@contextlib.contextmanager
def known_to_be_sound(model: onnx.ModelProto, *derived: onnx.ModelProto) -> Iterator[None]:
    """Within the block, in this thread, skip validation and inference of this very model, which `add_shapes` returned.

    Args:
        model: The model.
        derived: Models that passes made of it, such as its quantized form: inference of these is skipped where it would only check them.
    """
    token = _sound.set((model, *derived))
    try:
        yield
    finally:
        _sound.reset(token)


def _is_complete(model: onnx.ModelProto) -> bool:
    """Whether a model is known to be sound, and to have the dims and types of all tensors."""
    return any(model is sound for sound in _sound.get()[:1])


def inline_plugins(
    model: onnx.ModelProto,
    only: Iterable[str] | None = None,
    chosen: Callable[[type[Plugin]], bool] = lambda cls: True,
) -> onnx.ModelProto:
    """Write each plugin's decomposition in its place.

    Plugins without one stay, and so do those that need to know dims which are symbolic.

    Args:
        model: Any model; it is not changed. Local functions of the plugins are dropped when nothing uses them any more.
        only: Names of the nodes to inline, which then must be possible; by default all that can be.
        chosen: Whether to inline nodes of a class.

    Returns:
        A new model with the same inputs, outputs and tensor names. It has no plugin domain if no plugin is left.
    """
    names = None if only is None else set(only)
    if not any(is_plugin_node(node) for node in walk(model.graph.node)):
        return copy_of(model)
    full = copy_of(model) if _is_complete(model) else infer_shapes(model)
    _inline(full.graph, {}, names, chosen, set())
    _drop_unused_functions(full)
    _drop_unused_domains(full)
    if not standard_opset(full) and any(not node.domain for node in walk(full.graph.node)):
        full.opset_import.add(domain="", version=_OPSET)
    return validated(full, large=False)


def _inline(
    graph: onnx.GraphProto,
    outer_tensors: Mapping[str, _TensorType],
    names: set[str] | None,
    chosen: Callable[[type[Plugin]], bool],
    prefixes: set[str],
) -> None:
    """Inline decompositions in a graph and its subgraphs; ``around``: the tensors of outer scopes."""
    known = {**outer_tensors, **_tensor_types(graph)}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for body in subgraphs(node):
            _inline(body, known, names, chosen, prefixes)
        plugin = from_node(node) if is_plugin_node(node) and (names is None or node.name in names) else None
        if plugin is None or not plugin.has_decomposition() or not chosen(type(plugin)):
            nodes.append(node)
            continue
        prefix = node.name if node.name and node.name not in prefixes else node.output[0]
        prefixes.add(prefix)
        if any(name not in known for name in node.input):
            _log.info("node %s stays a plugin, since the dims of its inputs are not known", prefix)
            nodes.append(node)
            continue
        body_nodes = _decompose_node(
            plugin, node, [known[name] for name in node.input], prefix, required=names is not None
        )
        nodes.extend([node] if body_nodes is None else body_nodes)
    set_items(graph.node, nodes)


def add_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give each plugin node with a decomposition a local function, so that onnxruntime runs the file as it is.

    The node stays the plugin's, with ``plugin_namespace`` and ``plugin_version``, so that TensorRT and this package still
    find the plugin. Nodes of one type with other attributes or shapes get an overload each; onnxruntime 1.31 knows
    overloads, 1.23 runs the first body for all of them, so there `inline_plugins` is the way.

    Args:
        model: Any model; it is not changed.

    Returns:
        A new model.
    """
    full = infer_shapes(model)
    tensors = _tensor_types(full.graph)
    opset = [onnx.helper.make_opsetid("", standard_opset(full) or _OPSET)]
    overloads: dict[tuple[str, str], dict[bytes, str]] = {}
    for node in full.graph.node:
        plugin = from_node(node) if is_plugin_node(node) else None
        if plugin is None or not plugin.has_decomposition():
            continue
        inputs = [f"x{index}" for index in range(len(node.input))]
        outputs = [f"y{index}" for index in range(len(node.output))]
        template = onnx.helper.make_node(node.op_type, inputs, outputs)
        body = _decompose_node(plugin, template, [tensors[name] for name in node.input], node.op_type)
        if body is None:
            continue
        attributes = sorted(attribute.name for attribute in node.attribute)
        function = onnx.helper.make_function(node.domain, node.op_type, inputs, outputs, body, opset, attributes)
        overload_of = overloads.setdefault((node.domain, node.op_type), {})
        data = function.SerializeToString(deterministic=True)
        if data not in overload_of:
            overload_of[data] = str(len(overload_of)) if overload_of else ""
            function.overload = overload_of[data]
            full.functions.append(function)
        node.overload = overload_of[data]
    full.ir_version = max(full.ir_version, 10)
    return full


def _decompose_node(
    plugin: Plugin, node: onnx.NodeProto, inputs: Sequence[_TensorType], prefix: str, *, required: bool = False
) -> list[onnx.NodeProto] | None:
    """Return the nodes that replace one plugin node, with the same inputs and outputs; None if dims must be known first."""
    op = OpBuilder(prefix, repr(plugin), next((each.dtype for each in inputs if each.dtype in FLOATS), DType.FLOAT32))
    input_values = [Value(name, each.dims) for name, each in zip(node.input, inputs, strict=True)]
    try:
        result = plugin.decompose(op, *input_values)  # type: ignore[attr-defined]
    except DimsError as error:
        if required or all(is_concrete(dim) for each in inputs for dim in each.dims):
            raise
        _log.info("node %s stays a plugin, since its dims are not known yet: %s", prefix, error)
        return None
    values = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(values) != len(node.output):
        raise ModelError(f"{plugin!r}: decompose gave {len(values)} outputs, the node has {len(node.output)}")
    renamed = {value.name: output for value, output in zip(values, node.output, strict=True)}
    written = {name for item in op.nodes for name in item.output}
    if len(renamed) != len(values) or not renamed.keys() <= written:
        # an output that is an input, or the same value twice, needs a node of its own
        values = [op.Identity(value) for value in values]
        renamed = {value.name: output for value, output in zip(values, node.output, strict=True)}
    for item in op.nodes:
        item.input[:] = [renamed.get(name, name) for name in item.input]
        item.output[:] = [renamed.get(name, name) for name in item.output]
    return op.nodes


def _check_plugin_inputs(node: onnx.NodeProto, known: Mapping[str, onnx.ValueInfoProto]) -> None:
    where = f"node {node.name or node.op_type!r}"
    for index, name in enumerate(node.input):
        if not name:
            raise ModelError(
                f"{where}: input {index} is left out; plugins have no optional inputs.\n"
                "Do: give the node a tensor for each input",
                node=node.name,
            )
        kind = known[name].type.WhichOneof("value") if name in known else None
        if kind not in (None, "tensor_type"):
            words = kind.removesuffix("_type").replace("_", " ")
            raise ModelError(
                f"{where}: input {index}, {name!r}, is of the kind {words}; plugins read tensors.\n"
                "Do: take the tensors out of it before the plugin",
                node=node.name,
                tensor=name,
            )


def _set_plugin_outputs(graph: onnx.GraphProto, node: onnx.NodeProto, known: Mapping[str, onnx.ValueInfoProto]) -> None:
    plugin = from_node(node)
    if "" in node.input:
        raise ModelError(f"node {node.name or node.op_type!r}: a plugin's inputs cannot be left out", node=node.name)
    try:
        dims = plugin.all_output_dims([info_dims(known[name]) for name in node.input])
    except DimsError as error:
        raise DimsError(f"node {node.name or node.op_type!r}: {error}", node=node.name, **error.facts) from error
    if len(dims) != len(node.output):
        raise ModelError(f"node {node.name!r}: the plugin has {len(dims)} outputs, the node {len(node.output)}")
    types = [known[name].type.tensor_type.elem_type for name in node.input]
    dtypes = plugin.all_output_dtypes([DType.of(numpy_type(kind)) for kind in types], len(dims))
    outputs = {info.name: info for info in graph.output}
    described = {info.name for info in graph.value_info}
    for name, shape, dtype in zip(node.output, dims, dtypes, strict=True):
        if name in known and has_shape(known, name):
            _check_declared_dims(f"node {node.name or node.op_type!r}", name, shape, info_dims(known[name]))
        kind = onnx.helper.np_dtype_to_tensor_dtype(dtype.numpy)
        info = onnx.helper.make_tensor_value_info(name, kind, [d if isinstance(d, int) else str(d) for d in shape])
        if name in outputs:
            outputs[name].type.CopyFrom(info.type)
        elif name not in described:
            graph.value_info.append(info)


def _check_declared_dims(where: str, name: str, inferred: Dims, declared: Dims) -> None:
    is_different = any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(inferred, declared, strict=False)
    )
    if is_different or len(inferred) != len(declared):
        raise ModelError(
            f"{where}: the model declares {name!r} as ({', '.join(map(str, declared))}), the plugin gives "
            f"({', '.join(map(str, inferred))})",
            expected=declared,
            found=inferred,
        )


def _infer_light(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, onnx.ValueInfoProto]]:
    """Return a copy without large weights and with inferred shapes, and name → `ValueInfoProto` of its main graph."""
    return _infer_plugins(without_data(model), model)


def _infer_plugins(
    light: onnx.ModelProto, model: onnx.ModelProto
) -> tuple[onnx.ModelProto, dict[str, onnx.ValueInfoProto]]:
    """Return ``light``, of which ``model`` has the weights, with inferred shapes, those behind plugins too, and its infos by name."""
    done: set[int] = set()
    while True:
        light = infer(light)
        known = tensors_of(light.graph)
        scopes = list(_plugin_nodes(light.graph, known))
        for _, node, infos in scopes:
            _check_plugin_inputs(node, infos)
        ready = {
            index: scope
            for index, scope in enumerate(scopes)
            if index not in done and all(has_shape(scope[2], name) for name in scope[1].input if name)
        }
        if not ready:
            break
        for graph, node, infos in ready.values():
            _set_plugin_outputs(graph, node, infos)
        done.update(ready)
    check_sizes(model, known, infer)
    if light.functions:
        inlined = require("onnx.inliner", extra="onnx", feature=_FEATURE).inline_local_functions(light)
        inner = infer(inlined)
        check_sizes(inner, tensors_of(inner.graph), infer)
    return light, known


_Scope = tuple["onnx.GraphProto", "onnx.NodeProto", dict[str, "onnx.ValueInfoProto"]]


def _plugin_nodes(graph: onnx.GraphProto, known: dict[str, onnx.ValueInfoProto]) -> Iterator[_Scope]:
    """Yield each plugin node, also of subgraphs, with its graph and the infos of the tensors in scope."""
    for node in graph.node:
        if is_plugin_node(node):
            yield graph, node, known
        for body in subgraphs(node):
            yield from _plugin_nodes(body, known | tensors_of(body))


class _TensorType(NamedTuple):
    """Dims and element type of a tensor."""

    dims: Dims
    dtype: DType | None


def _tensor_types(graph: onnx.GraphProto) -> dict[str, _TensorType]:
    """Return dims and element type of each tensor whose dims are known, by name."""
    infos = tensors_of(graph)
    return {
        name: _TensorType(info_dims(info), _KINDS.get(info.type.tensor_type.elem_type))
        for name, info in infos.items()
        if has_shape(infos, name)
    }


def _drop_unused_functions(model: onnx.ModelProto) -> None:
    pending = [(node.domain, node.op_type) for node in walk(model.graph.node)]
    bodies_of = {(function.domain, function.name): function.node for function in model.functions}
    used: set[tuple[str, str]] = set()
    while pending:
        key = pending.pop()
        if key in bodies_of and key not in used:
            used.add(key)
            pending += [(node.domain, node.op_type) for node in walk(bodies_of[key])]
    keep_items(model.functions, lambda function: (function.domain, function.name) in used)


def _drop_unused_domains(model: onnx.ModelProto) -> None:
    used = {node.domain for node in walk(model.graph.node)} | {function.domain for function in model.functions} | {""}
    keep_items(model.opset_import, lambda item: item.domain in used)
