"""The base class of graph passes on onnx-ir models, with checks before and after."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from ..errors import ModelError
from ..model.ir import rewrite
from ..utils.heap import no_collection
from ..utils.optional import ir, onnx
from ..validation.dataflow import walk

__all__ = ["Pass", "PassResult", "run_passes"]


@dataclass(frozen=True)
class PassResult:
    """The result of a pass.

    Attributes:
        model: The model, changed in place.
        modified: Whether the pass changed anything.
    """

    model: ir.Model
    modified: bool


class Pass(ABC):
    """A step from model to model: subclasses implement `call`, and `requires` and `ensures` if they have conditions.

    Callers use the object as a function, which checks the conditions around `call`, and that the model's inputs and
    outputs keep their names and order.

    Attributes:
        name: The step's name, for messages.
        drops_inputs: Whether the step may remove inputs of the model.
        needs: Types of operators of which a model that the step changes has one at least; empty: the step looks at any model.
    """

    name: ClassVar[str]
    drops_inputs: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()

    def __call__(self, model: ir.Model) -> PassResult:
        """Run the pass on a model, which changes.

        Raises:
            ModelError: the model is not what the pass requires, or the pass broke it; the message says which.
        """
        self.requires(model)
        before = _interface(model)
        result = self.call(model)
        after = _interface(result.model)
        if self.drops_inputs:
            before = [name for name in before[0] if name in after[0]], before[1]
        if after != before:
            raise ModelError(
                f"pass {self.name!r}: the inputs and outputs of the model must stay: expected {before}, found {after}."
            )
        self.ensures(result.model)
        return result

    @abstractmethod
    def call(self, model: ir.Model) -> PassResult:
        """Change the model in place."""

    def requires(self, model: ir.Model) -> None:  # noqa: B027  # no condition by default
        """Raise ModelError if the pass cannot work on the model."""

    def ensures(self, model: ir.Model) -> None:  # noqa: B027  # no condition by default
        """Raise ModelError if the result is not what the pass promises."""


@no_collection()
def run_passes(model: onnx.ModelProto, *passes: Pass) -> onnx.ModelProto:
    """Run passes one after the other over a model that was checked; it comes back itself where none of them changes anything."""
    types = {node.op_type for node in walk(model.graph.node)}
    if not model.functions and all(step.needs and types.isdisjoint(step.needs) for step in passes):
        return model

    def run(ir_model: ir.Model) -> bool:
        changes = [step(ir_model).modified for step in passes]
        return any(changes)

    return rewrite(model, run)


def _interface(model: ir.Model) -> tuple[list[str | None], list[str | None]]:
    return [value.name for value in model.graph.inputs], [value.name for value in model.graph.outputs]
