"""Records → tables, and when a run counts as failed."""

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("skimage")

from benchmarks.serving import closed, page, soak
from benchmarks.serving.load import Outcome
from benchmarks.serving.peers import APPS, PEERS
from benchmarks.serving.rows import Row

OPEN = {"share": 0.5, "planned": 100.0, "rate": 99.0, "p50_ms": 1.0, "p99_ms": 2.0, "wrong": 0, "lost": 0}


def test_rows_are_fastest_first_and_those_without_a_measurement_say_why():
    slow, fast = Row("slow", "64 bytes", "1", rate=10.0, open=[OPEN]), Row("fast", "64 bytes", "2", rate=20.0)
    behind = {**OPEN, "rate": 50.0, "lost": 3}
    fast.open = [OPEN, behind]
    rows = [each.plain() for each in (slow, fast, Row("absent", "64 bytes", reason="it is not installed"))]
    said = page.table(rows)
    assert said.index("| fast |") < said.index("| slow |")
    assert "2.0 / 2.0 (3 failed) (fell behind)" in said
    assert said.endswith("- Not measured: absent: it is not installed")


def test_the_part_of_engine_processes_in_the_cpu_time_is_said_where_it_is_known():
    rows = [Row("a", "photos", cpu_us=2185.4, engine_us=1040.0).plain(), Row("b", "photos", cpu_us=7.0).plain()]
    said = page.table(rows)
    assert "| 2,185 (1,040 in engine processes) |" in said
    assert "| 7 |" in said


def test_a_page_has_a_section_for_each_record(tmp_path):
    record = {**page.about("a command", "Nothing else ran."), "rows": [Row("a", "64 bytes", rate=1.0).plain()]}
    for name in ("one", "two", "one"):
        page.write(record, name, tmp_path)
    text = (tmp_path / page.PAGE).read_text()
    assert [text.count(f"<!-- {name}: written") for name in ("one", "two")] == [1, 1]
    assert "Command: `a command`. Nothing else ran." in text


@pytest.mark.parametrize(("said", "ms"), [("99%  870.00us", 0.87), ("99%    1.25ms", 1.25), ("99%   2.00s", 2000)])
def test_what_wrk_says_is_read(said, ms):
    assert closed._quantile(said, "99%") == pytest.approx(ms)


def test_a_soak_tells_what_was_lost_and_wrong_and_how_memory_went():
    outcome = Outcome(np.array([0.001, 0.5]), 10.0, 5, Counter({500: 2}), lost=1)
    watched = {
        "seconds": [0.0, 1.0, 2.0, 3.0, 4.0],
        "mib": [10.0, 15.0, 20.0, 21.0, 22.0],
        "files": [5.0, 6.0],
        "killed_s": [1.0],
    }
    said = soak.report({"photos": outcome}, watched, 1)
    assert "| photos | 5 | 2 | 1 | 2 with status 500 |" in said
    assert "1 engine processes killed" in said
    assert "slope +3600 MiB an hour" in said


def test_every_peer_is_a_file_that_is_there(tmp_path):
    for peer in PEERS:
        words = list(map(str, peer.arguments(tmp_path, 1234)))
        assert "1234" in words
        names = [word for word in words if word.endswith(".py")] + [
            word.partition(":")[0] + ".py" for word in words if "_app:" in word
        ]
        assert [(APPS / name).is_file() for name in names] == [True]
        assert peer.version(tmp_path) is None
