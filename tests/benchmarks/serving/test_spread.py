"""How connections are spread over processes: what is counted, and what chance gives."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("skimage")

from benchmarks.serving import spread
from benchmarks.serving.load import Outcome
from tests.randomness import generator

SUPERVISOR, ENGINE, CPU = 1, 2, [3, 4, 5, 6]


def test_chance_is_the_mean_of_connections_that_go_to_any_process():
    drawn = generator(0).integers(0, 11, (20_000, 16))
    assert spread.expected(11, 16) == pytest.approx(np.mean([len(set(each)) for each in drawn.tolist()]), abs=0.05)
    assert spread.expected(11, 1) == pytest.approx(1)
    assert spread.expected(1, 5) == 1


def rounds(taken_s, connections, monkeypatch, **outcome):
    """A round in which CPU processes took so much."""
    after = list[dict[int, float]]()

    def cpu_s(pid):
        return 10 * pid + (after[-1][pid] if after else 0)

    def stream(*given):
        after.append(dict(zip(CPU, taken_s, strict=True)))
        assert given[-1] == connections
        return Outcome(np.full(1000, 0.01), 2.0, 1000, cpu_s=0.25, **outcome)

    monkeypatch.setattr(spread, "cpu_s", cpu_s)
    monkeypatch.setattr(spread, "stream", stream)
    monkeypatch.setattr(spread, "engine_pids", lambda server: [ENGINE])
    server = SimpleNamespace(process=SimpleNamespace(pid=SUPERVISOR), pids=lambda: [SUPERVISOR, ENGINE, *CPU])
    return spread._round(server, 1, [b""], 1.0, connections)


@pytest.mark.parametrize(
    ("taken_s", "connections", "busy"),
    [
        ([1.0, 0.05, 0.0, 0.0], 1, 1),  # something else took 5 %
        ([0.5, 0.5, 0.0, 0.0], 2, 2),
        ([0.97, 0.01, 0.01, 0.01], 100, 4),
        ([0.4, 0.3, 0.3, 0.01], 10, 3),
    ],
)
def test_a_process_is_busy_where_it_has_half_of_an_even_part(taken_s, connections, busy, monkeypatch):
    found, part, rate, client = rounds(taken_s, connections, monkeypatch)
    assert found == busy
    assert part == pytest.approx(max(taken_s) / sum(taken_s))
    assert (rate, client) == (500, 250)


def test_a_round_that_lost_photos_has_no_figures(monkeypatch):
    with pytest.raises(SystemExit, match="3 photos lost"):
        rounds([1.0, 0.0, 0.0, 0.0], 1, monkeypatch, lost=3)


def test_a_table_has_a_row_for_each_number_of_connections():
    said = spread.table({1: [(1, 1.0, 1000.0, 300.0)], 4: [(3, 0.5, 2000.0, 250.0), (4, 0.3, 4000.0, 350.0)]}, 11)
    assert "| 1 | 1.0 (1 to 1) | 1.0 | 100% | 1,000 | 300 |" in said
    assert "| 4 | 3.5 (3 to 4) | 3.5 | 40% | 3,000 | 300 |" in said
