"""Check at run time that bounds of Clip are single numbers: OpenVINO would broadcast them."""

from __future__ import annotations

from typing import ClassVar

from ....model.ir import dims_of, is_op, operand
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override
from .barrier import checked_dims

__all__ = ["ScalarBounds"]


class ScalarBounds(Pass):
    """Insert a Reshape to a scalar before bounds of Clip that may have more elements; it fails if they do."""

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
