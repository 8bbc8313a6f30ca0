"""The runs that the calling thread is inside of, so that a plugin's code never waits for the run that waits for it."""

from __future__ import annotations

import threading

__all__ = ["ActiveRun", "active_runs"]


class _Runs(threading.local):
    def __init__(self) -> None:
        self.stack: list[object] = []


_RUNS = _Runs()


class ActiveRun:
    """A ``with`` block around what a thread does for a run.

    Args:
        owner: The context whose run it is; or the engine, where a library calls a plugin and does not say for which context.
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: object) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        _RUNS.stack.append(self._owner)

    def __exit__(self, *raised: object) -> None:
        _RUNS.stack.pop()


def active_runs() -> list[object]:
    """Contexts and engines whose runs the calling thread is inside of, the innermost last."""
    return _RUNS.stack
