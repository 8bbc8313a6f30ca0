"""NVIDIA GPUs without TensorRT: cuDNN and kernels of our own, one CUDA graph a run."""

from __future__ import annotations

from .engine import CudaEngine

__all__ = ["CudaEngine"]
