"""Remove weights from the inputs of a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...utils.optional import ir
from ...utils.override import override
from ._base import Finding, Repair

__all__ = ["WeightInputs"]

_FIRST_IR = 4  # the first version in which weights need not be inputs


class WeightInputs(Repair):
    """Remove initializers from the model's inputs, where IR 3 required them. Their values stay."""

    name: ClassVar[str] = "weight-inputs"
    fault: ClassVar[bool] = False
    why: ClassVar[str] = "IR 3 lists every weight as an input; libraries then treat weights as values that may change."
    drops_inputs: ClassVar[bool] = True

    @override
    def mend(self, model: ir.Model) -> Iterator[Finding]:
        inputs = model.graph.inputs
        weights = [value for value in inputs if value.name in model.graph.initializers]
        if weights:
            real_inputs = [value for value in inputs if value.name not in model.graph.initializers]
            inputs.clear()
            inputs.extend(real_inputs)
            model.ir_version = max(model.ir_version, _FIRST_IR)
        for value in weights:
            yield self.finding(str(value.name), "a weight that is an input of the model too", "it is a weight alone")
