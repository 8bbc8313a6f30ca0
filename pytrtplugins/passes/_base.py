"""What a graph pass is: a checked step from one ONNX model to another, on onnx-ir's in-memory form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ..errors import ModelError
from ..model import read_onnx
from ..utils.optional import require
from ..validation import validated

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["Pass", "PassResult", "to_ir", "to_proto"]


@dataclass(frozen=True)
class PassResult:
    """What a pass gives.

    Attributes:
        model: The model, changed in place.
        modified: Whether the pass changed anything.
    """

    model: ir.Model
    modified: bool


class Pass(ABC):
    """A step from model to model: subclasses fill in `call`, and `requires` and `ensures` where they have conditions.

    Callers use the object as a function, which checks the conditions around `call`, and that the model's inputs and
    outputs keep their names and order.

    Attributes:
        name: The step's name, for messages.
    """

    name: ClassVar[str]

    def __call__(self, model: ir.Model) -> PassResult:
        """Run the pass on a model, which changes.

        Raises:
            ModelError: the model is not what the pass requires, or the pass broke it; the message says which.
        """
        self.requires(model)
        before = _interface(model)
        result = self.call(model)
        after = _interface(result.model)
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


def to_ir(model: str | Path | onnx.ModelProto) -> ir.Model:
    """Take a model into the form that passes work on.

    Args:
        model: Path or model; passes do not change what was given here, but the result.

    Raises:
        ModelError: the file is missing or holds no ONNX model, or the model is broken; see `pytrtplugins.validation`.
    """
    onnx_ir = require("onnx_ir", extra="onnx", feature="passes")
    try:
        proto = read_onnx(model)[0] if isinstance(model, (str, Path)) else validated(model)
    except FileNotFoundError as error:
        raise ModelError(str(error)) from error
    try:
        ir_model: ir.Model = onnx_ir.from_proto(proto)
    except Exception as error:  # onnx-ir raises types of its own
        raise ModelError(
            f"{model if isinstance(model, (str, Path)) else 'model'}: not a model that passes can work on ({error})."
        ) from error
    return ir_model


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Give the model that other libraries take."""
    proto: onnx.ModelProto = require("onnx_ir", extra="onnx", feature="passes").to_proto(model)
    return proto


def _interface(model: ir.Model) -> tuple[list[str | None], list[str | None]]:
    return [value.name for value in model.graph.inputs], [value.name for value in model.graph.outputs]
