"""TensorRT where the user has it: ONNX and plugins in, a serialized engine out, and runs on the GPU."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...calibration import CalibrationTable, Calibrator
from ...errors import BuildError, EngineError, UnavailableError
from ...passes import quantized_tensors
from ...registry import PluginKey
from ...tensor import DType
from ..base import Arrays, Availability, BuildOptions, Engine, ExecutionContext
from ..calibrate import float_tensors, network_digest
from . import _api
from .builder import build_plan
from .calibration import CalibrationSource, make_calibrator
from .collected import ErrorLog, collecting
from .creators import register_key
from .device import find_device
from .graph import parser_form, plugin_keys, written_out
from .half import to_half
from .logger import make_logger
from .settings import NAMES, Settings

if TYPE_CHECKING:
    import onnx

__all__ = ["TensorrtEngine"]

_HALF = {"fp16": DType.FLOAT16, "bf16": DType.BFLOAT16}


class TensorrtEngine(Engine):
    """TensorRT 10 or 11.

    Precisions are those of a typed network: ``"fp16"`` and ``"bf16"`` write the model in that type, ``"int8"`` takes its
    Q/DQ nodes; the float layers of an int8 engine compute in float32. With ``settings={"quantization": "implicit"}``
    TensorRT 10 calibrates itself, over the same calibrators and cache file. What else can be set: `Settings`.

    Args:
        model: A prepared model.
        options: How to build.
        calibration: For implicit quantization.
        plan: The serialized engine; None: it is built.
    """

    name: ClassVar[str] = "tensorrt"
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "bf16", "fp16", "int8")
    settings: ClassVar[tuple[str, ...]] = NAMES

    def __init__(
        self,
        model: onnx.ModelProto,
        options: BuildOptions,
        *,
        calibration: CalibrationSource | None = None,
        plan: bytes | None = None,
    ) -> None:
        super().__init__(model, options)
        self._api = _api.load()
        self._settings = Settings.read(options.settings)
        self._device = find_device(options.device)
        self._errors = ErrorLog()
        self._form = written_out(model)
        self._keys = plugin_keys(self._form)
        for key in self._keys:
            register_key(key)
        self.plan = self._build(calibration) if plan is None else plan
        self._logger, self._runtime, self._engine = self._deserialize()

    @classmethod
    def availability(cls) -> Availability:
        """Whether TensorRT and a GPU are here."""
        try:
            api, device = _api.load(), find_device()
        except (EngineError, UnavailableError) as error:
            return Availability(cls.name, str(error), "")
        runs_only = "" if api.builds else ", which runs engines and cannot build them"
        return Availability(cls.name, "", f"{api.name} {api.version}{runs_only}, on {device}")

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any]) -> None:
        """Require settings of TensorRT's, with right values."""
        super().check_settings(settings)
        Settings.read(settings)

    @classmethod
    def calibrated(
        cls, model: onnx.ModelProto, options: BuildOptions, calibration: Calibrator | CalibrationTable | str | Path
    ) -> Engine | None:
        """With implicit quantization, an engine that TensorRT quantizes; else None."""
        if Settings.read(options.settings).quantization != "implicit":
            return None
        if isinstance(calibration, Calibrator):
            calibration.bind({info.name: _dims(info) for info in model.graph.input})
        tensors = float_tensors(model)
        source = CalibrationSource(calibration, tensors, quantized_tensors(model), network_digest(model))
        return cls(model, options, calibration=source)

    @classmethod
    def restore(cls, model: onnx.ModelProto, options: BuildOptions, payload: bytes) -> Engine:
        """Load the serialized engine of an engine file."""
        if not payload:
            raise BuildError("the file holds no serialized engine", engine=cls.name)
        return cls(model, options, plan=payload)

    def payload(self) -> bytes:
        """The serialized engine, as TensorRT's own tools load it."""
        return self.plan

    def requirements(self) -> dict[str, Any]:
        """TensorRT's version, the GPU, and the plugins that must be registered."""
        return {
            "tensorrt": self._api.version,
            "version_compatible": self._settings.version_compatible,
            "device": self._device.name,
            "compute_capability": self._device.capability,
            "plugins": [list(key) for key in self._keys],
        }

    @classmethod
    def check_requirements(cls, requirements: Mapping[str, Any]) -> str:
        """Why an engine with these requirements cannot be loaded here; empty when it can.

        Raises:
            RegistryError: it names a plugin that is not registered.
        """
        here, built = _api.load().version, str(requirements.get("tensorrt"))
        major = built.partition(".")[0] == here.partition(".")[0]
        newer = _numbers(here) >= _numbers(built)
        if built != here and not (requirements.get("version_compatible") is True and major and newer):
            return f"it was built with TensorRT {built}; here is {here}"
        device = find_device()
        if requirements.get("compute_capability") != device.capability:
            return (
                f"it was built for {requirements.get('device')} (compute capability "
                f"{requirements.get('compute_capability')}); here is {device}"
            )
        plugins = requirements.get("plugins")
        if not (isinstance(plugins, list) and all(_is_key(key) for key in plugins)):
            return f"its list of plugins is damaged: {plugins!r}"
        for key in plugins:
            register_key(PluginKey(*key))
        return ""

    def _create_context(self) -> ExecutionContext:
        return TensorrtContext(self)

    def _build(self, source: CalibrationSource | None) -> bytes:
        self._api.require_builder()
        form = self._form
        if self.precision in _HALF:
            form = to_half(form, _HALF[self.precision])
        ranges = self._settings.ranges(self.inputs)
        calibrator = None
        if source is not None:
            batch = next(iter(ranges.values()))[1][0] if ranges else int(self.inputs[0].dims[0])
            calibrator = functools.partial(make_calibrator, self._api, source, batch, self._device)
        return build_plan(self._api, parser_form(form), self.options, self._settings, ranges, self._device, calibrator)

    def _deserialize(self) -> tuple[Any, Any, Any]:
        """The runtime, and its engine; every creator that the engine names is registered already."""
        logger = make_logger(self._api)
        with self._device.cupy.cuda.Device(self._device.index), collecting(self._errors):
            runtime = self._api.trt.Runtime(logger)
            if self._settings.version_compatible:
                runtime.engine_host_code_allowed = True
            engine = runtime.deserialize_cuda_engine(self.plan)
        if engine is None:
            raise BuildError(f"TensorRT {self._api.version} cannot load the engine:\n{logger.text()}", engine=self.name)
        return logger, runtime, engine


class TensorrtContext(ExecutionContext):
    """One of TensorRT's execution contexts, with a stream and buffers of its own."""

    engine: TensorrtEngine

    def __init__(self, engine: TensorrtEngine) -> None:
        super().__init__(engine)
        self._cupy, self._where = engine._device.cupy, engine._device.index
        with self._cupy.cuda.Device(self._where), collecting(engine._errors):
            self._context = engine._engine.create_execution_context()
            self._stream = self._cupy.cuda.Stream(non_blocking=True)
        if self._context is None:
            raise EngineError(f"{engine!r}: TensorRT cannot make a context:\n{engine._logger.text()}")
        self._buffers: dict[str, Any] = {}

    def _run(self, inputs: Arrays) -> Arrays:
        with self._cupy.cuda.Device(self._where), self._stream, collecting(ErrorLog()) as errors:
            for name, array in inputs.items():
                if self._buffer(name, array.shape, array.dtype) and not self._context.set_input_shape(
                    name, array.shape
                ):
                    raise EngineError(f"input {name!r}: TensorRT refuses dims {array.shape}: {self._said()}")
                self._buffers[name].set(array, stream=self._stream)
            for desc in self.engine.outputs:
                dims = tuple(self._context.get_tensor_shape(desc.name))
                errors.check()
                if any(dim < 0 for dim in dims):
                    raise EngineError(f"output {desc.name!r}: TensorRT cannot tell its dims: {dims}; {self._said()}")
                self._buffer(desc.name, dims, desc.dtype.numpy)
            if not self._context.execute_async_v3(self._stream.ptr):
                errors.check()
                raise EngineError(f"{self.engine!r}: the run failed: {self._said()}")
            found = {desc.name: self._buffers[desc.name].get(stream=self._stream) for desc in self.engine.outputs}
            self._stream.synchronize()
        return found

    def _buffer(self, name: str, dims: tuple[int, ...], dtype: Any) -> bool:
        """Have a buffer of these dims; whether it is a new one."""
        held = self._buffers.get(name)
        if held is not None and held.shape == tuple(dims):
            return False
        self._stream.synchronize()  # the last run may still read the old one
        self._buffers[name] = self._cupy.empty(dims, np.dtype(dtype))
        if not self._context.set_tensor_address(name, int(self._buffers[name].data.ptr)):
            raise EngineError(f"tensor {name!r}: TensorRT refuses the buffer: {self._said()}")
        return True

    def _said(self) -> str:
        return str(self.engine._logger.text())

    def _close(self) -> None:
        self._stream.synchronize()
        self._buffers.clear()
        del self._context


def _dims(info: onnx.ValueInfoProto) -> tuple[int | str, ...]:
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in info.type.tensor_type.shape.dim
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _is_key(key: Any) -> bool:
    return isinstance(key, list) and len(key) == len(PluginKey._fields) and all(isinstance(part, str) for part in key)
