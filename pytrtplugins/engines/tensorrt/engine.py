"""The engine for TensorRT: it builds a serialized engine from ONNX and plugins, and runs it on the GPU."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ...calibration import CalibrationTable, Calibrator
from ...errors import BuildError, EngineError, UnavailableError
from ...model.ir import rewrite
from ...model.proto import info_dims
from ...passes import Placement
from ...passes.codes import CODES
from ...passes.half import HALF_TYPES, convert_to_half, with_typed_scales
from ...passes.half_ranges import float_nodes
from ...plugin.policy import GPU_FORMS
from ...plugin.registry import PluginKey
from ...tensor import DType
from ...utils.listing import first_texts
from ...utils.optional import ir, onnx
from ...utils.override import override
from ..base.arithmetic import Arithmetic
from ..base.context import ExecutionContext
from ..base.engine import Engine
from ..base.engine_file import EngineFile
from ..base.plugins import forms_run
from ..base.types import Availability, BuildOptions
from . import _api
from .builder import build_plan
from .calibration import CalibrationSource, make_calibrator
from .collected import ErrorLog, collecting
from .context import TensorrtContext
from .creators import register_key
from .device import find_device
from .graph import ParserForm, plugin_keys, written_out
from .logger import Messages, make
from .settings import NAMES, Settings

__all__ = ["TensorrtEngine"]

_SHOWN = 3  # nodes in a choice
PLACEMENT = Placement(fp8_pools=False, sliced_pools=False)
"""As TensorRT for RTX's list of layers shows it: docs/how-to/tensorrt_qdq.md."""


class TensorrtEngine(Engine):
    """TensorRT 10 or 11.

    Precisions are those of a typed network: ``"fp16"`` and ``"bf16"`` write the model in that type, ``"int8"`` and
    ``"fp8"`` take its Q/DQ nodes; the float layers of such an engine compute in float32. With ``settings={"quantization": "implicit"}``
    TensorRT 10 calibrates itself, over the same calibrators and cache file. What else can be set: `Settings`.
    Without a plan, the serialized engine, one is built.
    """

    name: ClassVar[str] = "tensorrt"
    plugin_forms: ClassVar[tuple[str, ...]] = GPU_FORMS
    package: ClassVar[str] = "tensorrt"
    """As `_api.load` takes it."""
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "bf16", "fp16", "int8", "fp8")
    settings: ClassVar[tuple[str, ...]] = tuple(name for name in NAMES if name != "target")
    survives_fork: ClassVar[bool] = False
    foreign_operators: ClassVar[bool] = True
    asks_fast: ClassVar[bool] = False

    def __init__(
        self,
        model: onnx.ModelProto,
        options: BuildOptions,
        *,
        calibration: CalibrationSource | None = None,
        plan: bytes | None = None,
    ) -> None:
        super().__init__(model, options)
        self.api = _api.load(self.package)
        self._settings = Settings.read(options.settings)
        self.device = self._find_device(options)
        self.errors = ErrorLog()
        self._form = written_out(model, options.plugins)
        self.choices.update(forms_run(model, self._form, self.plugin_forms, options.plugins))
        self._keys = plugin_keys(self._form)
        for key in self._keys:
            register_key(key, self.package)
        if self.arithmetic.precision == "fp32" and options.precision in CODES:
            self.note_fallback(self.arithmetic.reason)
        self.plan = self._build(calibration) if plan is None else plan
        self._runtime, self.cuda_engine = self._deserialize()

    @classmethod
    def availability(cls) -> Availability:
        """Whether TensorRT and a GPU are here."""
        try:
            api, device = _api.load(cls.package), find_device()
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
    @override
    def quantize_options(cls, precision: str = "int8", rest: str = "fp32") -> dict[str, Any]:
        """Its convolutions take codes behind a Q/DQ pair, and not always behind a MaxPool that hands codes on: see `PLACEMENT`."""
        return {"placement": replace(PLACEMENT, int8_pools=rest != "bf16")}

    @classmethod
    def calibrated(
        cls, model: onnx.ModelProto, options: BuildOptions, calibration: Calibrator | CalibrationTable | str | Path
    ) -> Engine | None:
        """With implicit quantization, an engine that TensorRT quantizes; else None."""
        if Settings.read(options.settings).quantization != "implicit":
            return None
        if isinstance(calibration, Calibrator):
            calibration.bind({info.name: info_dims(info) for info in model.graph.input})
        return cls(model, options, calibration=CalibrationSource(calibration, model))

    @classmethod
    def restore(cls, file: EngineFile, options: BuildOptions) -> Engine:
        """Load the serialized engine of an engine file."""
        payload = file.payload()
        if not payload:
            raise BuildError("the file holds no serialized engine", engine=cls.name)
        return cls(file.model(), options, plan=payload)

    @property
    @override
    def arithmetic(self) -> Arithmetic:
        if self._settings.quantization == "implicit":  # TensorRT chooses the layers
            return Arithmetic(self.precision, self.precision)
        return super().arithmetic

    def payload(self) -> bytes:
        """The serialized engine, as TensorRT's own tools load it."""
        return self.plan

    def requirements(self) -> dict[str, Any]:
        """TensorRT's version, the GPU, and the plugins that must be registered."""
        return {
            "tensorrt": self.api.version,
            "version_compatible": self._settings.version_compatible,
            "cuda": f"cuda:{self.device.index}",
            "device": self.device.name,
            "compute_capability": self.device.capability,
            "plugins": [list(key) for key in self._keys],
        }

    @classmethod
    @override
    def check_requirements(cls, requirements: Mapping[str, Any], device: str | None = None) -> str:
        api = _api.load(cls.package)
        compatible = requirements.get("version_compatible") is True
        reason = _version_problem(api, str(requirements.get("tensorrt")), compatible)
        if reason:
            return reason
        gpu = find_device(device or requirements.get("cuda"))
        if requirements.get("compute_capability") != gpu.capability:
            return (
                f"it was built for {requirements.get('device')} (compute capability "
                f"{requirements.get('compute_capability')}); here is {gpu}"
            )
        return cls._register_plugins(requirements.get("plugins"))

    @classmethod
    def _register_plugins(cls, plugins: Any) -> str:
        """Register the plugins that an engine file lists; why that cannot be, or an empty text."""
        if not (isinstance(plugins, list) and all(_is_key(key) for key in plugins)):
            return f"its list of plugins is damaged: {plugins!r}"
        for key in plugins:
            register_key(PluginKey(*key), cls.package)
        return ""

    def _find_device(self, options: BuildOptions) -> Any:
        return find_device(options.device)

    def _create_context(self) -> ExecutionContext:
        return TensorrtContext(self)

    def _build(self, source: CalibrationSource | None) -> bytes:
        self.api.require_builder()
        ranges = self._settings.ranges(self.inputs)
        calibrator = None
        if source is not None:
            batch = next(iter(ranges.values()))[1][0] if ranges else int(self.inputs[0].dims[0])
            calibrator = functools.partial(make_calibrator, self.api, source, batch, self.device)
        dtype = HALF_TYPES.get(self.precision)

        def write(form: ir.Model) -> None:
            if dtype is not None:
                self._halve(form, dtype)
            ParserForm(self.options.plugins)(form)

        form = rewrite(self._form if dtype is None else with_typed_scales(self._form), write)
        return build_plan(self.api, form, self.options, self._settings, ranges, self.device, calibrator)

    def _halve(self, form: ir.Model, dtype: DType) -> None:
        """Write the model in half precision, but for nodes that read numbers beyond it, such as the masks of transformers."""
        kept = float_nodes(form, dtype, {})
        beyond = [f"{name}: {why}" for name, why in kept.items() if why.startswith("constant")]
        if beyond:
            texts = first_texts(beyond, _SHOWN, "; ", "; and ")
            self.choices[self.precision] = f"float32 where numbers are beyond it: {texts}"
        keep = [name for name, why in kept.items() if why.startswith("constant")]
        convert_to_half(form, dtype, keep=keep, refuse_overflow=True)

    def _deserialize(self) -> tuple[Any, Any]:
        """The runtime, and its engine; every creator that the engine names is registered already."""
        messages = Messages(self.api)
        with self.device.cupy.cuda.Device(self.device.index), collecting(self.errors):
            runtime = make(self.api, "Runtime")
            if self._settings.version_compatible:
                runtime.engine_host_code_allowed = True
            engine = runtime.deserialize_cuda_engine(self.plan)
        if engine is None:
            raise BuildError(f"{self.api.title} cannot load the engine: {messages.text()}", engine=self.name)
        self._check_bindings(engine)
        return runtime, engine

    def _check_bindings(self, engine: Any) -> None:
        """Require inputs and outputs of the model's names and types, on the GPU."""
        for desc in (*self.inputs, *self.outputs):
            if engine.get_tensor_mode(desc.name) == self.api.trt.TensorIOMode.NONE:
                raise BuildError(f"the engine has no tensor {desc.name!r}: it is another model's", engine=self.name)
            dtype = self.api.dtype(engine.get_tensor_dtype(desc.name))
            if dtype != desc.dtype:
                raise BuildError(f"tensor {desc.name!r}: TensorRT made it {dtype}, the model {desc.dtype}")
            if engine.is_shape_inference_io(desc.name):
                raise BuildError(
                    f"tensor {desc.name!r} holds sizes of other tensors, which TensorRT wants in the CPU's memory.\n"
                    "Do: make the sizes constants of the model"
                )


def _version_problem(api: _api.Api, built: str, compatible: bool) -> str:
    """Why this TensorRT cannot load an engine of another; empty when it can."""
    here = api.version
    same_major = built.partition(".")[0] == here.partition(".")[0]
    if built != here and not (compatible and same_major and _numbers(here) >= _numbers(built)):
        return f"it was built with TensorRT {built}; here is {here}"
    if not api.builds and not compatible:
        return f"it was built without the setting version_compatible=true, which {api.name} needs"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _is_key(key: Any) -> bool:
    return isinstance(key, list) and len(key) == len(PluginKey._fields) and all(isinstance(part, str) for part in key)
