"""Counts that several processes write into one memory."""

import pytest

from pytrtplugins.serving.shared.statistics import Counts


@pytest.fixture
def attach():
    memory = bytearray(Counts.size(2, 2, 1))
    return lambda role, index=0: Counts(2, 2, 1, memoryview(memory), role, index)


def test_each_process_reads_what_all_of_them_counted(attach):
    first, second, engine = attach("cpu", 0), attach("cpu", 1), attach("engine", 0)
    first.statistics[1].succeeded(2, 4, 0.003, 0.001, 0.002)
    second.statistics[1].succeeded(2, 0, 0.003, 0.001, 0.002)
    second.statistics[1].failed(429)
    engine.statistics[1].waits(5)
    for each in (first, second, engine):
        total = each.statistics[1].total()
        assert {name: total[name] for name in ("succeeded", "refused", "rows", "batches", "waiting")} == {
            "succeeded": 2,
            "refused": 1,
            "rows": 4,
            "batches": 1,
            "waiting": 5,
        }
        assert each.statistics[1].durations()[3] == 2  # at most 5 ms
        assert each.statistics[1].batches()[2] == 1  # at most 4 rows
        assert not any(each.statistics[0].total().values())


def test_a_process_that_is_started_again_keeps_counts_but_has_nothing_in_flight(attach):
    first = attach("cpu", 0)
    for _ in range(3):
        first.statistics[0].began()
    first.statistics[0].ended()
    first.statistics[0].failed(400)
    assert first.statistics[0].total()["in_flight"] == 2
    total = attach("cpu", 0).statistics[0].total()
    assert (total["in_flight"], total["failed"]) == (0, 1)


def test_the_supervisor_says_which_processes_run(attach):
    supervisor, other = attach("cpu").processes, attach("engine").processes
    supervisor.runs({"cpu": 2})
    supervisor.restarted("engine")
    assert (other.running, other.restarts) == ({"cpu": 2, "engine": 0}, {"cpu": 0, "engine": 1})
    assert Counts(1).processes.running == {"cpu": 1, "engine": 0}
