"""The engine that computes nothing: dims and dtypes are right, and all numbers are zero. It is for tests of code that calls engines."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..errors import BuildError
from ..model.decompose import infer_shapes, known_to_be_sound
from ..tensor import SymbolicDim, evaluate_dims
from ..utils.optional import onnx
from .base.context import Arrays, ExecutionContext
from .base.engine import Engine
from .base.types import BuildOptions

__all__ = ["NullEngine"]


class NullEngine(Engine):
    """Gives zeros in the outputs' dims. It has every precision, since it computes in none."""

    name: ClassVar[str] = "null"
    plugin_forms: ClassVar[tuple[str, ...]] = ()  # it runs no plugin
    computes: ClassVar[bool] = False
    foreign_operators: ClassVar[bool] = True
    runs_blocks: ClassVar[bool] = True
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "bf16", "fp16", "int8", "fp8")

    def __init__(self, model: onnx.ModelProto, options: BuildOptions) -> None:
        complete = infer_shapes(model)
        with known_to_be_sound(complete):
            super().__init__(complete, options)

    def _create_context(self) -> ExecutionContext:
        return NullContext(self)


class NullContext(ExecutionContext):
    """Nothing to hold."""

    def _run(self, inputs: Arrays) -> Arrays:
        sizes, outputs = self._sizes(inputs), dict[str, Any]()
        for desc in self.engine.outputs:
            if any(isinstance(dim, SymbolicDim) and dim.name not in sizes for dim in desc.dims):
                raise BuildError(f"engine 'null': the dims of output {desc} cannot be inferred from the inputs' dims")
            outputs[desc.name] = np.zeros(evaluate_dims(desc.dims, sizes), desc.dtype.numpy)
        return outputs
