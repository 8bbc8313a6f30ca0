"""An engine of another package: ONNX's own reference evaluator, with plugins by their `compute`.

    pip install samples/onnx_reference_engine
    pytrt run net.onnx --engine onnx_reference

The entry point in pyproject.toml makes its name known to `pytrtplugins.build`, `load_engine` and ``pytrt``. Without an installation
``build(model, engine=OnnxReferenceEngine)`` takes the class itself.
``test_contract = pytrtplugins.testing.engine_contract("onnx_reference")`` is its test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from pytrtplugins.engines import BuildOptions, Engine, ExecutionContext
from pytrtplugins.plugin import from_node, registered

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import onnx


class OnnxReferenceEngine(Engine):
    """Computes with NumPy, node by node."""

    name: ClassVar[str] = "onnx_reference"
    plugin_forms: ClassVar[tuple[str, ...]] = ("compute",)

    def __init__(self, model: onnx.ModelProto, options: BuildOptions) -> None:
        super().__init__(model, options)
        plugins = [_operator(key.namespace, key.name) for key in registered()]
        self.evaluator = ReferenceEvaluator(model, new_ops=plugins)

    def _create_context(self) -> ExecutionContext:
        return _Context(self)


class _Context(ExecutionContext):
    def _run(self, inputs: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        assert isinstance(self.engine, OnnxReferenceEngine)
        names = [desc.name for desc in self.engine.outputs]
        return dict(zip(names, self.engine.evaluator.run(names, inputs), strict=True))


def _operator(namespace: str, name: str) -> type[OpRun]:
    """The evaluator's class for the nodes of a plugin."""

    def run(self: OpRun, *arrays: npt.NDArray[np.generic], **_: object) -> tuple[npt.NDArray[np.generic], ...]:
        return tuple(from_node(self.onnx_node).all_outputs(arrays))

    return type(name, (OpRun,), {"op_domain": namespace, "_run": run})
