"""What does nothing goes: identities, dropout, nodes and initializers that nobody reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .._optional import require
from ._base import Pass, PassResult

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Eliminate"]


class Eliminate(Pass):
    """Remove nodes without effect.

    1. Dropout whose mask nobody reads: identity at inference.
    2. Identity.
    3. Nodes, and then initializers, that lead to no output.
    """

    name: ClassVar[str] = "eliminate"

    def call(self, model: ir.Model) -> PassResult:
        """Eliminate in place."""
        modified = False
        for node in model.graph:
            if node.op_type == "Dropout" and node.domain == "" and not any(out.uses() for out in node.outputs[1:]):
                node.op_type = "Identity"  # case 1
                node.resize_inputs(1)
                node.resize_outputs(1)
                node.attributes.clear()
                modified = True
        common = require("onnx_ir.passes.common", extra="onnx", feature="passes")
        for step in (common.IdentityEliminationPass(), common.RemoveUnusedNodesPass()):  # cases 2 and 3
            modified |= bool(step(model).modified)
        return PassResult(model, modified)
