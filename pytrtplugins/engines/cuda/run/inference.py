"""Infer output types and dims of a node during a run, by ONNX's rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....errors import ExecutionError
from ....model.proto import node_name
from ....utils.optional import ir, onnx
from ....validation import infer_node
from ....validation.untyped import input_of_same_type
from ..operators import HOST_INPUTS
from .values import Value

__all__ = ["OutputDims", "infer"]


class OutputDims:
    """The dims of a node's outputs, worked out when its function asks for them.

    Args:
        node: The node.
        given: What it reads.
        version: Of ONNX's operators.
    """

    def __init__(self, node: ir.Node, given: Sequence[Value | None], version: int) -> None:
        self._node, self._given, self._version = node, given, version
        self._found: list[tuple[int, ...] | None] | None = None

    def __len__(self) -> int:
        return len(self._node.outputs)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (self[index] for index in range(len(self)))

    @property
    def are_empty(self) -> bool:
        """Whether all are known, and no output has an element: there is nothing to compute."""
        return all(dims is not None and 0 in dims for dims in self._all)

    @property
    def _all(self) -> list[tuple[int, ...] | None]:
        if self._found is None:
            self._found = infer(self._node, self._given, self._version)
        return self._found

    def __getitem__(self, index: int) -> tuple[int, ...]:
        dims = self._all[index]
        if dims is None:
            raise ExecutionError(
                f"engine 'cuda': the dims that node {node_name(self._node)!r} ({self._node.op_type}) gives are not known",
                node=node_name(self._node),
                op=self._node.op_type,
            )
        return dims


def infer(node: ir.Node, given: Sequence[Value | None], version: int) -> list[tuple[int, ...] | None]:
    """The dims of a node's outputs, None where ONNX has no rule; types that nobody said are noted in the node.

    Args:
        node: Of ONNX's own domain.
        given: What it reads.
        version: Of the operators.
    """
    proto, types, data = ir.serde.serialize_node(node), dict[str, Any](), dict[str, Any]()
    kept = HOST_INPUTS.get(node.op_type, ())
    for index, value in enumerate(given):
        name = f"input{index}"
        proto.input[index] = "" if value is None else name
        if value is not None:
            elements = onnx.helper.np_dtype_to_tensor_dtype(value.dtype.numpy)
            types[name] = onnx.helper.make_tensor_type_proto(elements, value.dims)
            if index in kept:
                data[name] = onnx.numpy_helper.from_array(value.numbers(), name)
    schema = None
    try:
        schema = onnx.defs.get_schema(node.op_type, version, "")
        found = infer_node(proto, types, data, version)
    except Exception:  # it has no rule, or the rule fails: the operator's function says what is wrong
        found = {}
    sizes = given[2] if node.op_type == "MaxUnpool" and len(given) > 2 else None  # of which ONNX's rule knows nothing
    if sizes is not None:
        return [tuple(map(int, sizes.numbers()))]
    dims: list[tuple[int, ...] | None] = []
    for place, (name, output) in enumerate(zip(proto.output, node.outputs, strict=True)):
        kind = found[name].tensor_type if name in found else None
        if kind is not None and kind.elem_type and output.type is None:
            output.type = ir.TensorType(ir.DataType(kind.elem_type))
        elif output.type is None and schema is not None:
            source = input_of_same_type(schema, place, [value is not None for value in given])
            like = None if source is None else given[source]
            if like is not None:
                output.type = ir.TensorType(ir.DataType.from_numpy(like.dtype.numpy))
        told = kind is not None and kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim)
        dims.append(tuple(dim.dim_value for dim in kind.shape.dim) if told and kind is not None else None)
    return dims
