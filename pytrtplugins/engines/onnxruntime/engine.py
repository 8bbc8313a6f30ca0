"""The second library for CPUs: onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..._optional import require
from ...decompose import infer_shapes, inline_plugins
from ...errors import BuildError, MissingExtraError, UnavailableError
from ...passes import UnsignedActivations, to_ir, to_proto
from ...plugin import Plugin
from ...tensor import DType, TensorDesc
from ..base import Arrays, Availability, BuildOptions, Engine, ExecutionContext
from ..cpu_features import default_threads, describe_cpu
from ..int8 import int8_requirements, missing_int8_features, safe_weight_levels
from .split import PluginStep, split

if TYPE_CHECKING:
    import onnx

__all__ = ["OnnxruntimeEngine"]


class OnnxruntimeEngine(Engine):
    """onnxruntime on the CPU.

    Plugins with a decomposition are written out; the graph is cut at the others, which run between the sessions. INT8
    quantizes around activation functions too, since onnxruntime computes LeakyRelu in int8 only then.
    """

    name: ClassVar[str] = "onnxruntime"
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "int8")

    def __init__(self, model: onnx.ModelProto, options: BuildOptions) -> None:
        super().__init__(model, options)
        if options.device not in (None, "CPU"):
            raise UnavailableError(
                f"engine 'onnxruntime': device {options.device!r} is unknown; it has CPU.\nDo: leave device out",
                device=options.device,
            )
        self._steps = split(self._standard_form())
        self._sessions = {
            index: self._session(step.model)
            for index, step in enumerate(self._steps)
            if not isinstance(step, PluginStep)
        }

    @classmethod
    def availability(cls) -> Availability:
        """Whether onnxruntime is installed."""
        try:
            onnxruntime = require("onnxruntime", extra="cpu", feature="engine 'onnxruntime'")
        except MissingExtraError as error:
            return Availability(cls.name, str(error), "")
        return Availability(cls.name, "", f"onnxruntime {onnxruntime.__version__} on {describe_cpu()}")

    @classmethod
    def quantize_options(cls) -> dict[str, Any]:
        """Around activations, and 7-bit weights where the CPU adds products in 16 bits."""
        return {"around_activations": True, "weight_levels": safe_weight_levels()}

    def requirements(self) -> dict[str, Any]:
        """What the weights need of the CPU."""
        return int8_requirements(self.model)

    @classmethod
    def check_requirements(cls, requirements: Mapping[str, Any]) -> str:
        """Why an engine cannot be loaded here."""
        return missing_int8_features(requirements)

    def _create_context(self) -> ExecutionContext:
        return OnnxruntimeContext(self)

    def _standard_form(self) -> onnx.ModelProto:
        ir_model = to_ir(inline_plugins(self.model))
        UnsignedActivations()(ir_model)
        return infer_shapes(to_proto(ir_model))

    def _session(self, model: onnx.ModelProto) -> Any:
        ort = require("onnxruntime", extra="cpu", feature="engine 'onnxruntime'")
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = self.options.threads or default_threads()
        if len(self._steps) > 1:  # sessions that wait for each other must not spin
            options.add_session_config_entry("session.force_spinning_stop", "1")
        try:
            return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises types of its own
            raise BuildError(f"onnxruntime cannot build the model: {error}", engine=self.name) from error


class OnnxruntimeContext(ExecutionContext):
    """The sessions of the engine, which are safe to share, and a clone of each plugin."""

    engine: OnnxruntimeEngine

    def __init__(self, engine: OnnxruntimeEngine) -> None:
        super().__init__(engine)
        self._plugins: dict[int, Plugin] = {}
        self._shapes: dict[int, Any] = {}

    def _run(self, inputs: Arrays) -> Arrays:
        tensors: Arrays = dict(inputs)
        for index, step in enumerate(self.engine._steps):
            if isinstance(step, PluginStep):
                tensors.update(self._run_plugin(index, step, tensors))
            else:
                session = self.engine._sessions[index]
                results = session.run(list(step.outputs), {name: tensors[name] for name in step.inputs})
                tensors.update(zip(step.outputs, results, strict=True))
        return {desc.name: tensors[desc.name] for desc in self.engine.outputs}

    def _run_plugin(self, index: int, step: PluginStep, tensors: Arrays) -> Arrays:
        given = [tensors[name] for name in step.inputs]
        plugin = self._plugins.get(index) or step.plugin.clone()
        dims = plugin.all_output_dims([array.shape for array in given])
        dtypes = plugin.all_output_dtypes([DType.of(array) for array in given], len(dims))
        outputs = [np.empty(shape, dtype.numpy) for shape, dtype in zip(dims, dtypes, strict=True)]
        ins, outs = (
            [TensorDesc(name, array.shape, DType.of(array)) for name, array in zip(names, arrays, strict=True)]
            for names, arrays in ((step.inputs, given), (step.outputs, outputs))
        )
        if self._shapes.get(index) != (ins, outs):
            plugin.configure(ins, outs)
            self._shapes[index] = (ins, outs)
        if index not in self._plugins:
            plugin.initialize()
            self._plugins[index] = plugin
        size = plugin.workspace_size(ins, outs)
        plugin.enqueue(given, outputs, np.empty(size, np.uint8) if size else None, None)
        return dict(zip(step.outputs, outputs, strict=True))

    def _close(self) -> None:
        while self._plugins:
            self._plugins.popitem()[1].terminate()
