"""Times of runs that follow each other."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from pytrtplugins.cli.shared import runs
from tests.clock import Clock


def test_the_median_of_runs_is_in_milliseconds_and_the_first_run_is_left_out(monkeypatch):
    clock, left = Clock(), [8, 1, 1 / 16, 1 / 8, 1 / 32]  # seconds that each run takes
    monkeypatch.setattr(runs, "time", clock)

    def run(inputs):
        clock.now += left.pop(0)
        return {"left": len(left)}

    @contextmanager
    def create_context():
        yield SimpleNamespace(run=run)

    outputs, median_ms = runs.one_by_one(SimpleNamespace(create_context=create_context), {}, 4)
    assert (outputs, median_ms) == ({"left": 0}, pytest.approx(1000 * (1 / 16 + 1 / 8) / 2))
