"""Forks: what a child process must know about the state that it got from its parent."""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["forks", "forks_as_cause", "in_children"]

_count = 0


def forks() -> int:
    """How many forks lie behind this process; a number that was remembered differs in a child that was forked since."""
    return _count


def in_children(function: Callable[[], object]) -> None:
    """Call something at the start of each child, while its only thread is the one that forked."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(after_in_child=function)


def forks_as_cause() -> str:
    """A line for the error of a GPU that cannot be used: in a forked child its parent may be why."""
    if not _count:
        return ""
    return 'Causes: this process was forked from one that used the GPU; start it by multiprocessing\'s "spawn".\n'


def _forked() -> None:
    global _count
    _count += 1


in_children(_forked)
