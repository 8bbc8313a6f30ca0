"""What engines share that run on the host's CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UnavailableError
from .base import BuildOptions, Engine
from .int8 import int8_requirements, missing_int8_features, safe_weight_levels

if TYPE_CHECKING:
    import onnx

__all__ = ["HostEngine"]


class HostEngine(Engine):
    """Base of the engines for CPUs: one device, and int8 weights that suit the CPU.

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
