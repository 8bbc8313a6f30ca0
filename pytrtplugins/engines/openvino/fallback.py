"""Run nodes that OpenVINO computes wrongly or lacks in onnxruntime, inside OpenVINO's graph."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import BuildError, ExecutionError, ModelError
from ...model.declared import infer_without_declared
from ...model.decompose import infer_shapes
from ...model.proto import arrays_of, copy_of, has_shape, info_dims, node_name, numpy_type, tensors_of
from ...plugin.onnx_node import is_plugin_node, node_attributes
from ...tensor import Dims, DType, SymbolicDim
from ...utils.forks import fork_count
from ...utils.optional import onnx
from ...utils.repeated import set_items
from ...utils.signal_stack import keeping_signal_stack
from ...validation.dataflow import computed_from, given_inputs, walk, walk_graphs
from ...validation.operators import node_text, standard_domain, standard_opset
from ...validation.pooling import POOLS
from ..base.failures import as_error, shorten_message
from ..host.ort_session import Submodel, Submodels, make_session
from .bounds import Bounds
from .conditions import has_other_factors
from .core import compiling_core
from .known_errors import KNOWN_ERRORS, KnownError
from .usage import EMPTY, HUGE, INFINITE, LONG, NAN, NEGATIVE, ZERO, Facts, Usage

__all__ = [
    "FALLBACK",
    "HOST",
    "SessionHost",
    "facts_of",
    "replace_by_sessions",
    "unreadable",
    "whole_reason",
    "wrong_nodes",
]

_VALUES = ("value", "value_int", "value_ints", "value_float", "value_floats")
_MOST_AXES = 16  # whole numbers of a constant that may be sizes, or pads of both ends
_HUGE = float(np.finfo(np.float32).max) / 0xFFFF
"""Beyond it, codes of 16 bits times a scale do not all fit into float32."""

_KEPT_AS = {  # by OpenVINO; its other operators would not find the types that they expect
    **dict.fromkeys((DType.BOOL, DType.INT64, DType.INT16, DType.UINT16, DType.UINT32, DType.UINT64), DType.INT32),
    **dict.fromkeys((DType.FLOAT16, DType.FLOAT64), DType.FLOAT32),
}
_log = logging.getLogger(__name__)
FALLBACK = ("pytrtplugins.onnxruntime", "Session")
"""Domain and type of the nodes that stand for sessions."""
HOST = "pytrtplugins_host"
"""The attribute by which a node that OpenVINO reads says what computes it."""
_refusals: dict[bytes, str] = {}
"""Why OpenVINO cannot compute a node by itself, by the digest of its `_key`; empty where it can. Each takes OpenVINO 20 ms or more."""


class SessionHost:
    """Runs one node in an onnxruntime session, which threads share.

    Attributes:
        operators: The operators in OpenVINO's graphs that it computes.
        unranked: An output of which not even the number of axes is known, as OpenVINO wants it; empty where there is none.
    """

    def __init__(self, submodel: Submodel, threads: int) -> None:
        strange = [
            info.name
            for info in (*submodel.model.graph.input, *submodel.model.graph.output)
            if numpy_type(info.type.tensor_type.elem_type).kind == "V"  # bfloat16, float8, and less than 8 bits
        ]
        if strange:
            raise ModelError(f"OpenVINO hands over no array of the element type that {strange[0]!r} has")
        self.operators: list[Any] = []
        self._forks = fork_count()
        self._session: Any = make_session(submodel.model, threads, {"session.force_spinning_stop": "1"})
        self._inputs = [(info.name, numpy_type(info.type.tensor_type.elem_type)) for info in submodel.model.graph.input]
        certain = all(
            node.op_type not in POOLS for node in submodel.model.graph.node
        )  # ONNX infers too large outputs for some
        self._outputs = [_dims_and_type(info, certain) for info in submodel.model.graph.output]
        self._names = list(submodel.outputs)
        self._nodes = ", ".join(map(node_text, submodel.model.graph.node))
        self.unranked = next(
            (name for name, (dims, _) in zip(submodel.outputs, self._outputs, strict=True) if dims is None), ""
        )
        self.dtypes = [dtype for _, dtype in self._outputs]

    def described(self, dims: Sequence[Dims], dtypes: Sequence[DType]) -> list[tuple[Dims | None, DType]]:
        """Dims (None if the rank is unknown) and type of each output, in types that OpenVINO computes in."""
        return [(shape, _KEPT_AS.get(dtype, dtype)) for shape, dtype in self._outputs]

    def enqueue(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Run on OpenVINO's tensors, which may store integers in 32 bits and half floats in float32: types come from the model.

        Raises:
            ExecutionError: onnxruntime fails in the run; it names the node.
        """
        feeds = {
            name: np.asarray(tensor.data).astype(dtype, copy=False)
            for (name, dtype), tensor in zip(self._inputs, inputs, strict=True)
        }
        with as_error(self._nodes, "cpu", ExecutionError):
            values = self._session.run(self._names, feeds)
        for tensor, value in zip(outputs, values, strict=True):
            if tuple(tensor.shape) != value.shape:
                tensor.shape = value.shape
            if value.size:
                tensor.data[...] = value

    def close(self) -> None:
        """Free the session and its threads, but in a forked child, which has none to wait for."""
        if self._forks == fork_count():
            self._session = None


def whole_reason(model: onnx.ModelProto) -> str:
    """Why OpenVINO cannot even pass on what nodes of a model compute; empty where it can."""
    facts = facts_of(model)
    rows = [row for row in KNOWN_ERRORS if row.whole]
    return next(filter(None, (_reason(Usage(node, facts), rows) for node in walk(model.graph.node))), "")


def wrong_nodes(model: onnx.ModelProto) -> tuple[dict[int, str], dict[str, int]]:
    """Nodes that OpenVINO is known to compute wrongly.

    Returns:
        Index of each such node, and why; those that hold one are run by onnxruntime whole. And inputs of the model that are indices of
        a Gather, with the size of the (smallest) axis that they must lie in.
    """
    # what is computed of tensors without elements may have none either
    without_elements = any(0 in tensor.dims for tensor in model.graph.initializer)
    facts, reasons = facts_of(infer_shapes(model) if without_elements else model), dict[int, str]()
    for index, node in enumerate(model.graph.node):
        reason = next(filter(None, (_reason(Usage(item, facts)) for item in walk([node]))), "")
        if reason:
            reasons[index] = reason
    return reasons, _limits(facts.lookups)


def _reason(usage: Usage, rows: Sequence[KnownError] = KNOWN_ERRORS) -> str:
    """Why a node is not left to OpenVINO; empty when it is."""
    if standard_domain(usage.node.domain):
        return ""
    if usage.node.op_type == "LayerNormalization" and has_other_factors(usage):  # seen with its kernels for AVX2 alone
        return "OpenVINO does not compare the factors of a LayerNormalization with free axes"
    for row in rows:
        try:
            applies = (not row.operators or usage.node.op_type in row.operators) and row.applies(usage)
        except (ArithmeticError, LookupError, TypeError, ValueError):  # conditions trust the number of axes
            return f"operands of {usage.node.op_type} have another number of axes than it takes"
        if applies:
            return " ".join(filter(None, (f"OpenVINO is wrong for {usage.node.op_type}", row.where))) + f": {row.what}"
    return ""


def facts_of(model: onnx.ModelProto) -> Facts:
    """Facts about a model's tensors, for the conditions of `KNOWN_ERRORS`."""
    types: dict[str, onnx.TypeProto] = {}
    weights, readers = set[str](), dict[str, set[str]]()
    nodes = list(walk(model.graph.node))
    for graph in (model.graph, *walk_graphs(model.graph.node)):
        types.update((name, info.type) for name, info in tensors_of(graph).items())
        weights.update(item.name for item in graph.initializer)
        for info in graph.output:
            readers.setdefault(info.name, set()).add("")
        for node in graph.node:
            for name in node.input:
                readers.setdefault(name, set()).add(node.op_type)
    constants = computed_from(weights, nodes, ("Constant",))
    sizes = computed_from(constants, nodes, ("Shape", "Size"))
    exact = computed_from(constants, (node for node in nodes if node.op_type != "DequantizeLinear"), ("Shape", "Size"))
    peculiar, integers = dict[str, str](), dict[str, npt.NDArray[Any]]()
    for name, array in _constant_arrays(model):
        if text := _peculiarity(array):
            peculiar[name] = text
        if array.dtype in (np.int32, np.int64):
            integers[name] = array
    ranges = {name: (int(array.min()), int(array.max())) for name, array in integers.items() if array.size}
    lookups = _lookups(model, types)
    bounds = Bounds(model, types, integers, _limits(lookups))
    return Facts(types, constants, peculiar, ranges, sizes, exact, readers, standard_opset(model), lookups, bounds)


def _lookups(model: onnx.ModelProto, types: Mapping[str, onnx.TypeProto]) -> dict[str, tuple[str, int]]:
    input_names, lookups = {info.name for info in given_inputs(model.graph)}, dict[str, tuple[str, int]]()
    for node in model.graph.node:
        if node.op_type == "Gather" and not standard_domain(node.domain) and node.input[1] in input_names:
            dims = types[node.input[0]].tensor_type.shape.dim if node.input[0] in types else ()
            axis = node_attributes(node).get("axis", 0)
            if -len(dims) <= axis < len(dims) and dims[axis].HasField("dim_value"):
                lookups[node.output[0]] = node.input[1], dims[axis].dim_value
    return lookups


def _limits(lookups: Mapping[str, tuple[str, int]]) -> dict[str, int]:
    limits: dict[str, int] = {}
    for name, size in lookups.values():
        limits[name] = min(size, limits.get(name, size))
    return limits


def _constant_arrays(model: onnx.ModelProto) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    for graph in (model.graph, *walk_graphs(model.graph.node)):
        yield from arrays_of(graph.initializer).items()
        for node in graph.node:
            if node.op_type in ("Constant", "ConstantOfShape"):
                attributes = node_attributes(node)
                value = next((attributes[name] for name in _VALUES if name in attributes), None)
                if value is not None:
                    yield node.output[0], np.asarray(value)


def _peculiarity(array: npt.NDArray[Any]) -> str:
    """The property of a constant's values that matters for OpenVINO; empty if there is none."""
    if not array.size:
        return EMPTY
    if array.dtype.kind == "f":
        total = array.sum(dtype=np.float64 if array.dtype == np.float16 else None)
        if np.isfinite(total):
            return HUGE if total > _HUGE and array.max() > _HUGE else ""
        return NAN if np.isnan(array).any() else INFINITE if np.isinf(array).any() else ""
    if array.dtype != np.int64:
        return ""
    if array.min() < -(2**31) or array.max() >= 2**31:
        return LONG
    few = array.size <= _MOST_AXES
    return NEGATIVE if few and (array < 0).any() else ZERO if few and (array == 0).any() else ""


def unreadable(model: onnx.ModelProto, known_errors: Mapping[int, str]) -> dict[int, str]:
    """Index of each node that OpenVINO cannot compile by itself, beyond those that are known; and why."""
    core, typed = compiling_core(), infer_shapes(model)
    submodels, refused = Submodels(typed), {}
    for index, node in enumerate(typed.graph.node):
        if index in known_errors or any(is_plugin_node(item) for item in walk([node])):
            continue
        try:
            submodel = submodels.extract([node]).model
        except KeyError:  # of a tensor whose type is not known
            continue
        key = sha256(_key(submodel)).digest()
        if key not in _refusals:
            _refusals[key] = _refusal(core, submodel)
        if _refusals[key]:
            refused[index] = _refusals[key]
    return refused


def replace_by_sessions(
    model: onnx.ModelProto, reasons: Mapping[int, str], threads: int
) -> tuple[onnx.ModelProto, dict[str, SessionHost]]:
    """Replace each node with a reason, given by index, by a custom operator that runs it in a session.

    Returns:
        A new model, and the host of each session by the value of the attribute `HOST`.

    Raises:
        BuildError: onnxruntime cannot run one of the nodes either.
    """
    typed, hosts = infer_without_declared(model), dict[str, SessionHost]()
    nodes, submodels = list(typed.graph.node), Submodels(typed)
    for index, reason in reasons.items():
        node = nodes[index]
        try:
            submodel = submodels.extract([typed.graph.node[index]])
            hosts[f"session {index}"] = SessionHost(submodel, threads)
        except Exception as error:  # onnxruntime raises types of its own
            raise BuildError(
                f"engine 'cpu': node {node_name(node)!r} ({node.op_type}): {reason}; and onnxruntime cannot run it: "
                f"{shorten_message(error)}\nDo: write it as a plugin, @plugin(namespace={node.domain or 'yours'!r})",
                engine="cpu",
                node=node.name,
                text=str(error),
            ) from error
        domain, op_type = FALLBACK
        nodes[index] = onnx.helper.make_node(op_type, submodel.inputs, submodel.outputs, node.name, domain=domain)
        nodes[index].attribute.append(onnx.helper.make_attribute(HOST, f"session {index}"))
        _log.info("engine 'cpu': node %r (%s) is run by onnxruntime: %s", node.name, node.op_type, reason)
    result = copy_of(typed)
    set_items(result.graph.node, nodes)
    if all(item.domain != FALLBACK[0] for item in result.opset_import):
        result.opset_import.add(domain=FALLBACK[0], version=1)
    return result, hosts


def _key(submodel: onnx.ModelProto) -> bytes:
    """A key that is equal for submodels that differ in names and large constants only."""
    twin = copy_of(submodel)
    for tensor in twin.graph.initializer:
        if len(tensor.raw_data) > 1024:
            tensor.ClearField("raw_data")
    names: dict[str, str] = {}
    for holder in (*twin.graph.input, *twin.graph.output, *twin.graph.initializer):
        holder.name = names.setdefault(holder.name, str(len(names)))
    for node in twin.graph.node:
        node.ClearField("name")
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    key: bytes = twin.SerializeToString(deterministic=True)
    return key


def _refusal(core: Any, submodel: onnx.ModelProto) -> str:
    try:
        with keeping_signal_stack():
            core.compile_model(
                core.read_model(submodel.SerializeToString(), b""), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
            )
    except RuntimeError:
        return "OpenVINO cannot build it"
    return ""


def _dims_and_type(info: onnx.ValueInfoProto, certain: bool) -> tuple[Dims | None, DType]:
    """Dims and type of a tensor; without ``certain``, spatial sizes are left open."""
    if not has_shape({info.name: info}, info.name):
        return None, DType(numpy_type(info.type.tensor_type.elem_type).name)
    dims = info_dims(info)
    if not certain:
        dims = (*dims[:2], *(SymbolicDim(f"{info.name}.{axis}") for axis in range(2, len(dims))))
    return dims, DType(numpy_type(info.type.tensor_type.elem_type).name)
