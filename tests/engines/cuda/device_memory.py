"""Whether work that is repeated takes ever more of the GPU's memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ALLOWED = 1 << 20


def assert_needs_no_more_memory(work: Callable[[], object], free_memory: Callable[[], int] | None = None) -> None:
    """Run `work` twice; the second time must leave the GPU as much free memory as the first, less 1 MiB.

    Free memory is the whole card's. So the test is skipped where pytest's other workers share the card.

    Args:
        work: What is repeated.
        free_memory: The bytes that are free; by default those of CuPy's current device.

    Raises:
        AssertionError: the second run took more.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("other workers of pytest allocate on this GPU. Do: run it without -n")
    free = free_memory or _free_on_the_gpu
    work()
    before = free()
    work()
    grown = before - free()
    assert grown <= ALLOWED, f"the second run took {grown} bytes of the GPU's memory"


def _free_on_the_gpu() -> int:
    from cupy.cuda import runtime

    return int(runtime.memGetInfo()[0])
