"""Pipelines: steps with declared inputs and outputs, run on this machine or written for Argo Workflows."""

from .record import RunRecord, StepRecord
from .report import write_report

__all__ = ["RunRecord", "StepRecord", "write_report"]
