"""Both ways of a tiny request answer, and are measured."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("uvicorn")

from benchmarks.serving import tiny
from pytrtplugins.serving.protocol.app import App


def test_each_way_is_measured_in_each_round(monkeypatch):
    begun, own = [], App.at_once
    monkeypatch.setattr(App, "at_once", lambda app, scope, whole: begun.append(own(app, scope, whole)) or begun[-1])
    found = asyncio.run(tiny.measure(2, 40))
    assert {name: len(taken) for name, taken in found.items()} == {"in a task": 2, "at once": 2}
    assert min(map(min, found.values())) > 0
    assert begun == 3 * 40 * [True]  # the other way does not ask
