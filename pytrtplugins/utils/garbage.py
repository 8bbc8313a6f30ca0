"""Python's cyclic garbage collector, which passes over graphs do not need."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_collection"]


@contextmanager
def no_collection() -> Iterator[None]:
    """Turn the garbage collector off within it, and on again if it was on; for work of seconds that makes many objects and drops few.

    The collector looks at all objects of the process, again and again while their number grows; docs/benchmarks.md says what that
    took.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
