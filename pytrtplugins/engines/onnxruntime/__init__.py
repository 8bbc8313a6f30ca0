"""onnxruntime on the CPU."""

from .engine import OnnxruntimeEngine

__all__ = ["OnnxruntimeEngine"]
