"""The second library for CPUs: onnxruntime."""

from __future__ import annotations

from typing import Any, ClassVar

from ...errors import BuildError, ExecutionError
from ...model.decompose import add_shapes
from ...model.proto import arrays_of, copy_of, has_shape, infos_of, node_name
from ...passes import Placement, of_onnx, run_passes
from ...plugin.policy import RUNNING, chosen_form
from ...plugin.runner import PluginRunner
from ...utils.cpu_features import default_threads
from ...utils.optional import onnx
from ...utils.override import override
from ..base.context import Arrays, ExecutionContext
from ..base.failures import as_error, name_expanded_nodes
from ..base.fusion import Part, part_of
from ..base.plugin_codes import WriteCodes
from ..base.types import BuildOptions
from ..host.host_engine import HostEngine
from ..host.ort_session import make_session, optimized_model, unsupported_node
from ..host.unsigned import UnsignedActivations
from .faults import harmful_optimizers, with_zero_points
from .split import PluginStep, constants_outside, split

__all__ = ["PLACEMENT", "OnnxruntimeEngine"]

_HARMFUL = ["MatMulAddFusion"]  # makes float32's Gemm of an int8 product and an addition

PLACEMENT = Placement(
    layers=Placement().layers - {"ConvTranspose"},
    kernels=frozenset(("Add", "AveragePool", "GlobalAveragePool", "HardSigmoid", "LeakyRelu", "Mul", "Sigmoid")),
    results=frozenset(("Conv", "Gemm")),
    repeated=True,
    unsigned=True,
    rewritten=True,
    pooled=True,
)
"""onnxruntime makes QLinearConv, QLinearAdd ... of DQ → operator → Q alone; HardSigmoid it computes in float between them.

It has no kernel for ConvTranspose in int8, and none that rectifies: Relu and Clip are done by saturation, where the zero
point is 0. MatMul gives float (MatMulIntegerToFloat).
"""


class OnnxruntimeEngine(HostEngine):
    """onnxruntime on the CPU.

    Plugins with a decomposition are written out, unless the user asks for another form; the graph is cut at the others, which
    run between the sessions. INT8 has the form of `PLACEMENT`. FP8 rounds values as GPUs do, and computes in float32: it shows what
    FP8 costs in accuracy.
    """

    name: ClassVar[str] = "onnxruntime"
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "int8", "fp8")
    library: ClassVar[str] = "onnxruntime"
    placement: ClassVar[Placement] = PLACEMENT
    runs_contrib: ClassVar[bool] = True
    runs_blocks: ClassVar[bool] = True

    def __init__(self, model: onnx.ModelProto, options: BuildOptions) -> None:
        super().__init__(model, options)
        standard = self._standard_form()
        try:
            self._start(standard)
        except BuildError as error:  # it has not all kernels for its own operators
            written = of_onnx(standard)
            if written is standard:
                raise self._error_of_node(standard, error) from error.__cause__
            try:
                self._start(with_zero_points(add_shapes(written)))
            except BuildError as second:
                raise self._error_of_node(written, second) from second.__cause__

    def _start(self, standard: onnx.ModelProto) -> None:
        """Cut a model at its plugins, and make the sessions."""
        self._steps = split(standard)
        self._constants = constants_outside(standard)
        self._sessions = {
            index: self._session(step.model)
            for index, step in enumerate(self._steps)
            if not isinstance(step, PluginStep)
        }

    def _error_of_node(self, model: onnx.ModelProto, error: BuildError) -> BuildError:
        """The same error with the name of the node that onnxruntime lacks; its text names at most one inside a decomposition."""
        node = unsupported_node(model) if isinstance(error.__cause__, Exception) else None
        if node is None:
            return error
        operator = f"{node.domain or 'ai.onnx'}::{node.op_type}"
        return BuildError(
            f'node {node_name(node)!r} ({operator}): {error}\nDo: build with engine="cpu" or engine="reference"',
            **{**error.facts, "op": node.op_type, "node": node.name},
        )

    def _create_context(self) -> ExecutionContext:
        return OnnxruntimeContext(self)

    @override
    def parts(self) -> tuple[Part, ...]:
        found = list[Part]()
        for step in self._steps:
            if isinstance(step, PluginStep):
                found.append(Part(step.name, type(step.plugin).__name__, tuple(step.inputs), tuple(step.outputs)))
            else:
                found += [part_of(node.name, node.op_type, [node]) for node in self._optimized(step.model).graph.node]
        return tuple(found)

    @override
    def weight_bytes(self) -> int | None:
        if any(isinstance(step, PluginStep) for step in self._steps):
            return None  # a plugin has its own
        models = [self._optimized(step.model) for step in self._steps if not isinstance(step, PluginStep)]
        arrays = [array for model in models for array in arrays_of(model.graph.initializer).values()]
        return sum(array.nbytes for array in (*arrays, *self._constants.values()))

    def _optimized(self, model: onnx.ModelProto) -> onnx.ModelProto:
        return optimized_model(model, self._disabled(model))

    def _standard_form(self) -> onnx.ModelProto:
        codes = WriteCodes(self.plugin_forms, self.options.plugins)
        form = run_passes(self._written_out(), codes, UnsignedActivations())
        infos = infos_of(form.graph)
        if form is not self.model:
            form = add_shapes(form)
        elif not all(has_shape(infos, name) for node in form.graph.node for name in node.output if name):
            form = add_shapes(copy_of(form))  # a quantizer does not say the dims of all that it adds
        return with_zero_points(form)

    def _session(self, model: onnx.ModelProto) -> Any:
        entries = self._exact_sums()
        if len(self._steps) > 1:  # sessions that wait for each other must not spin
            entries["session.force_spinning_stop"] = "1"
        if self.precision == "fp8":  # else it moves codes through operators that it cannot run on FP8, such as MaxPool
            entries["session.disable_quant_qdq"] = "1"
        threads = self.options.threads or default_threads()
        with as_error("onnxruntime cannot build the model", self.name):
            return make_session(model, threads, entries, self._disabled(model))

    def _disabled(self, model: onnx.ModelProto) -> list[str]:
        return [*(_HARMFUL if self.precision == "int8" else []), *harmful_optimizers(model)]


class OnnxruntimeContext(ExecutionContext):
    """The sessions of the engine, which are safe to share, and a clone of each plugin."""

    engine: OnnxruntimeEngine

    def __init__(self, engine: OnnxruntimeEngine) -> None:
        super().__init__(engine)
        self._runners = {
            index: PluginRunner(
                step.plugin.clone(),
                step.name,
                form=chosen_form(type(step.plugin), engine.plugin_forms, engine.options.plugins, RUNNING),
                scales=step.scales,
            )
            for index, step in enumerate(engine._steps)
            if isinstance(step, PluginStep)
        }

    def _run(self, inputs: Arrays) -> Arrays:
        tensors: Arrays = {**self.engine._constants, **inputs}
        for index, step in enumerate(self.engine._steps):
            if isinstance(step, PluginStep):
                results = self._runners[index].run([tensors[name] for name in step.inputs])
            else:
                session = self.engine._sessions[index]
                given = {name: tensors[name] for name in step.inputs}
                with (
                    name_expanded_nodes(lambda: self.engine.model_without_weights),
                    as_error("onnxruntime failed in the run", self.engine.name, ExecutionError),
                ):
                    results = session.run(list(step.outputs), given)
            tensors.update(zip(step.outputs, results, strict=True))
        kept = {*self.engine._constants, *inputs}  # not the caller's
        return {
            desc.name: tensors[desc.name].copy() if desc.name in kept else tensors[desc.name]
            for desc in self.engine.outputs
        }

    def _close(self) -> None:
        for runner in self._runners.values():
            runner.close()
