"""Which attacks are tried, and when a trial failed."""

import sys
from contextlib import nullcontext

import numpy as np
import pytest

pytest.importorskip("skimage")

from benchmarks.serving import attacks, hostile
from benchmarks.serving.hostile import GOOD, Trial
from benchmarks.serving.load import Outcome


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


@pytest.fixture
def tried(monkeypatch):
    """The attacks of each round, in a trial in which nothing happens."""
    names = []

    def one(name, trial, *_):
        names.append(name)
        for phase in trial.good:
            trial.good[phase].append(hostile_round(0.01))

    for name in ("start", "mixed", "photos", "Clients"):
        monkeypatch.setattr(hostile, name, lambda *_: nullcontext())
    for name in ("_good", "end_servers_on_sigterm"):
        monkeypatch.setattr(hostile, name, lambda *_: None)
    monkeypatch.setattr(hostile, "_round", one)
    return names


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", list(attacks.ATTACKS)),
        ("-k gzip", ["gzip bombs of 1 GiB", "60 MiB behind the end of gzip data"]),
        ("-k heads -k bombs", ["1,000 slow heads (slowloris)", "gzip bombs of 1 GiB", "heads of 1 MiB"]),
        ("-k bombs -k gzip", ["gzip bombs of 1 GiB", "60 MiB behind the end of gzip data"]),
    ],
)
def test_attacks_with_one_of_the_words_are_tried_in_each_round(options, expected, tried, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hostile", *options.split(), "--rounds", "2"])
    assert hostile.main() == 0
    assert tried == 2 * expected
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == [f"| {name}" for name in expected]


def test_words_that_no_attack_has_are_an_error_with_the_names_of_all(tried, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hostile", "-k", "floods", "-k", "worms"])
    with pytest.raises(SystemExit) as caught:
        hostile.main()
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "found floods worms" in said
    assert all(name in said for name in attacks.ATTACKS)
    assert tried == []
