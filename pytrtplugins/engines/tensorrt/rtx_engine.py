"""The engine for TensorRT for RTX: it builds on any machine, for GPUs of compute capability 7.5 to 8.9, and 12."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

from ...errors import BuildError, EngineError, UnavailableError, UsageError
from ...tensor import Array
from ...utils.optional import onnx
from ...utils.override import override
from ..base.context import Arrays, ExecutionContext
from ..base.engine import Engine
from ..base.engine_file import EngineFile
from ..base.types import Availability, BuildOptions
from . import _api
from .calibration import CalibrationSource
from .context import TensorrtContext
from .device import Device, find_device
from .engine import TensorrtEngine
from .jit_cache import JitCache, cache_path
from .logger import make
from .settings import TARGETS

__all__ = ["TensorrtRtxEngine"]

_log = logging.getLogger(__name__)
_LACKING = {
    "quantization": "it has no calibrators: scales become Q/DQ nodes",
    "version_compatible": "its engines are for the version that built them",
    "workspace_bytes": "it ignores the limit",
    "level": "it ignores the level: kernels are made where the engine runs",
    "timing_cache": "it measures no kernels while it builds",
}
"""Settings of engine `tensorrt` → why they do nothing here."""


class TensorrtRtxEngine(TensorrtEngine):
    """TensorRT for RTX, whose networks, precisions and plugins are those of TensorRT 11.

    An engine is built without a GPU, for the GPUs of the setting ``target``; kernels are made on the machine that runs it. It runs on
    GPUs of compute capability 7.5 to 8.9, and 12.
    """

    name: ClassVar[str] = "tensorrt_rtx"
    package: ClassVar[str] = _api.RTX
    settings: ClassVar[tuple[str, ...]] = ("batch", "shapes", "target")
    jit_path: Path | None = None
    """Where the kernels that are made here are kept: beside the engine file."""

    def __init__(
        self,
        model: onnx.ModelProto,
        options: BuildOptions,
        *,
        calibration: CalibrationSource | None = None,
        plan: bytes | None = None,
    ) -> None:
        super().__init__(model, options, calibration=calibration, plan=plan)
        self.choices["runs on"] = f"GPUs of {', '.join(self._settings.target or TARGETS[1:])}"

    @classmethod
    def availability(cls) -> Availability:
        """Whether it is installed, and which GPUs run what it builds."""
        try:
            api = _api.load(cls.package)
        except (EngineError, UnavailableError) as error:
            return Availability(cls.name, str(error), "")
        if isinstance(device := _usable_device(), str):
            return Availability(cls.name, f"it builds here, and does not run: {device}", f"{api.title}", builds=True)
        return Availability(cls.name, "", f"{api.title}, on {device}", builds=True)

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any]) -> None:
        """Require settings of this engine's, with right values."""
        for name in settings:
            if name in _LACKING:
                raise UsageError(
                    f"engine {cls.name!r}: the setting {name} is engine 'tensorrt''s: {_LACKING[name]}", setting=name
                )
        super().check_settings(settings)

    @override
    def requirements(self) -> dict[str, Any]:
        targets = self._settings.target or TARGETS[1:]
        return {"tensorrt": self.api.version, "target": list(targets), "plugins": [list(key) for key in self._keys]}

    @classmethod
    @override
    def check_requirements(cls, requirements: Mapping[str, Any], device: str | None = None) -> str:
        api = _api.load(cls.package)
        if requirements.get("tensorrt") != api.version:
            return f"it was built with TensorRT for RTX {requirements.get('tensorrt')}; here is {api.version}"
        targets, here = requirements.get("target"), _usable_device(device)
        if not (isinstance(targets, list) and all(target in TARGETS for target in targets)):
            return f"its list of GPUs is damaged: {targets!r}"
        if isinstance(here, Device) and _target(here) not in targets:
            return f"it was built for {', '.join(targets)}; here is {here}"
        return cls._register_plugins(requirements.get("plugins"))

    def _find_device(self, options: BuildOptions) -> Device | None:
        found = _usable_device(options.device)
        return found if isinstance(found, Device) else None

    @classmethod
    @override
    def restore(cls, file: EngineFile, options: BuildOptions) -> Engine:
        engine = super().restore(file, options)
        cast("TensorrtRtxEngine", engine).jit_path = cache_path(file.path)
        return engine

    @override
    def save(self, path: str | Path) -> None:
        super().save(path)
        self.jit_path = cache_path(path)

    def _create_context(self) -> ExecutionContext:
        if self.cuda_engine is None:
            raise UnavailableError(
                f"engine {self.name!r} cannot run here: {_usable_device(self.options.device)}", engine=self.name
            )
        return RtxContext(self)

    def _deserialize(self) -> tuple[Any, Any]:
        """The runtime and its engine; None for both where no GPU runs it."""
        if self.device is None:
            return None, None
        validity, diagnostics = make(self.api, "Runtime").get_engine_validity(self.plan)
        if validity == self.api.trt.EngineValidity.INVALID:
            raise BuildError(
                f"{self.api.title} cannot load the engine on {self.device}: {diagnostics}", engine=self.name
            )
        if validity == self.api.trt.EngineValidity.SUBOPTIMAL:
            _log.warning("engine %r: it would be faster if it were built on this machine: %s", self.name, diagnostics)
        return super()._deserialize()


class RtxContext(TensorrtContext):
    """A context that makes kernels on its first run with each set of dims, and keeps them beside the engine file."""

    engine: TensorrtRtxEngine

    def _make_context(self) -> Any:
        self._jit = JitCache(self.engine.cuda_engine, self.engine.jit_path)
        return self.engine.cuda_engine.create_execution_context(self._jit.config)

    def _run_into(self, inputs: Arrays, outputs: Mapping[str, Array]) -> Arrays:
        known = dict(self._dims)
        results = super()._run_into(inputs, outputs)
        if self._dims != known:
            self._jit.keep()
        return results


def _usable_device(name: str | None = None) -> Device | str:
    """The GPU, if it runs such engines; else why there is none."""
    try:
        device = find_device(name, _api.RTX)
    except (EngineError, UnavailableError) as error:
        return f"it runs on GPUs of compute capability 7.5 to 8.9, and 12; {error}"
    if _target(device) not in TARGETS:
        return f"it runs on GPUs of compute capability 7.5 to 8.9, and 12; here is {device}"
    return device


def _target(device: Device) -> str:
    return f"sm{device.capability.replace('.', '')}"
