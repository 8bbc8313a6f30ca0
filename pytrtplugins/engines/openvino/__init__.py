"""Engine `cpu`: OpenVINO on the CPU."""

from .engine import CpuEngine

__all__ = ["CpuEngine"]
