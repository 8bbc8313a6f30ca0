"""Check that a plugin keeps the contract that engines rely on."""

from .report import Entry, Report
from .run import check_names, check_plugin

__all__ = ["Entry", "Report", "check_names", "check_plugin"]
