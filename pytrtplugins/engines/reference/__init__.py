"""NumPy, slow and exact."""

from .engine import ReferenceEngine

__all__ = ["ReferenceEngine"]
