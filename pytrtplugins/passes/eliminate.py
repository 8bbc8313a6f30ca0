"""Remove nodes without effect: Identity, Dropout, Casts to the same type, and nodes and initializers that nothing reads."""

from __future__ import annotations

from typing import ClassVar

from ..model.ir import array_of, is_op, remove_unused
from ..utils.optional import ir
from ..utils.override import override
from ._base import Pass, PassResult

__all__ = ["Eliminate"]


class Eliminate(Pass):
    """Remove nodes without effect.

    1. Dropout whose mask nobody reads, unless it is told to train: identity at inference.
    2. Identity, Concat of one tensor, and Cast to the type that its input has. Between two outputs of the model, or between an input or
       constant and an output, it stays: both names count.
    3. Nodes, and then initializers, that lead to no output.
    """

    name: ClassVar[str] = "eliminate"

    @override
    def call(self, model: ir.Model) -> PassResult:
        modified = False
        for node in list(model.graph):
            if is_op(node, "Dropout") and _is_idle(node):
                node.op_type = "Identity"  # case 1
                node.resize_inputs(1)
                node.resize_outputs(1)
                node.attributes.clear()
                modified = True
            if (is_op(node, "Concat") and len(node.inputs) == 1) or _keeps_type(node):
                node.op_type = "Identity"  # case 2
                node.attributes.clear()
                modified = True
            if is_op(node, "Identity"):  # case 2
                modified |= _remove_identity(model.graph, node)
        return PassResult(model, remove_unused(model) or modified)  # case 3


def _is_idle(dropout: ir.Node) -> bool:
    mask_is_read = any(out.uses() or out.is_graph_output() for out in dropout.outputs[1:])
    return not mask_is_read and (len(dropout.inputs) < 3 or dropout.inputs[2] is None or _is_false(dropout.inputs[2]))


def _keeps_type(node: ir.Node) -> bool:
    """Whether a node is a Cast whose input is known to have the wanted type."""
    if not is_op(node, "Cast") or node.inputs[0] is None or node.inputs[0].dtype is None:
        return False
    return int(node.inputs[0].dtype) == node.attributes.get_int("to")


def _is_false(value: ir.Value) -> bool:
    array = array_of(value)
    return array is not None and not array.any()


def _remove_identity(graph: ir.Graph, identity: ir.Node) -> bool:
    """Replace an identity's output by its input; False if it must stay."""
    before, after = identity.inputs[0], identity.outputs[0]
    is_output = after.is_graph_output()
    if before is None or (is_output and (before.producer() is None or before.is_graph_output())):
        return False
    name = after.name
    after.replace_all_uses_with(before, replace_graph_outputs=True)
    graph.remove(identity, safe=True)
    if is_output:
        before.name = name
    if before.shape is None or is_output:
        before.shape = after.shape if after.shape is not None else before.shape
    if before.type is None:
        before.type = after.type
    return True
