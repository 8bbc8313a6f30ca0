"""TensorRT 10 and 11, and TensorRT for RTX."""

from .engine import TensorrtEngine
from .rtx_engine import TensorrtRtxEngine

__all__ = ["TensorrtEngine", "TensorrtRtxEngine"]
