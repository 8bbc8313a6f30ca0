"""Runs at a time, and an interrupt while a step waits."""

import os
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from pytrtplugins.errors import StepError
from pytrtplugins.mlops.pipeline import Retry, RunRecord, run_step
from pytrtplugins.mlops.pipeline.process import Stopped
from tests.mlops.pipeline.steps import failure, outcomes, shell

if sys.platform == "win32":
    pytest.skip("pipelines run on Linux and macOS", allow_module_level=True)


A = shell("a", "cat in.txt in.txt > build/a", inputs=("in.txt",), outputs=("build/a",))


def test_an_interrupt_between_two_attempts_ends_the_step_at_once(run, monkeypatch):
    """The pause of a step that is tried again is a wait, too."""
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        raise Stopped("was stopped by SIGINT")

    monkeypatch.setattr(run_step, "time", SimpleNamespace(sleep=sleep, time=time.time))
    with pytest.raises(KeyboardInterrupt):
        run(shell("x", "exit 1", outputs=("out",), retry=Retry(5, 7.5)), A)
    assert pauses == [7.5]
    (record,) = (RunRecord.load(path, within=run.folder) for path in (run.folder / "runs").glob("*.json"))
    assert [(step.state, step.attempts) for step in record.steps] == [("failed", 1), ("not run", 0)]
    assert failure(record) == "step x was stopped by SIGINT"
    assert list((run.folder / "work").iterdir()) == []


@pytest.mark.parametrize("others", [1, 7])
def test_of_runs_at_a_time_one_runs_and_the_others_are_refused(run, others):
    """The one holds the pipeline until all others have been refused."""
    refused, step = [], shell("x", f"until test -e {run.base}/go; do sleep 0.01; done; echo > out", outputs=("out",))

    def refuse():
        try:
            run(step)
        except StepError as error:
            refused.append(str(error).partition("\n")[0])
            if len(refused) == others:
                (run.base / "go").touch()

    threads = [threading.Thread(target=refuse) for _ in range(1 + others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    holder = {f"process {os.getpid()}", "process another"}  # which has taken the lock and not yet written its number
    assert {line.removeprefix("pipeline demo: ").removesuffix(" runs it already.") for line in refused} <= holder
    assert len(refused) == others
    assert outcomes(run(step)) == {"x": "reused"}
