"""The rule that `enqueue` keeps all other rules in the other supported types and layouts too."""

from __future__ import annotations

import contextlib

from ..errors import MissingExtraError, UnavailableError
from . import capture, enqueue, sharing
from .cases import Case

__all__ = ["in_formats"]

_RULES = (
    enqueue.thread_order,
    capture.graph_capture,
    sharing.repeated_runs,
    sharing.changing_dims,
    sharing.empty_batch,
)


def in_formats(case: Case) -> str:
    """Enqueue in each supported format: correct, inside its arrays, without races, capturable, and without state.

    What cannot be tried here is left out: rules of their own report it, in the types that were found.
    """
    if wrong := enqueue.in_formats(case):
        return wrong
    for rule in _RULES:
        if rule is capture.graph_capture and not enqueue.has_kernels(case.plugin):
            continue
        with contextlib.suppress(MissingExtraError, UnavailableError):
            if wrong := rule(case):
                return wrong
    return ""
