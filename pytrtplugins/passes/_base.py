"""What a graph pass is: a checked step from one ONNX model to another, on onnx-ir's in-memory form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from .._optional import require

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["Pass", "PassResult", "to_ir", "to_proto"]


@dataclass(frozen=True)
class PassResult:
    """A model and whether the pass changed it."""

    model: ir.Model
    modified: bool


class Pass(ABC):
    """A step from model to model; subclasses fill in `call`."""

    name: ClassVar[str]

    def __call__(self, model: ir.Model) -> PassResult:
        """Run the pass."""
        return self.call(model)

    @abstractmethod
    def call(self, model: ir.Model) -> PassResult:
        """Change the model in place."""


def to_ir(model: str | Path | onnx.ModelProto) -> ir.Model:
    """Read a model into onnx-ir's form."""
    onnx_ir = require("onnx_ir", extra="onnx", feature="passes")
    ir_model: ir.Model = onnx_ir.load(model) if isinstance(model, (str, Path)) else onnx_ir.from_proto(model)
    return ir_model


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Write onnx-ir's form as a model."""
    proto: onnx.ModelProto = require("onnx_ir", extra="onnx", feature="passes").to_proto(model)
    return proto
