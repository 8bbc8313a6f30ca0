"""What is measured, and how each subject is shown on its page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .accuracy import accuracy, pytorch, triton_tests
from .builds import builds, missing, operators, qdq_bytes, qdq_kernels, reasons
from .chart import Chart
from .cpu import conversion, latency
from .operators import operators as single_operators
from .plugins import enqueue, reorg
from .race import race, race_tables
from .serving import bad_clients, kills, servers
from .training import loaders, modes, steps
from .zoo import zoo

__all__ = ["blocks"]

SUBJECTS: dict[str, Callable[[str, dict[str, Any]], Iterable[str | Chart]]] = {
    "cpu": latency,
    "conversion": conversion,
    "race": race,
    "race tables": race_tables,
    "zoo": zoo,
    "operators": single_operators,
    "serving": servers,
    "kills": kills,
    "bad clients": bad_clients,
    "steps": steps,
    "modes": modes,
    "loaders": loaders,
    "accuracy": accuracy,
    "pytorch": pytorch,
    "triton tests": triton_tests,
    "builds": builds,
    "builds missing": missing,
    "builds operators": operators,
    "builds reasons": reasons,
    "enqueue": enqueue,
    "qdq bytes": qdq_bytes,
    "qdq kernels": qdq_kernels,
    "reorg": reorg,
}
"""Subject, with the part of a record where a page shows only that → the blocks of Markdown and charts of a section."""


def blocks(name: str, part: str, record: dict[str, Any]) -> Iterable[str | Chart]:
    """Return the blocks of a section; empty ones are not shown."""
    return SUBJECTS[f"{record['subject']} {part}".rstrip()](name, record)
