"""Check sizes of tensors computed from constants and inputs against limits, before memory is allocated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ModelError
from ..utils.optional import onnx
from .dataflow import outer_scope_reads, subgraphs, tensors_read
from .limits import MAX_COMPUTED_BYTES, MAX_GROWTH, MAX_TENSOR_BYTES, size_text
from .operators import node_text
from .tensors import bits, dims_text, packed_bytes

__all__ = ["check_sizes"]

_DO = "\nDo: export the model with smaller dims; values computed from constants are in memory while an engine is built"
_Infer = Callable[["onnx.ModelProto"], "onnx.ModelProto"]


def check_sizes(model: onnx.ModelProto, infos: Mapping[str, onnx.ValueInfoProto], infer: _Infer) -> None:
    """Refuse tensors larger than memory can be, and constants that expand to too many bytes.

    Sizes that depend on values which only a run computes are not known here; where an engine runs out of memory, that is a
    `BuildError` or an `ExecutionError`.

    The model is of sound structure; its local functions are not looked into. Tensors of its main graph are described as far as
    they are known; ``infer`` adds shapes to bodies of If, Loop and Scan, and may raise `ModelError`.

    Raises:
        ModelError: a tensor has more than `MAX_TENSOR_BYTES`; or all that are computed from constants have more than
            `MAX_COMPUTED_BYTES` and `MAX_GROWTH` times the bytes of the weights.
    """
    _Sizes(model, infer).check(model.graph, infos, set(), "")


class _Sizes:
    """Adds up the bytes of tensors that are computed from constants alone."""

    def __init__(self, model: onnx.ModelProto, infer: _Infer) -> None:
        weight_bytes = sum(packed_bytes(math.prod(tensor.dims), tensor.data_type) for tensor in model.graph.initializer)
        self.model, self.infer = model, infer
        self.computed, self.limit = 0, MAX_COMPUTED_BYTES + MAX_GROWTH * weight_bytes

    def check(
        self, graph: onnx.GraphProto, infos: Mapping[str, onnx.ValueInfoProto], outer: set[str], where: str
    ) -> None:
        constants = outer | {tensor.name for tensor in graph.initializer}
        constants.update(tensor.values.name for tensor in graph.sparse_initializer)
        for node in graph.node:
            constant = tensors_read(node) <= constants
            for name in filter(None, node.output):
                if name in infos:
                    self._check(node, name, infos[name], constant, where)
            if node.op_type == "Reshape" and len(node.input) > 1:
                _check_reshape(node, _known_dims(infos, node.input[0]), infos, where)
            if constant:
                constants.update(node.output)
            for body in subgraphs(node):
                self._check_body(body, graph, infos, constants, f"{where}in {node_text(node)}: ")

    def _check(self, node: onnx.NodeProto, name: str, info: onnx.ValueInfoProto, constant: bool, where: str) -> None:
        kind = info.type.tensor_type
        dims = tuple(dim.dim_value if dim.HasField("dim_value") else 1 for dim in kind.shape.dim)
        if not bits(kind.elem_type) or min(dims, default=0) < 0:
            return
        size = packed_bytes(math.prod(dims), kind.elem_type)
        self.computed += size if constant and node.op_type != "Constant" else 0
        if size > MAX_TENSOR_BYTES or self.computed > self.limit:
            claim = f"{where}{node_text(node)} makes {name[:200]!r} of dims {dims_text(dims)}, {size_text(size)}"
            if size > MAX_TENSOR_BYTES:
                raise ModelError(
                    f"{claim}; the limit of one tensor is {size_text(MAX_TENSOR_BYTES)}.{_DO}",
                    node=node.name,
                    found=size,
                )
            raise ModelError(
                f"{claim}: that is {size_text(self.computed)} computed from constants alone; the limit is {size_text(self.limit)}.{_DO}",
                node=node.name,
                found=self.computed,
                limit=self.limit,
            )

    def _check_body(
        self,
        body: onnx.GraphProto,
        graph: onnx.GraphProto,
        infos: Mapping[str, onnx.ValueInfoProto],
        constants: set[str],
        where: str,
    ) -> None:
        """Check a subgraph by itself, with the outer tensors that it reads as inputs or constants."""
        outer_tensors = outer_scope_reads(body)
        alone: Any = type(self.model)(
            ir_version=self.model.ir_version, opset_import=self.model.opset_import, graph=body
        )
        alone.functions.extend(self.model.functions)
        alone.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in outer_tensors)
        initializers = {tensor.name for tensor in graph.initializer}
        alone.graph.input.extend(infos[name] for name in outer_tensors if name in infos and name not in initializers)
        try:
            inferred = self.infer(alone)
        except ModelError:  # engines say what contradicts itself in a body
            return
        types = {info.name: info for info in (*inferred.graph.value_info, *inferred.graph.output)}
        self.check(body, {**infos, **types}, constants & outer_tensors, where)


def _check_reshape(
    node: onnx.NodeProto, before: tuple[int, ...] | None, infos: Mapping[str, onnx.ValueInfoProto], where: str
) -> None:
    """Require as many elements after a Reshape as before: ONNX's inference does not look, and OpenVINO writes where it must not."""
    after = _known_dims(infos, node.output[0])
    if before is not None and after is not None and math.prod(before) != math.prod(after):
        raise ModelError(
            f"{where}{node_text(node)} makes {dims_text(after)} of {dims_text(before)}, which has another number of elements.\n"
            "Do: export the model again",
            node=node.name,
            expected=math.prod(before),
            found=math.prod(after),
        )


def _known_dims(infos: Mapping[str, onnx.ValueInfoProto], name: str) -> tuple[int, ...] | None:
    """Dims as numbers; None if one of them is unknown."""
    if name not in infos or not infos[name].type.tensor_type.HasField("shape"):
        return None
    dims = infos[name].type.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims):
        return None
    return tuple(dim.dim_value for dim in dims)
