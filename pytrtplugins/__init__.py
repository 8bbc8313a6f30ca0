"""Write a custom inference layer once, as a Python class; check it on a laptop; run it on every engine.

`import pytrtplugins` needs NumPy only: what needs more is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .errors import PytrtpluginsError
from .plugin.base import Plugin
from .plugin.decorator import plugin
from .plugin.registry import lookup, registered
from .tensor import DType, SymbolicDim, TensorDesc, check_divisible, check_equal, check_rank
from .version import __version__ as __version__

if TYPE_CHECKING:
    from . import (
        calibration,
        cuda,
        engines,
        layers,
        models,
        passes,
        precision,
        serving,
        tensorrt,
        testing,
        torch,
        vision,
    )
    from .check import check_plugin
    from .cuda import CudaKernel
    from .engines import build, load_engine
    from .model import Graph, load_onnx

__all__ = [
    "CudaKernel",
    "DType",
    "Graph",
    "Plugin",
    "PytrtpluginsError",
    "SymbolicDim",
    "TensorDesc",
    "build",
    "calibration",
    "check_divisible",
    "check_equal",
    "check_plugin",
    "check_rank",
    "cuda",
    "engines",
    "layers",
    "load_engine",
    "load_library",
    "load_onnx",
    "lookup",
    "models",
    "native",
    "passes",
    "plugin",
    "precision",
    "registered",
    "serving",
    "tensorrt",
    "testing",
    "torch",
    "vision",
]

_LAZY = {
    "CudaKernel": "cuda",
    "build": "engines",
    "load_engine": "engines",
    "check_plugin": "check",
    "Graph": "model",
    "load_onnx": "model",
    "load_library": "native",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
