"""Both ways of a tiny request answer, and are measured."""

import asyncio

import pytest

pytest.importorskip("uvicorn")

from benchmarks.serving import tiny
from pytrtplugins.serving.protocol.app import App


def test_each_way_is_measured_in_each_round(monkeypatch):
    begun, own = [], App.at_once
    monkeypatch.setattr(App, "at_once", lambda app, scope, whole: begun.append(own(app, scope, whole)) or begun[-1])
    found = asyncio.run(tiny.measure(2, 40))
    assert {name: len(taken) for name, taken in found.items()} == {
        "not at all: uvicorn alone": 2,
        "in a task": 2,
        "at once": 2,
    }
    assert min(map(min, found.values())) > 0
    assert begun == 3 * 40 * [True]  # the other way does not ask


def test_rates_over_sockets_are_compared_with_tritons_round_by_round():
    found = {
        "pytrt serve, one process": [(3000.0, 50.0), (1000.0, 60.0), (500.0, 40.0)],
        "Triton's core, Python backend": [(1000.0, 100.0), (500.0, 100.0), (1000.0, 100.0)],
    }
    said = tiny.table(found).splitlines()[2:]
    assert said == [
        "| pytrt serve, one process | 1,000 | 3,000 | 2.00 | 50 | 40 |",
        "| Triton's core, Python backend | 1,000 | 1,000 | 1.00 | 100 | 100 |",
    ]
