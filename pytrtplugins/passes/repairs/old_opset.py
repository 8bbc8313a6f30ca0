"""Convert opsets that libraries no longer support."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from ...errors import ModelError
from ...model.ir import dims_of, to_ir, to_proto
from ...model.operator_traits import Trait, operators
from ...utils.optional import ir, onnx
from ...utils.override import override
from ..normalize import with_opset
from ._base import Finding, Repair

__all__ = ["OldOpset"]

_OLDEST, _NEW = 7, 13
_SUMS = operators(Trait.ARITHMETIC)


class OldOpset(Repair):
    """Convert a model before opset 7 to opset 13 with ONNX's version converter, if that succeeds.

    What stays: (1) opset 7 and newer, which onnxruntime runs, and which engines convert themselves; (2) a model all of whose operators
    opset 7 defines in the same way.
    """

    name: ClassVar[str] = "old-opset"
    fault: ClassVar[bool] = True
    why: ClassVar[str] = "onnxruntime runs opset 7 and newer; before it operators say otherwise how operands broadcast."

    @override
    def mend(self, model: ir.Model) -> Iterator[Finding]:
        opset = model.opset_imports.get("", _OLDEST)
        if not 0 < opset < _OLDEST or not any(_is_old(node, opset) for node in model.graph):
            return
        proto = to_proto(model)
        _lay_along_axes(
            proto, {str(value.name): len(dims) for value in _values(model.graph) if (dims := dims_of(value))}
        )
        try:
            converted = to_ir(with_opset(proto, _NEW), checked=True)
        except ModelError:  # the log says why
            return
        model.graph, model.ir_version = converted.graph, converted.ir_version
        yield self.finding(str(model.graph.name), f"opset {opset}", f"opset {_NEW}")


def _is_old(node: ir.Node, opset: int) -> bool:
    """Whether the operator has another definition in the first opset that onnxruntime runs."""
    if node.domain or not onnx.defs.has(node.op_type, _OLDEST, ""):
        return False
    return bool(onnx.defs.get_schema(node.op_type, _OLDEST, "").since_version > opset)


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.outputs


def _lay_along_axes(model: onnx.ModelProto, ranks: Mapping[str, int]) -> None:
    """Append dims of 1 to constants that an attribute aligns with an axis: ONNX's converter omits this, and fails."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    readers = [name for node in model.graph.node for name in node.input]
    for node in model.graph.node:
        axis = next((item for item in node.attribute if item.name == "axis"), None)
        if node.op_type not in _SUMS or axis is None or len(node.input) != 2:
            continue
        x, constant = node.input[0], constants.get(node.input[1])
        if constant is not None and readers.count(node.input[1]) == 1 and x in ranks:
            behind = ranks[x] - axis.i % ranks[x] - len(constant.dims)
            if behind >= 0:
                constant.dims.extend([1] * behind)
                node.attribute.remove(axis)
                for info in [item for item in model.graph.value_info if item.name == constant.name]:
                    model.graph.value_info.remove(info)
