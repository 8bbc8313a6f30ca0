"""The common part of the engines that run on the host's CPU."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy.typing as npt

from ...errors import MissingExtraError, UnavailableError
from ...passes import CODES, Placement
from ...utils.cpu_features import describe_cpu
from ...utils.optional import onnx, require
from ...utils.override import override
from ..base.engine import ALWAYS, Engine
from ..base.failures import shorten_message
from ..base.plugins import forms_run, write_decompositions
from ..base.types import Availability, BuildOptions
from .int8 import SAFE_LEVELS, int8_requirements, missing_int8_features, safe_weight_levels
from .timing import run_seconds, sample_inputs

__all__ = ["HostEngine"]

_log = logging.getLogger(__name__)
_FLOAT_GAIN = (
    0.9  # float32 must take less than this part of INT8's time to be chosen: times that are about equal keep INT8
)
_EMULATED = "values are rounded as FP8 rounds them and computed with in float32, which shows its accuracy and is slower"


class HostEngine(Engine):
    """Base of the engines for CPUs: one device, int8 weights that suit the CPU, and INT8 only if it is faster.

    What `pytrtplugins.build` quantizes is built in INT8 and in float32; both are timed, and the faster one is kept, INT8 where
    they are about equal, unless ``settings={"int8": "always"}``. A model that has Q/DQ already, and a precision file, are taken at
    their word.

    Attributes:
        library: Name of the library below the engine; in lower case that of its module.
        placement: Where the library's int8 kernels want Q/DQ.
        float_reason: Why a model that was quantized elsewhere cannot have its INT8 layers computed in plain int8 here, but
            in a slower form with right numbers; empty when it can.

    Raises:
        UnavailableError: the options name another device than ``"CPU"``.
    """

    settings: ClassVar[tuple[str, ...]] = ("int8",)
    library: ClassVar[str]
    placement: ClassVar[Placement]

    def __init__(self, model: onnx.ModelProto, options: BuildOptions) -> None:
        super().__init__(model, options)
        if options.precision in CODES and (computed := self.arithmetic).precision == "fp32":
            self.note_fallback(computed.reason)
        if options.device not in (None, "CPU"):
            raise UnavailableError(
                f"engine {self.name!r}: device {options.device!r} is unknown; it has CPU.\nDo: leave device out",
                device=options.device,
            )
        self.float_reason = missing_int8_features(int8_requirements(model))
        if self.float_reason:
            _log.warning(
                "engine %r computes the model's INT8 layers in a slower form: %s. Do: quantize with weight_levels=%d",
                self.name,
                self.float_reason,
                SAFE_LEVELS,
            )

    @classmethod
    @override
    def availability(cls) -> Availability:
        try:
            library = require(cls.library.lower(), extra="cpu", feature=f"engine {cls.name!r}")
        except MissingExtraError as error:
            return Availability(cls.name, str(error), "")
        version = library.__version__.partition("-")[0]
        return Availability(cls.name, "", f"{cls.library} {version} on {describe_cpu()}")

    @classmethod
    def build_quantized(
        cls, quantized: onnx.ModelProto, model: onnx.ModelProto, options: BuildOptions, progress: bool = False
    ) -> Engine:
        """Build the engine of a quantized model, or of its float form if that is faster on this machine."""
        int8 = cls.build(quantized, options, progress)
        if options.precision == "fp8" and not int8.fallback:
            int8.choices["fp8"] = _EMULATED
            _log.warning("engine %r has no arithmetic in FP8: %s", cls.name, _EMULATED)
            return int8
        if int8.fallback or options.settings.get("int8") == ALWAYS:
            return int8
        inputs = sample_inputs(int8)
        if inputs is None:
            int8.choices["int8"] = "int8, not timed: dims of its inputs are free"
            return int8
        float32 = cls.build(model, options, progress)
        times = _times(int8, float32, inputs)
        if isinstance(times, str):
            failure = "" if _failure(float32, inputs) else _failure(int8, inputs)
            if failure:
                _log.warning("engine %r falls back from INT8 to float32: a run in INT8 failed: %s", cls.name, failure)
                float32.note_fallback(f"a run in INT8 failed: {failure}")
                return float32
            int8.choices["int8"] = f"int8, not timed: {times}"
            return int8
        figures = f"INT8 takes {1e3 * times['int8']:.3g} ms, float32 {1e3 * times['float32']:.3g} ms"
        if times["float32"] >= _FLOAT_GAIN * times["int8"]:
            int8.choices["int8"] = f"int8: {figures}"
            _log.info("engine %r computes in INT8: %s", cls.name, figures)
            return int8
        _log.warning(
            "engine %r falls back from INT8 to float32, which is faster here: %s.\n"
            'Do: settings={"int8": "always"}, or pytrt build --setting int8=always, to keep INT8',
            cls.name,
            figures,
        )
        float32.note_fallback(figures)
        return float32

    @classmethod
    def quantize_options(cls, precision: str = "int8", rest: str = "fp32") -> dict[str, Any]:
        """For int8: 7-bit weights if the CPU adds products in 16 bits, and the library's placement."""
        if precision != "int8":
            return {}
        return {"weight_levels": safe_weight_levels(), "placement": cls.placement}

    @override
    def requirements(self) -> dict[str, Any]:
        return int8_requirements(self.model)

    @classmethod
    @override
    def check_requirements(cls, requirements: Mapping[str, Any], device: str | None = None) -> str:
        return missing_int8_features(requirements)

    def _exact_sums(self) -> dict[str, str]:
        """Session entries that make onnxruntime add 8-bit products in 32 bits on CPUs that would not."""
        return {"session.x64quantprecision": "1"} if self.float_reason else {}

    def _written_out(self) -> onnx.ModelProto:
        """The model with decompositions written out as the policy, or the user, chooses; the engine's own where there are none."""
        written = write_decompositions(self.model, self.plugin_forms, self.options.plugins)
        self.choices.update(forms_run(self.model, written, self.plugin_forms, self.options.plugins))
        return written


def _times(int8: Engine, float32: Engine, inputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, float] | str:
    """Seconds of a run of both forms; or why they cannot be timed."""
    try:
        with int8.create_context() as first, float32.create_context() as second:
            return run_seconds({"int8": lambda: first.run(inputs), "float32": lambda: second.run(inputs)})
    except Exception as error:  # a plugin, or a network that does not take made-up inputs
        return f"a run on made-up inputs failed: {error}"


def _failure(engine: Engine, inputs: Mapping[str, npt.NDArray[Any]]) -> str:
    try:
        with engine.create_context() as context:
            context.run(inputs)
    except Exception as error:  # a plugin's, too
        return shorten_message(error)
    return ""
