"""A cluster of two Ray nodes on this machine, one of which is killed under load."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("two_nodes.py")


@pytest.mark.slow
@pytest.mark.parametrize("size", [1000, 519_000])
def test_a_node_that_is_killed_loses_no_request_whose_answer_had_not_begun(size):
    pytest.importorskip("ray.serve", reason='Ray is not installed: pip install "pytrtplugins[serve-ray]"')
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(size), "12"], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))  # Ray prints there too
    print(found)
    assert len(found["before"]) == 2  # both nodes computed
    assert found["after"]["kept"] > 0 == found["after"]["killed"]
    broken = found["counts"].pop(
        "IncompleteRead", 0
    )  # the head was on its way to the client: nobody can send that request again
    assert set(found["counts"]) == {"right"}
    assert broken <= 1
