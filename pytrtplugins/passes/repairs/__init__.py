"""Repairs of models that exporters wrote wrongly: each is a small pass, and says what it found, where and why."""

from __future__ import annotations

from ._base import Finding, Repair
from .run import REPAIRS, RepairedModel, repair

__all__ = ["REPAIRS", "Finding", "Repair", "RepairedModel", "repair"]
