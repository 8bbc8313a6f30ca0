"""Indices out of range on a GPU: steps note them in flags, which are read behind the run."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from ....errors import ExecutionError

__all__ = ["IN_RANGE", "IndexFlags", "noting", "places"]

IN_RANGE: Any = object()
"""In the place of a flag: indices that were looked at when the run was planned."""
_NOTED = threading.local()
_MOST = 1 << 12
"""Flags that are kept apart; further steps share the last one."""


class IndexFlags:
    """One flag for each step that takes values from positions, or puts them there.

    Args:
        xp: CuPy or NumPy.
    """

    def __init__(self, xp: Any) -> None:
        self._xp, self._steps = xp, list[tuple[str, str]]()
        self._flags: Any = None

    def add(self, name: str, op: str) -> Any:
        """A flag for a node, an array of one element."""
        if self._flags is None:
            self._flags = self._xp.zeros(_MOST, np.bool_)
        place = min(len(self._steps), _MOST - 1)
        self._steps.append((name, op))
        return self._flags[place : place + 1]

    def clear(self) -> None:
        """Lower all flags, which runs on memory that holds no inputs yet may have raised."""
        if self._flags is not None:
            self._flags[...] = False

    def check(self) -> None:
        """Look at the flags of a run that is done, in one copy, and lower them.

        Raises:
            ExecutionError: an index was out of range.
        """
        if self._flags is None:
            return
        flags = self._flags[: len(self._steps)]
        raised = np.flatnonzero(flags if isinstance(flags, np.ndarray) else flags.get())
        if raised.size:
            self.clear()
            name, op = self._steps[raised[0]]
            raise ExecutionError(
                f"engine 'cuda' cannot compute node {name!r} ({op}): an index is out of range.\n"
                "Do: check the indices that the network is given, or computes"
            )


@contextlib.contextmanager
def noting(flag: Any) -> Iterator[None]:
    """Within it, `places` raises a flag where an index is out of range; with None it raises an error, for which it waits for the GPU."""
    _NOTED.flag = flag
    try:
        yield
    finally:
        _NOTED.flag = None


def places(xp: Any, indices: Any, size: int) -> Any:
    """Indices along an axis, those below 0 counted from the end; one that is out of range becomes the nearest that is not.

    Raises:
        IndexError: one is out of range, outside of `noting`.
    """
    index, flag = xp.asarray(indices).astype(np.int64), getattr(_NOTED, "flag", None)
    if flag is IN_RANGE:
        return xp.where(index < 0, index + size, index)
    if flag is not None and not isinstance(index, np.ndarray):
        return _kernel(xp)(index, size, xp.empty(index.shape, np.int64), flag)[0]
    outside = (index < -size) | (index >= size)
    if flag is not None:
        flag |= outside.any()
    elif outside.any():
        raise IndexError(f"an index is out of range, of {size} values: {index.min()} to {index.max()}")
    return xp.clip(xp.where(index < 0, index + size, index), 0, max(0, size - 1))


@functools.cache
def _kernel(xp: Any) -> Any:
    return xp.ElementwiseKernel(
        "int64 index, int64 size",
        "int64 place, raw bool flag",  # what is only read is constant
        """
        if (index < -size || index >= size) flag[0] = true;
        place = index < 0 ? index + size : index;
        place = place < 0 ? 0 : place >= size ? size - 1 : place;
        """,
        "pytrtplugins_places",
    )
