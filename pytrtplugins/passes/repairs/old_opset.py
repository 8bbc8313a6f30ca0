"""Convert opsets that libraries no longer support."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...errors import ModelError
from ...model.ir import to_ir, to_proto
from ...utils.optional import ir, onnx
from ...utils.override import override
from ..normalize import with_opset
from ._base import Finding, Repair

__all__ = ["OldOpset"]

_OLDEST, _NEW = 7, 13


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
        try:
            converted = to_ir(with_opset(to_proto(model), _NEW), checked=True)
        except ModelError:  # the log says why
            return
        model.graph, model.ir_version = converted.graph, converted.ir_version
        yield self.finding(str(model.graph.name), f"opset {opset}", f"opset {_NEW}")


def _is_old(node: ir.Node, opset: int) -> bool:
    """Whether the operator has another definition in the first opset that onnxruntime runs."""
    if node.domain or not onnx.defs.has(node.op_type, _OLDEST, ""):
        return False
    return bool(onnx.defs.get_schema(node.op_type, _OLDEST, "").since_version > opset)
