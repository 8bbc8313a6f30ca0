"""The lock of a run's folder: one run at a time, whatever ended the last one."""

import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from pytrtplugins.errors import UsageError
from tests.samples.needs_torch import torch
from training import run_lock
from training.ranks import Ranks
from training.run_lock import check_unlocked, locked_run

ALONE = Ranks(0, 1, torch.device("cpu"), False)
HOLDS = "import fcntl, os, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"


def test_a_second_run_is_refused_and_told_which_process_is_there(tmp_path):
    out = tmp_path / "runs/first"
    check_unlocked(out)
    assert not out.exists()
    for _ in range(2):
        with locked_run(out, ALONE):
            who = f"process {os.getpid()} of {socket.gethostname()}"
            text = re.escape(
                f"--output {out}: another run writes there now ({who}).\nDo: wait until it has ended, or give another --output"
            )
            for enter in (lambda: locked_run(out, ALONE).__enter__(), lambda: check_unlocked(out)):
                with pytest.raises(UsageError, match=f"^{text}$"):
                    enter()
    check_unlocked(out)


def test_an_error_frees_the_lock(tmp_path):
    with pytest.raises(KeyboardInterrupt), locked_run(tmp_path, ALONE):
        raise KeyboardInterrupt
    check_unlocked(tmp_path)


def test_the_system_frees_the_lock_of_a_process_that_is_killed(tmp_path):
    line = [sys.executable, "-c", HOLDS, str(tmp_path / ".lock")]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match="another run writes there now"):
            check_unlocked(tmp_path)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
    check_unlocked(tmp_path)


def test_ranks_that_start_again_wait_for_the_lock_of_a_machine_that_died(tmp_path, monkeypatch):
    """A file server frees it later; ranks of Ray and of torchrun's second attempt have time."""
    tries = iter([False, False, True])
    monkeypatch.setattr(run_lock, "take_lock", lambda handle, wait: next(tries))
    monkeypatch.setattr(run_lock.time, "sleep", lambda seconds: None)
    os.close(run_lock._lock(tmp_path, patience=60))
    assert next(tries, None) is None


def test_all_ranks_end_where_the_first_is_refused(tmp_path):
    class Second(Ranks):
        def max_over_ranks(self, values):
            assert values == [False]
            return [True]

    with pytest.raises(UsageError, match="rank 0 could not take it"):
        locked_run(tmp_path, Second(1, 2, torch.device("cpu"), True)).__enter__()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["file", "below a file", "link"])
def test_a_folder_that_cannot_be_written_is_refused(tmp_path, kind):
    (tmp_path / "file").write_text("mine")
    out = tmp_path / {"file": "file", "below a file": "file/run", "link": "run"}[kind]
    if kind == "link":
        out.mkdir()
        (out / ".lock").symlink_to(tmp_path / "file")
    with pytest.raises(UsageError, match=rf"^--output {out}: cannot be written: [^\n]*\.\nDo: give another --output$"):
        locked_run(out, ALONE).__enter__()
    assert (tmp_path / "file").read_text() == "mine"
