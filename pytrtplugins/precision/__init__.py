"""Find the layers that lose accuracy in low precision, and keep them in a higher one."""

from __future__ import annotations

from .measure import LayerError, Measurer
from .network import Network
from .search import Budget, SearchResult, Step, search
from .tolerance import CosineTolerance, ElementTolerance, MapTolerance, parse_tolerance

__all__ = [
    "Budget",
    "CosineTolerance",
    "ElementTolerance",
    "LayerError",
    "MapTolerance",
    "Measurer",
    "Network",
    "SearchResult",
    "Step",
    "parse_tolerance",
    "search",
]
