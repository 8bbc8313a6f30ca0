"""Measure drift between two sets of photos: sizes, brightness, boxes, classes, and embeddings."""

from __future__ import annotations

from .compare import Comparison, compare_photos
from .embedding import Embedder
from .limits import Limit, read_limit
from .measures import jensen_shannon, mmd, population_stability
from .page import draw_chart, to_markdown, write_html

__all__ = [
    "Comparison",
    "Embedder",
    "Limit",
    "compare_photos",
    "draw_chart",
    "jensen_shannon",
    "mmd",
    "population_stability",
    "read_limit",
    "to_markdown",
    "write_html",
]
