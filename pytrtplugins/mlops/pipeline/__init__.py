"""Pipelines: steps with declared inputs and outputs, run on this machine or exported for Argo Workflows."""

from .gate import Comparison, Gate, Verdict
from .pipeline import Pipeline
from .record import RunRecord, StepRecord
from .report import write_report
from .state import StepState
from .step import Resources, Retry, Step

__all__ = [
    "Comparison",
    "Gate",
    "Pipeline",
    "Resources",
    "Retry",
    "RunRecord",
    "Step",
    "StepRecord",
    "StepState",
    "Verdict",
    "write_report",
]
