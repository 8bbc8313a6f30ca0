"""Approval of a step by a person: on the command line, or on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from .figures import read_figures
from .step import Step

__all__ = ["APPROVED", "EVERYTHING", "ask", "is_approved"]

APPROVED = "PYTRT_PIPELINE_APPROVED"
"""The variable that has the names of approved steps, with commas between them."""
EVERYTHING = "*"


def is_approved(step: str) -> bool:
    """Whether a step was approved when the run was started."""
    return bool({step, EVERYTHING} & set(os.environ.get(APPROVED, "").split(",")))


def ask(step: Step, inputs: Mapping[str, Path]) -> bool:
    """Ask for approval on the terminal, showing the figures of the inputs; without a terminal it is refused."""
    if not (sys.stdin and sys.stdin.isatty()):
        return False
    for path, source in inputs.items():
        if path.endswith(".json") and source.is_file():
            try:
                figures = ", ".join(f"{name} {value:.6g}" for name, value in list(read_figures(source).items())[:12])
            except (ValueError, OSError):
                continue
            print(f"  {path}: {figures}", file=sys.stderr)
    print(f"Run step {step.name}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
