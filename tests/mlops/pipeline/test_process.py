"""Programs of steps end with all their processes, also where the user interrupts the end itself."""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytrtplugins.mlops.pipeline import process
from pytrtplugins.mlops.pipeline.process import ProcessLimits, run_watched
from tests.clock import Clock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
STUBBORN = "trap '' TERM; echo $$ > first; sleep 300 & echo $! > second; touch ready; wait"  # which sleep inherits


def is_alive(pid):
    """Whether a process runs; one that has ended and that nobody waits for does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


@pytest.mark.parametrize("interrupts", [1, 2])
def test_ctrl_c_once_or_twice_leaves_no_process_of_a_program_that_does_not_want_to_end(
    tmp_path, monkeypatch, interrupts
):
    """The first comes while the program runs, the second while it is asked to end."""
    left = interrupts

    def sleep(seconds):
        nonlocal left
        if left and (tmp_path / "ready").exists():
            left -= 1
            raise KeyboardInterrupt
        time.sleep(seconds)

    monkeypatch.setattr(process, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    monkeypatch.setattr(process, "_GRACE_S", 0.1)
    with pytest.raises(KeyboardInterrupt):
        run_watched(
            ["sh", "-c", STUBBORN], tmp_path, {"PATH": os.environ["PATH"]}, tmp_path / "log", ProcessLimits(None, None)
        )
    assert left == 0
    pids = [int((tmp_path / name).read_text()) for name in ("first", "second")]
    end = time.monotonic() + 20  # a process that was killed is there for a moment
    while (alive := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < end:
        time.sleep(0.01)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    assert alive == []


@pytest.mark.parametrize(("lived", "reason"), [(2.0, ""), (2.001, "was ended at its time limit of 2 s")])
def test_a_time_limit_ends_what_takes_longer_and_not_what_takes_as_long(monkeypatch, lived, reason):
    clock = Clock()
    ends = clock.now + lived
    monkeypatch.setattr(process, "time", clock)
    monkeypatch.setattr(process.os, "waitid", lambda *given: True if clock.now > ends else None)

    def sleep(seconds):
        clock.now = ends if clock.now < ends else clock.now + 1

    clock.sleep = sleep
    assert process._watch(SimpleNamespace(pid=1), ProcessLimits(2.0, None)) == reason
