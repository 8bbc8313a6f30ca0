"""Repairs of models that exporters wrote wrongly: small passes that report what they changed, where and why."""

from __future__ import annotations

from ._base import Finding, Repair
from .run import REPAIRS, RepairedModel, repair

__all__ = ["REPAIRS", "Finding", "Repair", "RepairedModel", "repair"]
