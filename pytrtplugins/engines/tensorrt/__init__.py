"""TensorRT 10 and 11."""

from .engine import TensorrtEngine

__all__ = ["TensorrtEngine"]
