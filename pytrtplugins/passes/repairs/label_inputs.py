"""Remove inputs for labels of a training loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...utils.optional import ir
from ...utils.override import override
from ._base import Finding, Repair

__all__ = ["LabelInputs"]


class LabelInputs(Repair):
    """Remove inputs whose name ends with ``label`` and that nothing reads: MXNet's SoftmaxOutput is exported as Softmax with its label."""

    name: ClassVar[str] = "label-inputs"
    fault: ClassVar[bool] = True
    why: ClassVar[str] = (
        "A training loss had a label; at inference nothing reads it, and onnxruntime still demands an array for it."
    )
    drops_inputs: ClassVar[bool] = True

    @override
    def mend(self, model: ir.Model) -> Iterator[Finding]:
        for value in list(model.graph.inputs):
            name = str(value.name)
            if name.lower().endswith("label") and not value.uses() and not value.is_graph_output():
                model.graph.inputs.remove(value)
                yield self.finding(name, f"the input {name!r}, which no node reads", "the input is removed")
