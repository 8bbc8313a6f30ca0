"""DVC behind a pipeline: what it remembers between runs, restores from earlier ones and shares; and what a kill leaves."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytrtplugins.errors import MissingExtraError
from pytrtplugins.mlops.pipeline import Pipeline, Step
from pytrtplugins.mlops.pipeline.dvc_store import DvcStore
from pytrtplugins.mlops.pipeline.run import run_pipeline
from pytrtplugins.mlops.pipeline.states import step_states

if sys.platform == "win32":
    pytest.skip("pipelines run on Linux and macOS", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("default")  # DVC and what it imports have their own


def pipeline(folder, word="hello", remote=""):
    if not (folder / "in.txt").exists():
        (folder / "in.txt").write_text("1\n")
    make = f"mkdir build/a; cat in.txt > build/a/x; echo {word} > build/a/y; echo 'stages: [' > build/a/dvc.yaml"
    steps = (
        Step("a", command=("sh", "-c", make), inputs=("in.txt",), outputs=("build/a",)),
        Step("b", command=("sh", "-c", "cat build/a/x build/a/y"), inputs=("build/a",), stdout="b.txt"),
        Step(
            "c",
            command=("sh", "-c", f"tee -a {folder}/registry < b.txt"),
            inputs=("b.txt",),
            stdout="c.txt",
            stateful=True,
        ),
    )
    return Pipeline("demo", steps, folder=folder, remote=remote)


def outcomes(record):
    assert record.state in ("done", "failed"), record
    return {step.name: "reused" if step.reused else step.state for step in record.steps}


def test_a_missing_dvc_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "dvc.repo", None)
    with pytest.raises(MissingExtraError, match=r'Do: pip install "pytrtplugins\[pipeline\]"'):
        run_pipeline(pipeline(tmp_path))
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize(
    ("outputs", "digest"),
    [
        ({}, ""),
        ({"a": "11"}, "11"),
        ({"a": "11", "b": "22"}, "0c9a"),
        ({"b": "22", "a": "11"}, "0c9a"),
        ({"a": "22", "b": "11"}, "453d"),
        ({"a": "11", "c": "22"}, "0c4e"),
        ({"a": "11", "b": "33"}, "7ff1"),
    ],
)
def test_the_digest_of_outputs_is_of_their_names_and_contents_in_any_order(outputs, digest):
    """Registries keep it as what a model was made from: another value would mean other data."""
    outs = [SimpleNamespace(def_path=name, hash_info=SimpleNamespace(value=value)) for name, value in outputs.items()]
    store = SimpleNamespace(_stage=lambda step: SimpleNamespace(outs=outs))
    assert DvcStore.digest(store, None)[:4] == digest


def test_dvc_remembers_restores_and_tells(tmp_path):
    pytest.importorskip("dvc.repo", reason="DVC is missing. Do: pip install 'pytrtplugins[pipeline]'")
    where = Path.cwd()
    first = run_pipeline(pipeline(tmp_path))
    assert outcomes(first) == {"a": "done", "b": "done", "c": "done"}
    assert (tmp_path / "b.txt").read_text() == "1\nhello\n"
    assert all(step.digest and step.log for step in first.steps)
    assert outcomes(run_pipeline(pipeline(tmp_path))) == {"a": "reused", "b": "reused", "c": "reused"}

    assert [(each.step, each.state, each.reason) for each in step_states(pipeline(tmp_path, word="other"))] == [
        ("a", "stale", "what it runs"),
        ("b", "stale", "step a"),
        ("c", "stale", "step b"),
    ]
    (tmp_path / "in.txt").write_text("2\n")
    assert step_states(pipeline(tmp_path))[0].reason == "input in.txt has changed"
    assert outcomes(run_pipeline(pipeline(tmp_path))) == {"a": "done", "b": "done", "c": "done"}
    assert (tmp_path / "b.txt").read_text() == "2\nhello\n"

    (tmp_path / "in.txt").write_text("1\n")  # as before: only what changes more than its outputs runs
    (tmp_path / ".pytrt/pipelines/demo/dvc.lock").write_text("stages: {a: {cm")  # half written
    again = run_pipeline(pipeline(tmp_path))
    assert outcomes(again) == {"a": "reused", "b": "reused", "c": "done"}
    assert (tmp_path / "registry").read_text() == "1\nhello\n2\nhello\n1\nhello\n"
    assert [step.digest for step in again.steps] == [step.digest for step in first.steps]
    assert (tmp_path / "b.txt").read_text() == "1\nhello\n"
    assert Path.cwd() == where
    assert os.environ.get("PYTRT_PIPELINE_RUN") is None


@pytest.mark.slow
def test_results_are_shared_through_a_remote(tmp_path):
    pytest.importorskip("dvc.repo")
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    first = run_pipeline(pipeline(one, remote=str(tmp_path / "store")))
    assert outcomes(first) == {"a": "done", "b": "done", "c": "done"}
    second = run_pipeline(pipeline(two, remote=str(tmp_path / "store")))
    assert outcomes(second) == {"a": "reused", "b": "reused", "c": "done"}
    assert (two / "b.txt").read_text() == "1\nhello\n"


SOURCE = """name: demo
steps:
  a: {command: sh work.sh a, inputs: [work.sh, in.txt], outputs: [build/a]}
  b: {command: sh work.sh b, inputs: [work.sh, build/a], outputs: [build/b]}
  c: {command: sh work.sh c, inputs: [work.sh, build/b], outputs: [build/c]}
"""
WORK = """mkdir build/$1
echo $1 > build/$1/first
touch "$MARKS/$1"
while [ -e "$MARKS/hold-$1" ]; do sleep 0.05; done
echo $1 > build/$1/second
"""


class Killed:
    """A pipeline in a process that can be killed with all that belongs to its group."""

    def __init__(self, base):
        self.base, self.marks = base / "project", base / "marks"
        self.base.mkdir()
        self.marks.mkdir()
        for name, text in (("pipeline.yaml", SOURCE), ("work.sh", WORK), ("in.txt", "1\n")):
            (self.base / name).write_text(text)

    def start(self):
        words = [sys.executable, "-m", "pytrtplugins", "pipeline", "run", "pipeline.yaml"]
        environment = {**os.environ, "MARKS": str(self.marks)}
        return subprocess.Popen(
            words, cwd=self.base, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True
        )

    def kill(self, process):
        os.killpg(process.pid, signal.SIGKILL)
        process.stderr.close()
        process.wait()

    def finish(self):
        process = self.start()
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        return said

    def check_whole(self):
        """Each output is there as a whole, or not at all."""
        for name in "abc":
            found = {path.name: path.read_text() for path in (self.base / "build" / name).glob("*")}
            assert found in ({}, {"first": f"{name}\n", "second": f"{name}\n"})


@pytest.mark.slow
@pytest.mark.parametrize("step", ["a", "b", "c"])
def test_a_run_that_is_killed_in_a_step_goes_on_with_it(tmp_path, step):
    pytest.importorskip("dvc.repo")
    killed = Killed(tmp_path)
    (killed.marks / f"hold-{step}").touch()
    process = killed.start()
    end = time.monotonic() + 120
    while not (killed.marks / step).exists():
        assert time.monotonic() < end, "the step has not begun"
        assert process.poll() is None
        time.sleep(0.02)
    killed.kill(process)
    killed.check_whole()
    (killed.marks / f"hold-{step}").unlink()
    said = killed.finish()
    for name in "abc":
        assert (f"{name}: unchanged" in said) == (name < step), said
        assert (f"{name}: done" in said) == (name >= step), said
        assert sorted(path.name for path in (killed.base / "build" / name).iterdir()) == ["first", "second"]
    assert not list((killed.base / ".pytrt/pipelines/demo/work").iterdir())


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_moment_goes_on(tmp_path):
    pytest.importorskip("dvc.repo")
    killed = Killed(tmp_path)
    begin = time.monotonic()
    killed.finish()
    whole = time.monotonic() - begin
    for number in range(16):
        (killed.base / "in.txt").write_text(f"{number + 2}\n")
        process = killed.start()
        time.sleep(whole * (number + 1) / 16)
        if process.poll() is None:
            killed.kill(process)
        else:
            process.communicate()
        killed.check_whole()
    killed.finish()
    assert killed.finish().count("unchanged") == 3
    assert sorted(path.name for path in (killed.base / "build").iterdir()) == ["a", "b", "c"]
    shutil.rmtree(killed.base / "build")
    killed.finish()
    killed.check_whole()
    assert (killed.base / "build/c/second").read_text() == "c\n"


@pytest.mark.slow
def test_ctrl_c_ends_the_step_and_the_run(tmp_path):
    pytest.importorskip("dvc.repo")
    killed = Killed(tmp_path)
    (killed.marks / "hold-b").touch()
    process = killed.start()
    while not (killed.marks / "b").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert not list((killed.base / ".pytrt/pipelines/demo/work").iterdir())
    (killed.marks / "hold-b").unlink()
    assert "a: unchanged" in killed.finish()
