"""Builders: for each operator a function that draws attributes and operands which its schema allows and its text defines."""

from __future__ import annotations

from . import (
    attention,
    control,
    elementwise,
    images,
    indexing,
    linear,
    moves,
    quantized,
    recurrent,
    reductions,
    signal,
    windows,
)
from .table import BUILDERS, Builder

__all__ = ["BUILDERS", "Builder"]
_FAMILIES = (
    attention,
    control,
    elementwise,
    images,
    indexing,
    linear,
    moves,
    quantized,
    recurrent,
    reductions,
    signal,
    windows,
)
