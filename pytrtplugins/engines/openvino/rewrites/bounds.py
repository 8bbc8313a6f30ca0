"""Bounds of Clip that may be more than one number are checked when they are computed: OpenVINO broadcasts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ....model.ir import dims_of, is_op, operand
from ....passes import Pass, PassResult
from ....utils.override import override
from .barrier import checked_dims

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["ScalarBounds"]


class ScalarBounds(Pass):
    """Put Reshape to a scalar before bounds of Clip that are not known to be one number; it fails where they are more."""

    name: ClassVar[str] = "scalar-bounds"

    @override
    def call(self, model: ir.Model) -> PassResult:
        modified = False
        for node in [node for node in model.graph if is_op(node, "Clip")]:
            for index in (1, 2):
                bound = operand(node, index)
                if bound is not None and dims_of(bound) not in ((), (1,)):
                    node.replace_input_with(index, checked_dims(model.graph, bound, node, ()))
                    modified = True
        return PassResult(model, modified)
