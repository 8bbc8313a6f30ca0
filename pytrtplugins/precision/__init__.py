"""Find the layers that lose accuracy in low precision, and keep them in a higher one."""

from __future__ import annotations

from .compare import Comparison, TensorDifference, compare
from .file_comparison import FileComparison, OutputDifference, compare_with_file
from .measure import LayerError, Measurer
from .network import Network
from .page import write_html
from .report import read_report, to_dict, write_json
from .search import Budget, SearchResult, Step, search
from .tolerance import CosineTolerance, ElementTolerance, MapTolerance, parse_tolerance

__all__ = [
    "Budget",
    "Comparison",
    "CosineTolerance",
    "ElementTolerance",
    "FileComparison",
    "LayerError",
    "MapTolerance",
    "Measurer",
    "Network",
    "OutputDifference",
    "SearchResult",
    "Step",
    "TensorDifference",
    "compare",
    "compare_with_file",
    "parse_tolerance",
    "read_report",
    "search",
    "to_dict",
    "write_html",
    "write_json",
]
