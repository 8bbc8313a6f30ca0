"""Counts that several processes write into one memory."""

import pytest

from pytrtplugins.serving.shared.statistics import BATCHES, BUCKETS_S, Counts, Statistics


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


@pytest.mark.parametrize(
    ("status", "name"),
    [(504, "late"), (429, "refused"), (503, "refused"), (400, "failed"), (500, "failed"), (413, "failed")],
)
def test_failures_are_told_apart_by_their_status(status, name):
    statistics = Statistics()
    statistics.failed(status)
    assert {key: count for key, count in statistics.total().items() if count} == {name: 1}


def test_times_are_counted_in_nanoseconds_each_by_its_name():
    statistics = Statistics()
    statistics.succeeded(2, 3, 0.5, 0.25, 0.125)
    statistics.answered(0.0625, 0.03125, on_device=True)
    statistics.answered(1, 2)
    assert {key: count for key, count in statistics.total().items() if count} == {
        **{"succeeded": 1, "rows": 2, "batches": 1, "plain": 2, "on_device": 1},
        **{"total_ns": 500_000_000, "queue_ns": 250_000_000, "compute_ns": 125_000_000},
        **{"preprocess_ns": 1_062_500_000, "postprocess_ns": 2_031_250_000},
    }


def test_a_bucket_holds_what_is_at_most_its_bound():
    for number, bound in enumerate(BUCKETS_S):
        statistics = Statistics()
        statistics.succeeded(1, 0, bound, 0, 0)
        statistics.succeeded(1, 0, 1.0001 * bound, 0, 0)
        assert [place for place, count in enumerate(statistics.durations()) if count] == [number, number + 1]
    for number, bound in enumerate(BATCHES):
        statistics = Statistics()
        statistics.succeeded(1, bound, 1, 0, 0)
        statistics.succeeded(1, bound + 1, 1, 0, 0)
        assert [place for place, count in enumerate(statistics.batches()) if count] == [number, number + 1]
    assert [round(1e4 * bound) for bound in BUCKETS_S] == [
        5,
        *(factor * 10**power for power in range(1, 5) for factor in (1, 2, 5)),
    ]
    assert list(BATCHES) == [2**power for power in range(8)]


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
