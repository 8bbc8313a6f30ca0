"""Whether work that is repeated takes ever more of the GPU's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 5
ALLOWED = 1 << 20


def least_growth(work: Callable[[], object], free_memory: Callable[[], int]) -> int:
    """The bytes by which free memory falls while `work` runs, in the best of several rounds.

    Free memory is the whole card's, so another process that allocates at the same time makes a round look worse. Work
    that keeps memory keeps it in every round. The rounds end with the first that stays within ALLOWED bytes.
    """
    growth = []
    for _ in range(ROUNDS):
        before = free_memory()
        work()
        growth.append(before - free_memory())
        if growth[-1] <= ALLOWED:
            break
    return min(growth)


def assert_needs_no_more_memory(work: Callable[[], object]) -> None:
    """Raises AssertionError if every round of `work` left the GPU with over 1 MiB less."""
    from cupy.cuda import runtime

    work()
    grown = least_growth(work, lambda: runtime.memGetInfo()[0])
    assert grown <= ALLOWED, f"each of {ROUNDS} rounds took at least {grown} bytes of the GPU's memory"
