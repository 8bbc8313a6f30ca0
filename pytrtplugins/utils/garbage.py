"""Python's search for objects that refer to each other, which passes over graphs do not need."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_collection"]


@contextmanager
def no_collection() -> Iterator[None]:
    """Within it, Python frees no cycles of objects; for work of seconds that makes many objects and drops few.

    The search looks at all objects of the process, again and again while their number grows: a sixth of the time in which a
    network of 6,000 nodes is prepared and lowered, where PyTorch is imported; a twenty-fifth where it is not. It is on again
    afterwards if it was on before.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
