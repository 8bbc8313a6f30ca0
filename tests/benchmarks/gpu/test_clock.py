"""Calls in turns, with a clock that each call moves."""

from __future__ import annotations

import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from benchmarks.gpu import clock
from benchmarks.gpu.clock import CALLS, TURNS, in_turns, summary


class Hands:
    """A clock; what runs moves it, the more the colder it finds the caches."""

    def __init__(self) -> None:
        self.now, self.before, self.order = 0.0, "", list[str]()

    def runs(self, name: str, warm: float, cold: float):
        def run() -> None:
            self.now += warm if self.before == name else cold
            self.before = name
            self.order.append(name)

        return run


class Pedantic:
    """As much of pytest-benchmark's fixture as is used."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands

    def pedantic(self, run, setup, rounds, warmup_rounds):
        times = []
        for _ in range(warmup_rounds + rounds):
            setup()
            begin = self._hands.now
            run()
            times.append(self._hands.now - begin)
        self.stats = SimpleNamespace(stats=SimpleNamespace(data=times[warmup_rounds:]))


def test_blocks_take_turns_and_a_blocks_first_call_does_not_count(monkeypatch):
    hands = Hands()
    monkeypatch.setattr(time, "perf_counter", lambda: hands.now)
    benchmark = Pedantic(hands)
    found = in_turns(benchmark, hands.runs("own", 1.0, 5.0), {"peer": hands.runs("peer", 3.0, 50.0)})
    assert hands.order == (["peer"] * CALLS + ["own"] * CALLS) * (TURNS + 1)
    assert sorted(set(benchmark.stats.stats.data)) == [1.0, 5.0]
    assert found["peer"].median == pytest.approx(3e6)
    assert found["peer"].ratio == pytest.approx(3.0)


def test_a_call_can_run_alone():
    hands = Hands()
    benchmark = Pedantic(hands)
    assert in_turns(benchmark, hands.runs("own", 1.0, 1.0), {}) == {}
    assert len(benchmark.stats.stats.data) == CALLS * TURNS


def test_rounds_are_compared_one_by_one():
    found = summary([2.0, 4.0, 9.0], [1.0, 4.0, 3.0])
    assert (found.median, found.least, found.ratio, found.beside) == (4.0, 2.0, 2.0, 3.0)
    assert summary([2.0]).ratio is None


def test_the_gpu_waits_before_the_runs_of_a_round_where_they_are_short(monkeypatch):
    queued = []
    event = type("Event", (), {"record": lambda self, stream: queued.append("event"), "synchronize": lambda self: None})
    kernel = lambda code, name: lambda grid, block, arguments, stream: queued.append(arguments)  # noqa: E731
    cuda = SimpleNamespace(
        Event=event, Stream=lambda non_blocking: nullcontext(), get_elapsed_time=lambda begin, end: 0.2
    )
    watch = clock.Clock(SimpleNamespace(cuda=cuda, RawKernel=kernel))
    monkeypatch.setattr(clock, "ROUNDS", 1)
    monkeypatch.setattr(clock, "REST_S", 0)
    assert watch.gpu(lambda: queued.append("run"), delay_us=7.0).median == pytest.approx(200 / 60)
    assert queued[-64:] == [(7000,), "run", "event", *["run"] * 60, "event"]  # 3 runs took 200 µs, and 4 ms are filled
    queued.clear()
    watch.gpu(lambda: queued.append("run"))
    assert (7000,) not in queued
