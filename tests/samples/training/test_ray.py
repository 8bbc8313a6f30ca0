"""Ranks on Ray: what they compute, what happens when one or its machine dies, and how the user ends them."""

# ruff: noqa: E402  (the samples are importable only after their folder is on the path)
from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason='training needs torch (pip install "pytrtplugins[train]")')

from tests.samples.rectangles import TINY  # isort: skip  (it puts the samples on the path)

import train_yolov2

from pytrtplugins.errors import MissingExtraError, UsageError
from tests.samples.training.test_kill import ROOT, SURROUNDINGS, check_same, train, whole  # noqa: F401
from training.optional import ray as ranks_on_ray
from training.ranks import Job, exchange
from training.settings import Settings

NO_RAY = 'Ray is not installed: pip install "pytrtplugins[train-ray]"'


def job(**given) -> Job:
    return Job(
        **{
            "program": ROOT / "none.py",
            "arguments": [],
            "out": ROOT,
            "device": "cpu",
            "settings": Settings(),
            "ranks": 2,
        }
        | given
    )


def test_ranks_that_cannot_work_are_not_started(tmp_path, capsys, monkeypatch):
    def launched(*_):
        raise AssertionError

    monkeypatch.setattr(ranks_on_ray, "launch_on_ray", launched)
    line = ["--data", "x", "--output", str(tmp_path), "--device", "cpu", "--ray"]
    folder = tmp_path / "checkpoints/step-000000007"
    folder.mkdir(parents=True)
    (folder / "facts.json").touch()
    for more, why in (
        ([], "--ray needs the number of ranks.\nDo: add --gpus 2"),
        (["--gpus", "2"], "a run of 7 steps is there.\nDo: add --resume"),
        (["--gpus", "2", "--resume", "--batch", "7"], "--batch 7: 2 ranks with --accumulate 1 cannot split it equally"),
        (["--gpus", "2", "--resume", "--sync_bn"], "SyncBatchNorm runs on GPUs only"),
    ):
        assert train_yolov2.main([*line, *more]) == 1
        assert why in capsys.readouterr().err


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r'\nDo: pip install "pytrtplugins\[train-ray\]"'):
        ranks_on_ray.launch_on_ray(job(), "local")


def test_a_cluster_that_is_too_small_is_named(capsys):
    ranks_on_ray._warn_of_waiting({"CPU": 8, "GPU": 2}, job(ranks=2, cores=4, device="cuda"))
    assert not capsys.readouterr().out
    ranks_on_ray._warn_of_waiting({"CPU": 8}, job(ranks=2, cores=4, device="cuda"))
    assert capsys.readouterr().out == (
        "2 GPUs are needed, the cluster has 0: waiting for more.\nDo: add machines, or give a smaller --gpus\n"
    )


def test_a_machine_without_the_program_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # which the rank leaves
    rank: dict[str, Any] = {
        "program": str(tmp_path / "none.py"),
        "arguments": [],
        "folder": str(tmp_path),
        "stop": None,
    }
    for lacking in (rank, rank | {"folder": str(tmp_path / "none")}):
        with pytest.raises(UsageError, match=r"machine .*none.* is not there.*\nDo: put the program") as caught:
            ranks_on_ray._work(lacking)
        assert socket.gethostname() in str(caught.value)


def test_the_rank_that_died_is_named_before_those_that_missed_it():
    class Died(Exception):
        pass

    class Failed(Exception):
        worker_failures = {0: RuntimeError("Connection closed by peer"), 1: Died(), 2: Died()}  # noqa: RUF012

    found = ranks_on_ray._explain(Failed(), Died)
    assert (found.rank, str(found).splitlines()[0]) == (1, "rank 1 died, or its machine; what it said is above.")
    assert "--resume" in str(found)
    found = ranks_on_ray._explain(Died("no controller"), Died)
    assert found.rank is None


@pytest.mark.parametrize(
    ("device", "spec", "wanted"),
    [
        ("cpu", "auto", ("gloo", {})),
        ("cuda", "auto", ("cpu:gloo,cuda:nccl", {})),
        ("cuda", "gloo", ("cpu:gloo,cuda:gloo", {})),
        ("cuda", "nccl/ring", ("cpu:gloo,cuda:nccl", {"NCCL_ALGO": "Ring"})),
    ],
)
def test_both_ways_to_start_ranks_exchange_by_the_same_library(device, spec, wanted):
    assert exchange(Settings(all_reduce_spec=spec), device) == wanted


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_nodes_compute_what_torchrun_computes_though_a_rank_or_a_node_is_killed(tmp_path, whole):  # noqa: F811
    pytest.importorskip("ray.train", reason=NO_RAY)
    line = [sys.executable, "-m", "tests.samples.training.two_nodes", str(tmp_path)]
    done = subprocess.run(line, env=SURROUNDINGS, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    check_same(tmp_path / "step", whole, began=3)
    check_same(tmp_path / "node", whole, began=3)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ctrl_c_saves_a_run_on_ray(rectangles, tmp_path):
    pytest.importorskip("ray.train", reason=NO_RAY)
    program = [sys.executable, str(ROOT / "samples/train_yolov2.py"), "--data", str(rectangles), "--device", "cpu"]
    line = [*program, *TINY, "--steps", "1000000", "--evaluations", "1"]
    line += ["--output", str(tmp_path), "--gpus", "2", "--ray", "local"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        line, env=SURROUNDINGS, cwd=ROOT, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as run:
        said = ""
        for text in run.stdout:
            said += text
            if "to get ready" in text:
                os.kill(run.pid, signal.SIGINT)
        assert run.wait(300) == 0, said
    assert "by a signal. Do: run the same command with --resume" in said
    assert list((tmp_path / "checkpoints").glob("step-*/facts.json"))
