"""Models in onnx-ir's form, which passes and engine `cuda` work on: the doors from and to protobuf, and one helper for each job."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelError, PytrtpluginsError
from ..tensor import DType, SymbolicDim
from ..utils.optional import require
from ..validation import validated
from .dense import with_dense_constants
from .files import read_onnx
from .proto import node_name

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = [
    "add_constant",
    "array_of",
    "constant",
    "depths",
    "dims_of",
    "dtype_of",
    "is_op",
    "names_in",
    "names_of",
    "only_read_by",
    "operand",
    "remove_unused",
    "set_attributes",
    "set_constant",
    "set_dtype",
    "swap",
    "to_ir",
    "to_proto",
    "unused_name",
]

_FEATURE = "working on ONNX models"
_KINDS: dict[type, str] = {float: "AttrFloat32", int: "AttrInt64", str: "AttrString"}


def to_ir(model: str | Path | onnx.ModelProto, *, checked: bool = False) -> ir.Model:
    """Take a model into the form that passes work on.

    Args:
        model: Path or model; passes do not change what was given here, but the result.
        checked: Whether it was validated already.

    Raises:
        ModelError: the file is missing or holds no ONNX model, or the model is broken; see `pytrtplugins.validation`.
    """
    onnx_ir = require("onnx_ir", extra="onnx", feature=_FEATURE)
    try:
        proto = read_onnx(model)[0] if isinstance(model, (str, Path)) else model if checked else validated(model)
    except FileNotFoundError as error:
        raise ModelError(str(error)) from error
    proto = with_dense_constants(proto)  # onnx-ir drops sparse initializers
    try:
        return _with_own_names(_with_plain_domain(onnx_ir.from_proto(proto)))
    except Exception as error:  # onnx-ir raises types of its own
        place, reason = _unreadable(proto, error)
        raise ModelError(
            f"{model if isinstance(model, (str, Path)) else 'model'}: not a model that passes can work on: {place}{reason}.\n"
            "Do: pip install --upgrade onnx onnx-ir, or export the model with an older opset"
        ) from error


def _unreadable(model: onnx.ModelProto, error: BaseException) -> tuple[str, str]:
    """The first tensor or node of a graph that onnx-ir does not read, with a colon, and why; ``""`` where it reads each."""
    serde, graph = require("onnx_ir", extra="onnx", feature=_FEATURE).serde, model.graph
    named: list[tuple[str, Callable[[], Any]]] = [
        (f"tensor {tensor.name!r}", lambda tensor=tensor: serde.deserialize_tensor(tensor).dtype)  # type: ignore[misc]
        for tensor in graph.initializer
    ]
    for info in (*graph.input, *graph.output, *graph.value_info):
        named.append((f"tensor {info.name!r}", functools.partial(serde.deserialize_value_info_proto, info, None)))
    for node in graph.node:
        place = f"node {node_name(node)!r} ({node.op_type})"
        named.append((place, functools.partial(serde.deserialize_node, node)))
    for place, read in named:
        try:
            read()
        except Exception as found:  # onnx-ir raises types of its own
            return f"{place}: ", _first_cause(found)
    return "", _first_cause(error)


def _first_cause(error: BaseException) -> str:
    """What the first of a chain of exceptions says."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__


def _with_plain_domain(model: ir.Model) -> ir.Model:
    """Name ONNX's own domain ``""`` in the opset imports too, where the file names it ``"ai.onnx"``."""
    for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        if "ai.onnx" in imports:
            imports.setdefault("", imports.pop("ai.onnx"))
    return model


def _with_own_names(model: ir.Model) -> ir.Model:
    """Let tensors have names of their own: onnx-ir writes the name of a value into the TensorProto that was given."""
    onnx_ir, named = require("onnx_ir", extra="onnx", feature=_FEATURE), _named()
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, named.__base__):
                value.const_value = named(value.const_value.raw)
    for node in itertools.chain(model.graph.all_nodes(), *(each.all_nodes() for each in model.functions.values())):
        for name, attribute in list(node.attributes.items()):
            if attribute.type == onnx_ir.AttributeType.TENSOR and isinstance(attribute.value, named.__base__):
                node.attributes[name] = onnx_ir.AttrTensor(name, named(attribute.value.raw), attribute.doc_string)
    return model


@functools.cache
def _named() -> Any:
    base: Any = require("onnx_ir.serde", extra="onnx", package="onnx_ir", feature=_FEATURE).TensorProtoTensor

    class NamedTensor(base):  # type: ignore[misc]
        """A TensorProto's tensor whose name is not the proto's."""

        __slots__ = ("name",)

        def __init__(self, proto: onnx.TensorProto) -> None:
            super().__init__(proto)
            self.name = proto.name

        @property
        def raw(self) -> onnx.TensorProto:
            proto: onnx.TensorProto = self._proto
            if proto.name == (self.name or ""):
                return proto
            renamed = type(proto)()
            renamed.CopyFrom(proto)
            renamed.name = self.name or ""
            return renamed

    return NamedTensor


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Give the model that other libraries take."""
    return require("onnx_ir", extra="onnx", feature=_FEATURE).to_proto(model)  # type: ignore[no-any-return]


def names_in(graph: ir.Graph) -> set[str | None]:
    """The names of a graph's tensors and nodes."""
    made = (name for node in graph for name in (node.name, *(value.name for value in node.outputs)))
    return {*(value.name for value in graph.inputs), *graph.initializers, *made}


def unused_name(name: str, taken: set[Any], first: int = 2) -> str:
    """The name, with a number from ``first`` on where it is taken; from now on it is."""
    names = itertools.chain((name,), (f"{name}_{number}" for number in itertools.count(first)))
    unused = next(each for each in names if each not in taken)
    taken.add(unused)
    return unused


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer or a Constant node; None of anything else. Nothing is copied."""
    if value is None:
        return None
    node = value.producer()
    if value.const_value is not None or node is None or not is_op(node, "Constant"):
        return value.const_value
    given = node.attributes.get("value")
    if given is not None and given.type.name == "TENSOR" and not given.is_ref():
        # onnx-ir would hold it against its protocol each time, which takes long
        tensor: ir.TensorProtocol = given.value
        return tensor
    convenience = require("onnx_ir", extra="onnx", feature=_FEATURE).convenience
    return convenience.get_const_tensor(value)  # type: ignore[no-any-return]


def array_of(value: ir.Value | None) -> Any:
    """The NumPy array of an initializer or a Constant node; None of anything else."""
    tensor = constant(value)
    return None if tensor is None else tensor.numpy()


def add_constant(graph: ir.Graph, name: str, array: npt.ArrayLike, taken: set[str | None] | None = None) -> ir.Value:
    """A new initializer; ``taken``: names that it cannot get, by default those of the other initializers."""
    onnx_ir = require("onnx_ir", extra="onnx", feature=_FEATURE)
    name = unused_name(name, {*graph.initializers} if taken is None else taken)
    tensor = onnx_ir.Tensor(np.asarray(array, order="C"), name=name)
    kind = onnx_ir.TensorType(tensor.dtype)
    value: ir.Value = onnx_ir.Value(name=name, shape=tensor.shape, type=kind, const_value=tensor)
    graph.register_initializer(value)
    return value


def set_constant(value: ir.Value, array: npt.NDArray[Any]) -> None:
    """Give an initializer other values of the same dims and type."""
    value.const_value = require("onnx_ir", extra="onnx", feature=_FEATURE).Tensor(array, name=value.name)


def names_of(values: Iterable[ir.Value | None]) -> tuple[str, ...]:
    """Names of a node's inputs or outputs; empty texts for what is left out."""
    return tuple("" if value is None else str(value.name) for value in values)


def depths(nodes: Iterable[ir.Node]) -> dict[ir.Node, int]:
    """How many nodes lie on the longest way from an input to each node; the nodes are in topological order."""
    found: dict[ir.Node, int] = {}
    for node in nodes:
        producers = (value.producer() for value in node.inputs if value is not None)
        found[node] = 1 + max((found.get(each, 0) for each in producers if each is not None), default=0)
    return found


def dims_of(value: ir.Value | None) -> tuple[Any, ...] | None:
    """A tensor's dims: ints, `SymbolicDim`s where they are free, None where they have no name either. None: unknown rank."""
    if value is None or value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else SymbolicDim(dim.value) if dim.value else None for dim in value.shape)


def dtype_of(value: ir.Value) -> DType | None:
    """A tensor's element type; None where it is unknown, or none that engines exchange."""
    try:
        return None if value.dtype is None else DType.of(value.dtype.numpy())
    except (PytrtpluginsError, TypeError):
        return None


def is_op(node: ir.Node | None, op_type: str, domain: str = "") -> bool:
    """Whether a node is of this type and domain."""
    return node is not None and node.op_type == op_type and node.domain == domain


def operand(node: ir.Node, index: int) -> ir.Value | None:
    """An input of a node; None where it is left out."""
    return node.inputs[index] if index < len(node.inputs) else None


def only_read_by(node: ir.Node, reader: ir.Node) -> bool:
    """Whether a node's first output has one reader, and is not an output of the model."""
    output = node.outputs[0]
    return [use.node for use in output.uses()] == [reader] and not output.is_graph_output()


def set_attributes(node: ir.Node, values: dict[str, Any]) -> None:
    """Set attributes, of whatever kind."""
    for name, value in values.items():
        node.attributes[name] = _attribute(name, value)


def _attribute(name: str, value: Any) -> ir.Attr:
    """An attribute; onnx-ir would hold numbers, texts and lists of them against all its protocols first, which takes long."""
    onnx_ir = require("onnx_ir", extra="onnx", feature=_FEATURE)
    several = isinstance(value, (list, tuple))
    types = {type(each) for each in value} if several else {type(value)}
    kind = _KINDS.get(types.pop()) if len(types) == 1 else None
    if kind is None:
        return onnx_ir.convenience.convert_attribute(name, value)  # type: ignore[no-any-return]
    return getattr(onnx_ir, f"{kind}s" if several else kind)(name, value)  # type: ignore[no-any-return]


def set_dtype(value: ir.Value, kind: ir.DataType) -> None:
    """Give a value another element type; not so the values that have the same object as their type."""
    value.type = copy.deepcopy(value.type)
    value.dtype = kind


def swap(graph: ir.Graph, nodes: Iterable[ir.Node], value: ir.Value) -> None:
    """Let a value stand for the first output of the last of the nodes, under its name; remove the nodes, last first."""
    nodes = list(nodes)
    after = nodes[-1].outputs[0]
    name, shape, kind = after.name, after.shape, after.type
    after.replace_all_uses_with(value, replace_graph_outputs=True)
    for node in reversed(nodes):
        graph.remove(node, safe=True)
    value.name, value.shape, value.type = name, shape, kind


def remove_unused(model: ir.Model) -> bool:
    """Remove nodes, and then initializers, that lead to no output. Whether there were any.

    Nodes lose unused optional outputs, and what they leave out behind their last input.
    """
    # onnx-ir's pass asks ONNX for the outputs of each node's operator, which takes long
    if not _may_have_unused(model):  # onnx-ir's pass takes long: it asks ONNX for the outputs of every operator
        return False
    unused = require("onnx_ir.passes.common", extra="onnx", feature=_FEATURE).RemoveUnusedNodesPass()
    return bool(unused(model).modified)


def _may_have_unused(model: ir.Model) -> bool:
    """Whether `remove_unused` may change anything; nodes with graphs inside them, and functions, are not looked into."""
    graph = model.graph
    kept = {*graph.inputs, *graph.outputs}

    def is_unused(value: ir.Value) -> bool:
        return value not in kept and not value.uses()

    def may_change(node: ir.Node) -> bool:
        if node.op_type == "BatchNormalization" or not node.outputs or any(map(is_unused, node.outputs)):
            return True
        trailing = bool(node.inputs) and node.inputs[-1] is None
        return trailing or any(attribute.type.name in ("GRAPH", "GRAPHS") for attribute in node.attributes.values())

    return bool(model.functions) or any(map(is_unused, graph.initializers.values())) or any(map(may_change, graph))
