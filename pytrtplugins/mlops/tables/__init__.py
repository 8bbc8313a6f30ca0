"""Compare speed, memory and accuracy of a network across engines and precisions, in one table."""

from __future__ import annotations

from .image_pairs import ImagePairs
from .labelled import LabelledImages
from .page import draw_chart, to_markdown, write_html
from .rows import Latency, Table, TableRow, Variant
from .table import TablePlan, make_table
from .tasks import ClassificationTask, DetectionTask, Figure, Task, VerificationTask
from .verification import FoldAccuracy, Pairs, Verification, fold_accuracy, verify

__all__ = [
    "ClassificationTask",
    "DetectionTask",
    "Figure",
    "FoldAccuracy",
    "ImagePairs",
    "LabelledImages",
    "Latency",
    "Pairs",
    "Table",
    "TablePlan",
    "TableRow",
    "Task",
    "Variant",
    "Verification",
    "VerificationTask",
    "draw_chart",
    "fold_accuracy",
    "make_table",
    "to_markdown",
    "verify",
    "write_html",
]

for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
