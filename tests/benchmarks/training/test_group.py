"""Groups of ranks: what they found stays, and none of them is left over."""

import os

import pytest

pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')

from benchmarks.training import group

PROGRAM = "tests.benchmarks.training.program"


def start(folder, *tasks, world=2):
    return group.Group(PROGRAM, {"tasks": tasks}, world, folder)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_ranks_do_task_after_task(tmp_path):
    with start(tmp_path, "one", "two") as ranks:
        assert ranks.result(0, 60)["task"] == "one"
        assert ranks.result(1, 60)["task"] == "two"
        ranks.wait(60)
        assert ranks.result(1, 60)["world"] == "2"  # which is still there


def test_one_rank_alone_is_no_group_of_pytorch(tmp_path):
    with start(tmp_path, "one", world=1) as ranks:
        assert ranks.result(0, 60)["world"] == ""


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("how", "why"), [("fails", "ValueError: no such thing"), ("dies", "ended with status -9")])
def test_a_rank_that_ends_is_told_with_its_reason_and_takes_the_others_with_it(tmp_path, rank, how, why):
    with start(tmp_path, "one", f"{how} in {rank}", "three") as ranks:
        pid = ranks.result(0, 60)["pid"]
        with pytest.raises(RuntimeError, match=why):
            ranks.result(1, 60)
    assert not is_running(pid)


def test_ranks_that_take_too_long_say_where_they_are_and_are_ended(tmp_path, capsys):
    with start(tmp_path, "one", "waits") as ranks:
        pid = ranks.result(0, 60)["pid"]
        with pytest.raises(RuntimeError, match=r"not done within 0\.2 s"):
            ranks.result(1, 0.2)
    assert not is_running(pid)
    assert "threading.py" in capsys.readouterr().err


def test_processes_that_compile_at_the_same_time_share_the_cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    assert group.compilers(1)["TORCHINDUCTOR_COMPILE_THREADS"] == "32"
    assert group.compilers(8)["TORCHINDUCTOR_COMPILE_THREADS"] == "8"
    assert group.compilers(100)["TORCHINDUCTOR_COMPILE_THREADS"] == "2"


def test_what_was_chosen_beside_other_processes_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    (tmp_path / "ab").mkdir()
    for name, text in (("short", '{"num_warps": 4}'), ("long", '{"found_by_coordesc": true}'), ("broken", "{")):
        (tmp_path / f"ab/{name}.best_config").write_text(text)
    (tmp_path / "ab/kernel.py").touch()
    group.forget_choices()
    assert {path.stem for path in (tmp_path / "ab").iterdir()} == {"broken", "kernel", "long"}
