"""Convert models between protobuf and onnx-ir, and edit onnx-ir graphs."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import ModelError, PytrtpluginsError
from ..tensor import DType, SymbolicDim
from ..utils.heap import no_collection
from ..utils.optional import ir, onnx, require
from ..validation import validated
from .dense import with_dense_constants
from .files import read_onnx
from .proto import node_name

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
    "rewrite",
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


@no_collection()
def to_ir(model: str | Path | onnx.ModelProto, *, checked: bool = False) -> ir.Model:
    """Convert an ONNX file or model to an onnx-ir model.

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
        place, reason = _unreadable_part(proto, error)
        raise ModelError(
            f"{model if isinstance(model, (str, Path)) else 'model'}: not a model that passes can work on: {place}{reason}.\n"
            "Do: pip install --upgrade onnx onnx-ir, or export the model with an older opset"
        ) from error


def _unreadable_part(model: onnx.ModelProto, error: BaseException) -> tuple[str, str]:
    """Return the first tensor or node that onnx-ir cannot read, as ``"node 'x' (Op): "``, and the reason; ``""`` if it reads all."""
    serde, graph = ir.serde, model.graph
    readers: list[tuple[str, Callable[[], Any]]] = [
        (f"tensor {tensor.name!r}", lambda tensor=tensor: serde.deserialize_tensor(tensor).dtype)  # type: ignore[misc]
        for tensor in graph.initializer
    ]
    for info in (*graph.input, *graph.output, *graph.value_info):
        readers.append((f"tensor {info.name!r}", functools.partial(serde.deserialize_value_info_proto, info, None)))
    for node in graph.node:
        part = f"node {node_name(node)!r} ({node.op_type})"
        readers.append((part, functools.partial(serde.deserialize_node, node)))
    for part, read in readers:
        try:
            read()
        except Exception as part_error:  # onnx-ir raises types of its own
            return f"{part}: ", _first_cause(part_error)
    return "", _first_cause(error)


def _first_cause(error: BaseException) -> str:
    """Return the message of the first exception of a chain."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__


def _with_plain_domain(model: ir.Model) -> ir.Model:
    """Rename ONNX's own domain from ``"ai.onnx"`` to ``""`` in the opset imports; return the model."""
    for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        if "ai.onnx" in imports:
            imports.setdefault("", imports.pop("ai.onnx"))
    return model


def _with_own_names(model: ir.Model) -> ir.Model:
    """Replace tensors by ones that store their own name, since onnx-ir writes names into the caller's TensorProtos."""
    named_tensor = _named_tensor_class()
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, named_tensor.__base__):
                value.const_value = named_tensor(value.const_value.raw)
    kinds = ir.AttributeType
    waiting = [*model.graph, *(node for function in model.functions.values() for node in function)]
    while waiting:
        node = waiting.pop()
        for name, attribute in list(node.attributes.items()):
            kind = attribute.type
            if kind == kinds.TENSOR and isinstance(attribute.value, named_tensor.__base__):
                node.attributes[name] = ir.AttrTensor(name, named_tensor(attribute.value.raw), attribute.doc_string)
            elif kind in (kinds.GRAPH, kinds.GRAPHS) and not attribute.is_ref():
                waiting += [node for graph in _attribute_graphs(attribute) for node in graph]
    return model


def _attribute_graphs(attribute: ir.Attr) -> Sequence[ir.Graph]:
    """Return the graphs of an attribute that holds one or several."""
    return attribute.as_graphs() if attribute.type.name == "GRAPHS" else [attribute.as_graph()]


@functools.cache
def _named_tensor_class() -> Any:
    base: Any = require("onnx_ir.serde", extra="onnx", package="onnx_ir", feature=_FEATURE).TensorProtoTensor

    class NamedTensor(base):  # type: ignore[misc]
        """A tensor over a TensorProto, with a name of its own, whose values are copied out of it once."""

        __slots__ = ("_array", "name")

        def __init__(self, proto: onnx.TensorProto) -> None:
            super().__init__(proto)
            self.name, self._array = proto.name, None

        def numpy(self) -> Any:
            if self._array is None:
                self._array = super().numpy()
            return self._array

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


@no_collection()
def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Convert an onnx-ir model to a ModelProto."""
    return ir.to_proto(model)


def rewrite(model: onnx.ModelProto, change: Callable[[ir.Model], object]) -> onnx.ModelProto:
    """Convert a model to onnx-ir, change it there, and convert it back.

    Args:
        model: A model that was validated; it is not changed.
        change: Changes the onnx-ir model in place. It returns False if it changed nothing; anything else means that it did.

    Returns:
        A new model, or ``model`` itself if ``change`` returned False.
    """
    ir_model = to_ir(model, checked=True)
    return model if change(ir_model) is False else to_proto(ir_model)


def names_in(graph: ir.Graph) -> set[str | None]:
    """Return the names of a graph's tensors and nodes."""
    node_and_output_names = (name for node in graph for name in (node.name, *(value.name for value in node.outputs)))
    return {*(value.name for value in graph.inputs), *graph.initializers, *node_and_output_names}


def unused_name(name: str, taken: set[Any], first: int = 2) -> str:
    """Return the name, with a number from ``first`` on if it is taken, and add the result to ``taken``."""
    names = itertools.chain((name,), (f"{name}_{number}" for number in itertools.count(first)))
    unused = next(candidate for candidate in names if candidate not in taken)
    taken.add(unused)
    return unused


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer or a Constant node, not copied; None for other values."""
    if value is None:
        return None
    node = value.producer()
    if value.const_value is not None or node is None or not is_op(node, "Constant"):
        return value.const_value
    attribute = node.attributes.get("value")
    if attribute is not None and attribute.type.name == "TENSOR" and not attribute.is_ref():
        # onnx-ir would hold it against its protocol each time, which takes long
        tensor: ir.TensorProtocol = attribute.value
        return tensor
    return ir.convenience.get_const_tensor(value)


def array_of(value: ir.Value | None) -> Any:
    """Return the NumPy array of an initializer or a Constant node; None for other values."""
    tensor = constant(value)
    return None if tensor is None else tensor.numpy()


def add_constant(
    graph: ir.Graph,
    name: str,
    array: npt.ArrayLike,
    taken: set[str | None] | None = None,
    order: Literal["C", "K"] = "C",
) -> ir.Value:
    """Add an initializer and return it.

    Args:
        graph: Where.
        name: Its name, with a number behind it if that is taken.
        array: Its values.
        taken: Names that it must not get, by default those of the other initializers.
        order: ``"K"``: the array may lie in memory in any order, so that a transposed one is not copied.
    """
    if taken is not None or name in graph.initializers:
        name = unused_name(name, {*graph.initializers} if taken is None else taken)
    tensor = ir.Tensor(np.asarray(array, order=order), name=name)
    kind = ir.TensorType(tensor.dtype)
    value: ir.Value = ir.Value(name=name, shape=tensor.shape, type=kind, const_value=tensor)
    graph.register_initializer(value)
    return value


def set_constant(value: ir.Value, array: npt.NDArray[Any]) -> None:
    """Replace the values of an initializer by an array of the same dims and type."""
    value.const_value = ir.Tensor(array, name=value.name)


def names_of(values: Iterable[ir.Value | None]) -> tuple[str, ...]:
    """Return the names of a node's inputs or outputs; ``""`` for optional ones that are left out."""
    return tuple("" if value is None else str(value.name) for value in values)


def depths(nodes: Iterable[ir.Node]) -> dict[ir.Node, int]:
    """Return the depth of each node: nodes on the longest path from an input. The nodes must be in topological order."""
    depth_of: dict[ir.Node, int] = {}
    for node in nodes:
        producers = (value.producer() for value in node.inputs if value is not None)
        depth_of[node] = 1 + max(
            (depth_of.get(producer, 0) for producer in producers if producer is not None), default=0
        )
    return depth_of


def dims_of(value: ir.Value | None) -> tuple[Any, ...] | None:
    """Return a tensor's dims: ints, `SymbolicDim`s where free, None where free and unnamed; None if the rank is unknown."""
    if value is None or value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else SymbolicDim(dim.value) if dim.value else None for dim in value.shape)


def dtype_of(value: ir.Value) -> DType | None:
    """Return a tensor's element type; None if it is unknown, or not a `DType`."""
    try:
        return None if value.dtype is None else DType.of(value.dtype.numpy())
    except (PytrtpluginsError, TypeError):
        return None


def is_op(node: ir.Node | None, op_type: str, domain: str = "") -> bool:
    """Return whether a node has this operator and domain."""
    return node is not None and node.op_type == op_type and node.domain == domain


def operand(node: ir.Node, index: int) -> ir.Value | None:
    """Return an input of a node; None if it is left out."""
    return node.inputs[index] if index < len(node.inputs) else None


def only_read_by(node: ir.Node, reader: ir.Node) -> bool:
    """Return whether ``reader`` is the only reader of a node's first output, which is not an output of the model."""
    output = node.outputs[0]
    return [use.node for use in output.uses()] == [reader] and not output.is_graph_output()


def set_attributes(node: ir.Node, values: dict[str, Any]) -> None:
    """Set attributes of a node from Python values."""
    for name, value in values.items():
        node.attributes[name] = _attribute(name, value)


def _attribute(name: str, value: Any) -> ir.Attr:
    """Return an attribute; numbers, strings and lists of them bypass onnx-ir's slow protocol checks."""
    is_list = isinstance(value, (list, tuple))
    types = {type(item) for item in value} if is_list else {type(value)}
    kind = _KINDS.get(types.pop()) if len(types) == 1 else None
    if kind is None:
        return ir.convenience.convert_attribute(name, value)
    return getattr(ir, f"{kind}s" if is_list else kind)(name, value)  # type: ignore[no-any-return]


def set_dtype(value: ir.Value, kind: ir.DataType) -> None:
    """Set a value's element type, without changing other values that share its type object."""
    value.type = copy.deepcopy(value.type)
    value.dtype = kind


def swap(graph: ir.Graph, nodes: Iterable[ir.Node], value: ir.Value) -> None:
    """Replace nodes by a value, which takes the place and name of the last node's first output; remove the nodes."""
    nodes = list(nodes)
    old_value = nodes[-1].outputs[0]
    name, shape, kind = old_value.name, old_value.shape, old_value.type
    old_value.replace_all_uses_with(value, replace_graph_outputs=True)
    for node in reversed(nodes):
        graph.remove(node, safe=True)
    value.name, value.shape, value.type = name, shape, kind


def remove_unused(model: ir.Model) -> bool:
    """Remove nodes and initializers that lead to no output; return whether there were any.

    Nodes also lose unused optional outputs, and trailing inputs that are left out.
    """
    if not _may_have_unused(model):  # onnx-ir's pass takes long: it asks ONNX for the outputs of every operator
        return False
    removed = _remove_unread(model.graph)
    if not _may_have_unused(model):
        return removed
    unused = require("onnx_ir.passes.common", extra="onnx", feature=_FEATURE).RemoveUnusedNodesPass()
    return bool(unused(model).modified) or removed


def _remove_unread(graph: ir.Graph) -> bool:
    """Remove a graph's nodes and initializers that nothing reads; return whether there were any.

    The other nodes lose trailing inputs that are left out.
    """
    unread: set[ir.Node] = set()
    for node in reversed(graph):
        if all(
            not value.is_graph_output() and all(use.node in unread for use in value.uses()) for value in node.outputs
        ):
            unread.add(node)
        elif node.inputs and node.inputs[-1] is None:
            node.resize_inputs(1 + max((i for i, value in enumerate(node.inputs) if value is not None), default=-1))
    graph.remove(unread, safe=True)
    inputs = {*graph.inputs, *graph.outputs}
    names = [name for name, value in graph.initializers.items() if value not in inputs and not value.uses()]
    for name in names:
        del graph.initializers[name]
    return bool(unread or names)


def _may_have_unused(model: ir.Model) -> bool:
    """Return whether `remove_unused` may change the model; always true for nodes with subgraphs, and for functions."""
    graph, version = model.graph, model.opset_imports.get("")
    graph_values = {*graph.inputs, *graph.outputs}
    kinds = require("onnx_ir", extra="onnx", feature=_FEATURE).AttributeType
    holders = (kinds.GRAPH, kinds.GRAPHS)

    def is_unused(value: ir.Value) -> bool:
        return value not in graph_values and not value.uses()

    def may_change(node: ir.Node) -> bool:
        unused = [is_unused(value) for value in node.outputs]
        if node.op_type == "BatchNormalization" or all(unused):
            return True
        if any(unused) and not node.domain and _has_optional_outputs(node.op_type, version):
            return True
        trailing = bool(node.inputs) and node.inputs[-1] is None
        return trailing or any(attribute.type in holders for attribute in node.attributes.values())

    return bool(model.functions) or any(map(is_unused, graph.initializers.values())) or any(map(may_change, graph))


@functools.cache
def _has_optional_outputs(op_type: str, version: int | None) -> bool:
    """Return whether an operator of ONNX has outputs that may be left out; false for unknown ones."""
    defs = require("onnx.defs", extra="onnx", feature=_FEATURE)
    if version is None or not defs.has(op_type, version, ""):
        return False
    outputs = defs.get_schema(op_type, version, "").outputs
    return any(output.option == defs.OpSchema.FormalParameterOption.Optional for output in outputs)
