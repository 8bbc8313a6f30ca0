"""What engines share that run on the host's CPU."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UnavailableError
from .base import BuildOptions, Engine
from .int8 import SAFE_LEVELS, int8_requirements, missing_int8_features, safe_weight_levels

if TYPE_CHECKING:
    import onnx

__all__ = ["HostEngine"]

_log = logging.getLogger(__name__)


class HostEngine(Engine):
    """Base of the engines for CPUs: one device, and int8 weights that suit the CPU.

    Attributes:
        float_reason: Why a model that was quantized elsewhere cannot have its INT8 layers computed in plain int8 here, but
            in a slower form with right numbers; empty when it can.

    Raises:
        UnavailableError: the options name another device than ``"CPU"``.
    """

    def __init__(self, model: onnx.ModelProto, options: BuildOptions) -> None:
        super().__init__(model, options)
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
    def quantize_options(cls) -> dict[str, Any]:
        """7-bit weights where the CPU adds products in 16 bits."""
        return {"weight_levels": safe_weight_levels()}

    def requirements(self) -> dict[str, Any]:
        """What the weights need of the CPU."""
        return int8_requirements(self.model)

    @classmethod
    def check_requirements(cls, requirements: Mapping[str, Any]) -> str:
        """Why an engine with such weights cannot be loaded here; empty when it can."""
        return missing_int8_features(requirements)
