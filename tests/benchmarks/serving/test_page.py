"""Records → tables, and when a run counts as failed."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("skimage")

from benchmarks.serving import attacks, closed, hostile, page, soak
from benchmarks.serving.gpu import _wanted, agrees
from benchmarks.serving.hostile import GOOD, Trial
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


def test_single_rows_can_be_asked_for():
    titles = ["Flask, HTTP", "4 engine, decode gpu, HTTP", "4 engine, decode gpu, gRPC streams"]
    for only, wanted in (
        (None, titles),
        (["GPU, grpc"], titles[2:]),
        (["flask", "gpu, http"], titles[:2]),
        (["x"], []),
    ):
        assert [title for title in titles if _wanted(title, Namespace(only=only))] == wanted


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


def hostile_round(*latencies, lost=0):
    return {kind: Outcome(np.array(latencies), lost=lost) for kind in GOOD}


def test_bad_clients_failed_where_good_ones_waited_twice_as_long_as_beside_as_much_other_work():
    trial = Trial()
    for phase, latency in ((hostile.ALONE, 0.001), (hostile.BURN, 0.01), (hostile.BESIDE, 0.019)):
        trial.good[phase].append(hostile_round(latency))
    assert trial.held()
    assert (round(trial.ratio("photos", hostile.ALONE)), trial.ratio("photos", hostile.BURN)) == (19, 1.9)
    trial.good[hostile.BESIDE].append(hostile_round(0.04))
    assert not trial.held()
    trial.good[hostile.BESIDE] = [hostile_round(0.01, lost=1)]
    assert not trial.held()


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_what_stands_for_bad_clients_takes_their_share_of_a_core(share, monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(attacks, "time", clock)
    monkeypatch.setattr(attacks.os, "nice", lambda by: 19)
    found = attacks.burn(share, 2.0)
    assert found.cpu_s / found.seconds == pytest.approx(share, abs=0.01)
    assert found.sent == 0


class FakeClock:
    """Time that passes when somebody looks at it, or sleeps."""

    def __init__(self):
        self.now = self.cpu = 0.0

    def monotonic(self):
        return self.now

    def process_time(self):
        self.now += 0.00001
        self.cpu += 0.00001
        return self.cpu

    def sleep(self, seconds):
        self.now += seconds


def test_every_peer_is_a_file_that_is_there(tmp_path):
    for peer in PEERS:
        words = list(map(str, peer.arguments(tmp_path, 1234)))
        assert "1234" in words
        names = [word for word in words if word.endswith(".py")] + [
            word.partition(":")[0] + ".py" for word in words if "_app:" in word
        ]
        assert [(APPS / name).is_file() for name in names] == [True]
        assert peer.version(tmp_path) is None


@pytest.mark.parametrize(
    ("found", "equal"),
    [
        ([("cat", 0.9, 10)], True),
        ([("cat", 0.8, 13), ("dog", 0.5, 0)], True),
        ([("cat", 0.9, 20)], False),
        ([("dog", 0.9, 10)], False),
        ([], False),
    ],
)
def test_answers_of_another_decoder_agree_where_sure_boxes_are_nearly_the_same(found, equal):
    def answer(boxes):
        said = [{"label": label, "score": score, "box": [x, x, x + 50, x + 50]} for label, score, x in boxes]
        return json.dumps({"width": 100, "height": 80, "detections": said}).encode()

    assert agrees(answer(found), answer([("cat", 0.9, 10), ("dog", 0.55, 0)])) == equal
