"""What wrk and a soak say, and where peers are."""

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("skimage")

from benchmarks.pages.serving import kills
from benchmarks.serving import closed, soak
from benchmarks.serving.load import Outcome
from benchmarks.serving.peers import APPS, PEERS


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
    said = "\n\n".join(kills("kills", soak.report({"photos": outcome}, watched, 1)))
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
