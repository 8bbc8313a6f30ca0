"""Pipelines: steps with declared inputs and outputs, run on this machine or written for Argo Workflows."""

from .record import RunRecord, StepRecord

__all__ = ["RunRecord", "StepRecord"]
