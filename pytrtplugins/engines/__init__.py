"""Engines: a network made ready to run, on different libraries behind one interface."""

from __future__ import annotations

from .base import Availability, BuildOptions, Engine, ExecutionContext
from .calibrate import calibrate
from .detection import Boxes, DetectionContext, Timings
from .equalize import equalize
from .rounding import round_weights
from .select import auto_engine, availability, build, load_engine, names

__all__ = [
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
]
