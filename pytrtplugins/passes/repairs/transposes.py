"""Merge consecutive Transposes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...model.ir import is_op, remove_unused, set_attributes
from ...utils.optional import ir
from ...utils.override import override
from ..eliminate import Eliminate
from ._base import Finding, Repair

__all__ = ["DoubledTransposes"]


class DoubledTransposes(Repair):
    """Merge a Transpose that reads a Transpose into one; both are removed if they cancel each other."""

    name: ClassVar[str] = "doubled-transposes"
    fault: ClassVar[bool] = False
    why: ClassVar[str] = (
        "Exporters change the layout around each layer; between two layers the changes undo each other."
    )

    @override
    def mend(self, model: ir.Model) -> Iterator[Finding]:
        found_any = undone = False
        for node in model.graph:
            first = node.inputs[0].producer() if is_op(node, "Transpose") and node.inputs[0] is not None else None
            if first is None or not is_op(first, "Transpose"):
                continue
            inner, outer = first.attributes.get_ints("perm"), node.attributes.get_ints("perm")
            if inner is None or outer is None or not sorted(inner) == sorted(outer) == list(range(len(inner))):
                continue
            found_any = True
            both = [inner[axis] for axis in outer]
            node.replace_input_with(0, first.inputs[0])
            description = f"perm={list(outer)} behind perm={list(inner)} of {first.name!r}"
            if both == sorted(both):
                node.op_type, undone = "Identity", True
                del node.attributes["perm"]
                yield self.finding(node, description, "they undo each other, and go")
            else:
                set_attributes(node, {"perm": both})
                yield self.finding(node, description, f"one Transpose with perm={both}")
        if found_any:
            remove_unused(model)
        if undone:
            Eliminate()(model)
