"""Runs of a pipeline: what they run, take, refuse and leave behind. Steps are real processes; `test_dvc_store` has the real store."""

import errno
import io
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytrtplugins.errors import StepError, UsageError
from pytrtplugins.mlops.pipeline import Pipeline, Resources, Retry, RunRecord, Step
from pytrtplugins.mlops.pipeline.folder import PipelineFolder
from pytrtplugins.mlops.pipeline.machine import limited_environment, use_cores
from pytrtplugins.mlops.pipeline.run import run_pipeline
from pytrtplugins.mlops.pipeline.scratch import Scratch
from pytrtplugins.mlops.pipeline.selection import Selection
from pytrtplugins.mlops.pipeline.states import step_states
from tests.mlops.pipeline.plain_store import PlainStore
from tests.mlops.pipeline.steps import failure, outcomes, shell

if sys.platform == "win32":
    pytest.skip("pipelines run on Linux and macOS", allow_module_level=True)


def is_alive(pid):
    """Whether a process runs; one that has ended may still wait for its parent to look."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(found.strip()) and not found.startswith("Z")


A = shell("a", "cat in.txt in.txt > build/a", inputs=("in.txt",), outputs=("build/a",))
MAKE_B = "mkdir build/b; cp build/a build/b/x; echo '{\"length\": 4}' > m.json"
B = shell("b", MAKE_B, inputs=("build/a",), outputs=("build/b",), metrics=("m.json",))
C = shell("c", "cat build/b/x", inputs=("build/b",), stdout="c.txt")


def test_each_step_runs_once_and_again_where_what_it_depends_on_has_changed(run):
    first = run(C, A, B)
    assert outcomes(first) == {"a": "done", "b": "done", "c": "done"}
    assert (run.base / "c.txt").read_text() == "1\n1\n"
    assert first.figures == {"b.length": 4.0}
    second = run(C, A, B)
    assert outcomes(second) == {"a": "reused", "b": "reused", "c": "reused"}
    assert [step.digest for step in second.steps] == [step.digest for step in first.steps]
    (run.base / "in.txt").write_text("2\n")
    assert outcomes(run(C, A, B)) == {"a": "done", "b": "done", "c": "done"}
    assert (run.base / "c.txt").read_text() == "2\n2\n"
    other = Step("c", command=(*C.command[:2], "cat build/b/x build/b/x"), inputs=C.inputs, stdout="c.txt")
    assert outcomes(run(other, A, B)) == {"a": "reused", "b": "reused", "c": "done"}
    assert outcomes(run(other, A, B, force=True)) == {"a": "done", "b": "done", "c": "done"}


def test_a_run_is_recorded_and_reported(run):
    record = run(A, parameters={"size": "smoke"}, command=["pytrt"])
    assert RunRecord.load(record.path(run.folder)) == record
    assert (record.state, record.parameters, record.command) == ("done", {"size": "smoke"}, ("pytrt",))
    assert "<html" in record.path(run.folder).with_suffix(".html").read_text()


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(begin="b"), {"b", "c"}),
        (Selection(until="b"), {"a", "b"}),
        (Selection(only="b"), {"b"}),
        (Selection(begin="b", until="b"), {"b"}),
        (Selection(), {"a", "b", "c"}),
    ],
)
def test_a_selection_has_these_steps(selection, expected):
    assert {step.name for step in selection.of(Pipeline("demo", (A, B, C)))} == expected


def test_a_selection_takes_the_others_as_they_are(run):
    run(A, B, C)
    (run.base / "in.txt").write_text("2\n")
    assert outcomes(run(A, B, C, selection=Selection(begin="c"), force=True)) == {
        "a": "not run",
        "b": "not run",
        "c": "done",
    }
    assert (run.base / "c.txt").read_text() == "1\n1\n"


def test_a_selection_that_cannot_begin_says_what_it_needs(run):
    with pytest.raises(StepError, match="step b needs build/a, which step a has not made yet") as caught:
        run(A, B, C, selection=Selection(begin="b"))
    assert (caught.value.step, str(caught.value).splitlines()[-1]) == ("b", "Do: run it too, such as with --until b")
    with pytest.raises(UsageError, match=r"--from bb: pipeline demo has no such step\.\nDo: write b"):
        run(A, B, C, selection=Selection(begin="bb"))
    with pytest.raises(UsageError, match="no step is both after c and before a"):
        run(A, B, C, selection=Selection(begin="c", until="a"))


@pytest.mark.parametrize(
    ("text", "fields", "problem"),
    [
        ("true", {}, "step x did not write its output out"),
        ("echo > out; echo > build.log; mkdir -p d/e; echo > d/e/f", {}, "wrote what it does not declare: build.log, d/e/f"),
        ("echo > out; echo more >> in.txt", {}, "changed its input in.txt"),
        ("echo > out; echo > folder/new", {"inputs": ("folder",)}, "changed its input folder/new"),
        ("echo > out; echo {} > m.json", {"metrics": ("m.json",)}, "wrote no figures: m.json: expected figures"),
        ("echo > out; echo 1, > m.json", {"metrics": ("m.json",)}, "wrote no figures: m.json: not JSON"),
        ("echo oh no; exit 3", {}, "ended with exit code 3\n  | oh no"),
        ("kill -9 $$", {}, "was ended by SIGKILL"),
        ("sleep 60", {"time_limit": 0.2}, "was ended at its time limit of 0.2 s"),
    ],
)  # fmt: skip
def test_a_step_that_breaks_its_word_fails_and_nothing_of_it_is_taken(run, text, fields, problem):
    (run.base / "folder").mkdir()
    step = shell("x", text, **{"inputs": ("in.txt",), "outputs": ("out",), **fields})
    after = shell("y", "true", inputs=("out",), outputs=("p",))
    record = run(after, step)
    assert outcomes(record) == {"x": "failed", "y": "not run"}
    assert record.state == "failed"
    assert problem in failure(record)
    assert not (run.base / "out").exists()
    assert not (run.folder / "files").exists() or not any((run.folder / "files").iterdir())
    assert not any((run.folder / "work").iterdir())


def test_the_old_output_stays_where_the_new_one_fails(run):
    assert run(A).state == "done"
    (run.base / "in.txt").write_text("2\n")
    broken = shell("a", "echo half > build/a; exit 1", inputs=("in.txt",), outputs=("build/a",))
    assert run(broken).state == "failed"
    assert (run.base / "build/a").read_text() == "1\n1\n"


def test_a_program_that_is_not_there_is_named(run):
    record = run(Step("x", command=("no-such-program",), outputs=("o",), retry=Retry(5, 1000)))
    assert "there is no program 'no-such-program'" in failure(record)
    assert record.steps[0].attempts == 1  # a retry would not help


def test_a_step_is_started_again_as_often_as_it_may(run):
    flaky = "echo x >> {0}/tries; test $(wc -l < {0}/tries) = 3 && echo > out"
    step = shell("x", flaky.format(run.base), outputs=("out",), retry=Retry(limit=2, backoff=0.001))
    record = run(step)
    assert (record.state, record.steps[0].attempts) == ("done", 3)
    log = (run.folder / record.steps[0].log).read_text()
    assert "Attempt 2: step x ended with exit code 1" in log
    assert "The next one begins in 0.002 s" in log
    (run.base / "tries").unlink()
    record = run(shell("x", flaky.format(run.base), outputs=("out",), retry=Retry(1, 0.001)), force=True)
    assert (record.state, record.steps[0].attempts) == ("failed", 2)


def test_all_processes_of_a_step_end_with_it(run):
    step = shell("x", f"sleep 600 & echo $! > {run.base}/pid; echo > out", outputs=("out",))
    assert run(step).state == "done"
    assert not is_alive(int((run.base / "pid").read_text()))


@pytest.mark.slow
def test_memory_is_watched(run):
    pytest.importorskip("psutil")
    hog = "import time; kept = bytearray(120 << 20); time.sleep(60)"
    record = run(Step("x", command=("python", "-c", hog), outputs=("o",), resources=Resources(memory=60 << 20)))
    assert "MiB of memory, more than its 60 MiB" in failure(record)


def test_a_step_sees_the_cores_and_gpus_that_it_asked_for(run, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    try:
        step = shell(
            "x", "echo $CUDA_VISIBLE_DEVICES $OMP_NUM_THREADS > out", outputs=("out",), resources=Resources(0.5, gpu=1)
        )
        assert run(step).state == "done"
        assert (run.base / "out").read_text() == "4 1\n"
        none = shell("x", 'echo "[$CUDA_VISIBLE_DEVICES]" > out', outputs=("out",))
        assert run(none).state == "done"
        assert (run.base / "out").read_text() == "[]\n"
    finally:
        if before:
            os.sched_setaffinity(0, before)


@pytest.mark.parametrize(("needed", "cores"), [(0.5, 1), (1, 1), (1.5, 2), (4, 4)])
def test_a_part_of_a_core_is_a_core(monkeypatch, needed, cores):
    chosen = []
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {9, 3, 5, 7, 1}, raising=False)
    monkeypatch.setattr("os.sched_setaffinity", lambda process, some: chosen.append(some), raising=False)
    step = Step("x", command=("true",), outputs=("o",), resources=Resources(needed))
    use_cores(step)
    assert chosen == [[1, 3, 5, 7][:cores]]
    libraries = ("MKL", "NUMEXPR", "OMP", "OPENBLAS")
    threads = {f"{name}_NUM_THREADS": str(cores) for name in libraries}
    assert limited_environment(step, {"A": "b"}) == {"A": "b", "CUDA_VISIBLE_DEVICES": "", **threads}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"resources": Resources(cpu=4000)}, "needs 4000 cores; this machine has"),
        ({"resources": Resources(memory=1 << 60)}, "GiB of memory; this machine has"),
        ({"resources": Resources(gpu=3)}, "needs 3 GPUs; this machine has 1"),
        ({"secrets": ("NO_SUCH_TOKEN",)}, "needs the secret NO_SUCH_TOKEN, which is not in the environment.\nDo: export"),
        ({"inputs": ("missing.txt",)}, "the input missing.txt does not exist, and no step makes it"),
    ],
)  # fmt: skip
def test_what_the_machine_lacks_is_said_before_anything_runs(run, monkeypatch, fields, problem):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(StepError, match=problem.replace("(", r"\(").split("\n")[0]) as caught:
        run(A, shell("x", "true", outputs=("o",), **fields))
    assert "\nDo: " in str(caught.value)
    assert not (run.base / "build").exists()


def test_secrets_reach_the_step_and_no_file(run, monkeypatch):
    monkeypatch.setenv("TOKEN", "s3cr3t-value")
    step = shell("x", "echo token: $TOKEN; test ${#TOKEN} = 12 && echo > out", outputs=("out",), secrets=("TOKEN",))
    record = run(step)
    assert record.state == "done"
    assert (run.folder / record.steps[0].log).read_text() == "token: ***\n"
    kept = [path for path in run.folder.rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes()]
    assert kept == []


def test_a_variable_that_counts_lets_the_step_run_again(run, monkeypatch):
    step = shell("x", "echo $SEED > out", outputs=("out",), environment=("SEED",))
    monkeypatch.setenv("SEED", "1")
    assert outcomes(run(step)) == {"x": "done"}
    monkeypatch.setenv("OTHER", "1")
    assert outcomes(run(step)) == {"x": "reused"}
    monkeypatch.setenv("SEED", "2")
    assert outcomes(run(step)) == {"x": "done"}
    assert (run.base / "out").read_text() == "2\n"


def test_a_step_waits_for_approval_and_goes_on_when_it_is_given(run):
    asks = shell("d", "cp c.txt d.txt", inputs=("c.txt",), outputs=("d.txt",), approval=True)
    record = run(A, B, C, asks)
    assert (record.state, outcomes(record)["d"]) == ("waiting for approval", "waiting for approval")
    assert not (run.base / "d.txt").exists()
    pipeline = Pipeline("demo", (A, B, C, asks), folder=run.base)
    assert step_states(pipeline, store=PlainStore.opened)[-1].state == "waiting for approval"
    assert outcomes(run(A, B, C, asks, approved=["c"]))["d"] == "waiting for approval"
    assert outcomes(run(A, B, C, asks, approved=["d"])) == {"a": "reused", "b": "reused", "c": "reused", "d": "done"}
    assert outcomes(run(A, B, C, asks)) == {"a": "reused", "b": "reused", "c": "reused", "d": "reused"}
    assert run(A, B, C, asks, force=True, approved=["*"]).state == "done"


@pytest.mark.parametrize(
    ("typed", "state"), [("y\n", "done"), ("\n", "waiting for approval"), ("", "waiting for approval")]
)
def test_a_person_is_asked_on_a_terminal_and_sees_the_figures(run, monkeypatch, capsys, typed, state):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    (run.base / "m.json").write_text('{"mAP50": 0.61}')
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    assert run(shell("d", "echo > d.txt", inputs=("m.json",), outputs=("d.txt",), approval=True)).state == state
    asked = capsys.readouterr().err
    assert "m.json: mAP50 0.61" in asked
    assert "Run step d? [y/N]" in asked


def test_files_of_the_user_are_never_replaced(run):
    (run.base / "build").mkdir()
    (run.base / "build/a").write_text("mine")
    with pytest.raises(StepError, match="its output build/a is there, and not from this pipeline; it is not replaced"):
        run(A)
    (run.base / "build/a").unlink()
    run(A, B)
    (run.base / "build/b/x").unlink()
    (run.base / "build/b/x").write_text("edited")
    with pytest.raises(StepError, match="its output build/b was changed since this pipeline wrote it") as caught:
        run(A, B)
    assert caught.value.path == run.base / "build/b"
    assert (run.base / "build/b/x").read_text() == "edited"


def test_outputs_that_the_user_removed_come_back_without_a_run(run):
    run(A, B, C)
    (run.base / "build/a").unlink()
    (run.base / "c.txt").unlink()
    assert set(outcomes(run(A, B, C)).values()) == {"reused"}
    assert (run.base / "build/a").read_text() == "1\n1\n"
    assert (run.base / "c.txt").read_text() == "1\n1\n"


def test_two_runs_of_a_pipeline_exclude_each_other(run):
    pipeline = Pipeline("demo", (A,), folder=run.base)
    folder = PipelineFolder.of(pipeline)
    folder.make()
    with (
        folder.locked(),
        pytest.raises(StepError, match=rf"pipeline demo: process {os.getpid()} runs it already\.\nDo: wait"),
    ):
        run(A)
    assert run(A).state == "done"
    record = run(A)
    replace(record, state="running", steps=(replace(record.steps[0], state="running"),)).save(run.folder)
    with folder.locked():
        assert [(each.step, each.state) for each in step_states(Pipeline("demo", (A, B), folder=run.base))] == [
            ("a", "running"),
            ("b", "to come"),
        ]
    with folder.locked():  # another pipeline in the same folder is not kept out
        other = Pipeline(
            "other", (shell("a", "cp in.txt other", inputs=("in.txt",), outputs=("other",)),), folder=run.base
        )
        assert run_pipeline(other, store=PlainStore.opened).state == "done"


def test_what_a_killed_run_left_is_removed_by_the_next(run):
    left = run.folder / "work/x.0"
    left.mkdir(parents=True)
    orphan = subprocess.Popen(["sleep", "600"], env={**os.environ, "PYTRT_STEP_FOLDER": str(left / "files")})
    bystander = subprocess.Popen(["sleep", "600"], env={**os.environ, "PYTRT_STEP_FOLDER": str(run.base / "elsewhere")})
    try:
        assert run(A).state == "done"
        assert not left.exists()
        if Path("/proc/self/environ").exists():
            assert orphan.wait(timeout=60) == -signal.SIGKILL
        assert bystander.poll() is None
    finally:
        for each in (orphan, bystander):
            each.kill()
            each.wait()


def test_a_full_disk_is_named_and_nothing_is_lost(run, monkeypatch):
    assert run(A).state == "done"
    (run.base / "in.txt").write_text("2\n")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Scratch, "take", full)
        record = run(A)
    assert "step a: the disk of" in failure(record)
    assert "is full" in failure(record)
    assert failure(record).splitlines()[-1].startswith("Do: free space")
    assert (run.base / "build/a").read_text() == "1\n1\n"
    assert run(A).state == "done"
    assert (run.base / "build/a").read_text() == "2\n2\n"


@pytest.mark.slow
def test_what_runs_at_the_end_knows_how_it_went(run):
    says = Step("on-exit", command=("sh", "-c", f"echo $PYTRT_PIPELINE_STATE >> {run.base}/end"))
    run(A, on_exit=says)
    run(shell("a", "exit 1", outputs=("build/a",)), on_exit=says, force=True)
    assert (run.base / "end").read_text().split() == ["done", "failed"]


def test_states_say_what_is_stale_and_what_never_ran(run):
    def states():
        found = step_states(Pipeline("demo", (A, B, C), folder=run.base), store=PlainStore.opened)
        return {each.step: each.state for each in found}

    assert set(states().values()) == {"never run"}
    run(A, B)
    assert states() == {"a": "done", "b": "done", "c": "never run"}
    run(A, B, C)
    (run.base / "in.txt").write_text("2\n")
    assert states() == {"a": "stale", "b": "stale", "c": "stale"}
    run(shell("a", "exit 1", inputs=("in.txt",), outputs=("build/a",)), B, C)
    assert states()["a"] == "failed"


def test_python_steps_find_their_functions(run):
    (run.base / "steps.py").write_text(
        "import json\n"
        "def count(inputs, outputs, factor):\n"
        "    (text,) = map(open, inputs)\n"
        "    open(outputs[0], 'w').write(json.dumps({'length': factor * len(text.read())}))\n"
    )
    step = Step("x", function="steps.py:count", inputs=("in.txt",), metrics=("m.json",), parameters={"factor": 3})
    assert run(step).figures == {"x.length": 6.0}
    holds = run(step, Step("gate", gate="length above 5", inputs=("m.json",), outputs=("gate.json",)))
    assert holds.steps[-1].message == "length above 5 (m.length 6 > 5)"
    gate = Step("gate", gate="m.length below 5", inputs=("m.json",), outputs=("stops.json",))
    record = run(step, gate)
    assert outcomes(record) == {"x": "reused", "gate": "failed"}
    assert "FAILS: m.length below 5 (m.length 6 < 5)" in failure(record)
    assert not (run.base / "stops.json").exists()
