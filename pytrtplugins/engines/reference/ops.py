"""ONNX operators in NumPy, one function each: obvious, exact and slow. Other engines are compared with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .elementwise import ELEMENTWISE_OPS
from .indexing import INDEXING_OPS
from .sampling import SAMPLING_OPS
from .shapes import SHAPE_OPS
from .sums import SUM_OPS
from .windows import WINDOW_OPS

__all__ = ["OPS"]

OPS: dict[str, Callable[..., Any]] = {
    **ELEMENTWISE_OPS,
    **INDEXING_OPS,
    **SAMPLING_OPS,
    **SHAPE_OPS,
    **SUM_OPS,
    **WINDOW_OPS,
}
"""Name of an operator → function (attributes, *inputs) → output, or a list of outputs."""
