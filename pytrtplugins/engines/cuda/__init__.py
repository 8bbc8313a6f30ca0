"""NVIDIA GPUs without TensorRT: cuDNN and handwritten kernels, one CUDA graph a run."""

from __future__ import annotations

from .engine import CudaEngine

__all__ = ["CudaEngine"]
