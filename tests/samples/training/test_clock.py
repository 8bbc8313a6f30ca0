"""The stage clock."""

from __future__ import annotations

import threading

import pytest

from tests.samples.needs_torch import torch
from training import clock as clocks
from training.clock import Clock

CPU = torch.device("cpu")


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock of one number, which stands still until a test moves it."""
    now = [100.0]
    monkeypatch.setattr(clocks.time, "perf_counter", lambda: now[0])
    return now


def test_a_lap_has_the_time_of_each_stage_and_of_waiting(time: list[float]) -> None:
    clock = Clock()
    clock.declare("decode", 4)
    for _ in range(2):
        with clock.stage("decode", items=8):
            time[0] += 2
        with clock.waiting(CPU):
            time[0] += 1
        with clock.stage("step"):
            time[0] += 3
    lap = clock.lap()
    assert (lap.seconds, lap.steps, lap.waited) == (12, 2, 2)
    assert (lap.step_time, lap.data_time, lap.share) == (6, 1, pytest.approx(1 / 6))
    assert [(s.name, s.workers, s.busy, s.items) for s in lap.stages] == [("decode", 4, 4, 16), ("step", 1, 6, 2)]
    assert lap.occupancy("decode") == pytest.approx(4 / (4 * 12))
    assert lap.occupancy("step") == 0.5
    assert lap.occupancy("unknown") == 0
    assert str(lap) == "6000.0 ms a step, data_time 1000.00 ms (16.7%); busy: decode 8%, step 50%"


def test_a_lap_begins_where_the_last_one_ended(time: list[float]) -> None:
    clock = Clock()
    with clock.waiting(CPU):
        time[0] += 1
    clock.lap()
    with clock.stage("read", items=3):
        time[0] += 4
    assert (clock.lap().steps, clock.laps[1].seconds, clock.laps[1].waited) == (0, 4, 0)
    assert clock.laps[1].occupancy("read") == 1


def test_work_is_counted_when_it_fails(time: list[float]) -> None:
    clock = Clock()

    def fail() -> None:
        with clock.stage("read"):
            time[0] += 4
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert clock.lap().occupancy("read") == 1


def test_stages_are_read_and_changed_under_a_lock() -> None:
    """Also the sums of a stage: two threads that add at once would lose one of their numbers."""
    clock, uses = Clock(), []

    class Stages(dict):
        def setdefault(self, name, stage=None):
            uses.append(clock._lock.locked())
            return super().setdefault(name, stage)

        def values(self):
            uses.append(clock._lock.locked())
            return super().values()

    clock._stages = Stages()
    clock.declare("read", 2)
    for _ in range(4):
        clock.add("read", 0.0, 0.5)
    (stage,) = clock.lap().stages
    assert uses == [True] * 6
    assert (stage.workers, stage.busy, stage.items, clock._lock.locked()) == (2, 2, 4, False)


def test_spans_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "MOST_SPANS", 2)
    clock, without = Clock(trace=True), Clock()
    for begin in (1.0, 2.0, 3.0):
        clock.add("read", begin, begin + 0.5, 8, "reader")
        without.add("read", begin, begin + 0.5)
    assert clock.spans == [("read", "reader", 1.0, 1.5, 8), ("read", "reader", 2.0, 2.5, 8)]
    assert (clock.dropped, without.spans) == (1, [])


def test_a_span_without_a_name_has_that_of_its_thread() -> None:
    clock = Clock(trace=True)
    thread = threading.Thread(target=clock.add, args=("read", 0.0, 0.5), name="reader 3")
    thread.start()
    thread.join()
    clock.add("read", 0.0, 0.5)
    assert [span.thread for span in clock.spans] == ["reader 3", threading.current_thread().name]


@pytest.mark.gpu
@pytest.mark.parametrize("busy", [False, True])
def test_a_gpu_waits_for_data_only_while_it_has_nothing_to_do(busy: bool) -> None:
    """The caller waits alike: a busy GPU computes meanwhile, an idle one stands still."""
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    device, clock, wait = torch.device("cuda"), Clock(), 0.05
    with clock.waiting(device):
        torch.cuda.synchronize()
    clock.lap()
    if busy:
        torch.cuda._sleep(4_000_000_000)  # cycles: more than a second of any GPU
    with clock.waiting(device):
        threading.Event().wait(wait)
    torch.cuda.synchronize()
    lap = clock.lap()
    assert lap.steps == 1
    assert (lap.waited < wait / 2) == busy
