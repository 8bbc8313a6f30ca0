"""One table of a network's speed, memory and accuracy, by which a team can decide how to run it."""

from __future__ import annotations

from .labelled import LabelledImages
from .page import draw_chart, to_markdown, write_html
from .rows import Latency, Table, TableRow, Variant
from .table import Plan, make_table
from .tasks import ClassificationTask, DetectionTask, Figure, Task, VerificationTask
from .verification import Verification, verify

__all__ = [
    "ClassificationTask",
    "DetectionTask",
    "Figure",
    "LabelledImages",
    "Latency",
    "Plan",
    "Table",
    "TableRow",
    "Task",
    "Variant",
    "Verification",
    "VerificationTask",
    "draw_chart",
    "make_table",
    "to_markdown",
    "verify",
    "write_html",
]

for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
