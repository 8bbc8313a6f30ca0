"""Engines: networks that are ready to run, on different libraries behind one interface."""

from __future__ import annotations

from .base.arithmetic import Arithmetic
from .base.context import ExecutionContext
from .base.detection import Boxes, DetectionContext, Timings
from .base.engine import Engine
from .base.types import Availability, BuildOptions
from .calibrate import calibrate
from .registry import auto_engine, availability, names
from .selection import build, load_engine
from .unsupported import unsupported_nodes
from .weights import equalize, round_weights

__all__ = [
    "Arithmetic",
    "Availability",
    "Boxes",
    "BuildOptions",
    "DetectionContext",
    "Engine",
    "ExecutionContext",
    "Timings",
    "auto_engine",
    "availability",
    "build",
    "calibrate",
    "equalize",
    "load_engine",
    "names",
    "round_weights",
    "unsupported_nodes",
]
