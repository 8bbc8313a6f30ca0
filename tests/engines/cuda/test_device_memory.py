"""The check of growing memory finds work that keeps memory, though others share the card."""

from __future__ import annotations

import itertools

from tests.engines.cuda.device_memory import ALLOWED, ROUNDS, least_growth


def test_work_that_keeps_memory_is_found():
    free = itertools.count(1 << 30, -(ALLOWED + 1))
    assert least_growth(lambda: None, lambda: next(free)) == ALLOWED + 1


def test_one_quiet_round_is_enough():
    free = iter([1 << 30, 1 << 20, 1 << 20, 1 << 20])
    assert least_growth(lambda: None, lambda: next(free)) == 0


def test_the_work_runs_in_every_round_until_one_is_quiet():
    runs = []
    free = itertools.count(1 << 30, -2 * ALLOWED)
    least_growth(lambda: runs.append(1), lambda: next(free))
    assert len(runs) == ROUNDS
