"""Builders: for each operator a function that draws attributes and operands which its schema allows and its text defines."""

from __future__ import annotations

from . import (
    attention,
    contrib_attention,
    control,
    elementwise,
    fused,
    images,
    indexing,
    linear,
    moves,
    packed,
    qlinear,
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
    contrib_attention,
    control,
    elementwise,
    fused,
    images,
    indexing,
    linear,
    moves,
    packed,
    qlinear,
    quantized,
    recurrent,
    reductions,
    signal,
    windows,
)
