"""Every input that is kept gives a result or an error of this package, at little cost; and the harness tells what does not."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from pytrtplugins.errors import CfgError
from pytrtplugins.mlops.registry import facts
from tests.fuzz import folder_targets
from tests.fuzz.limits import LimitError, Spent, checked
from tests.fuzz.targets import TARGETS
from tests.fuzz.worker import CORPUS, CRASHED, LARGEST_INPUT, Task, begin, mutated, seeds

ROOT = Path(__file__).parents[2]
INPUTS = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_input_gives_a_result_or_our_error_at_little_cost(path):
    checked(TARGETS[path.parent.name])(path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_do_too(name):
    chance, known, run = random.Random(0), seeds(name), checked(TARGETS[name])
    for _ in range(30):
        run(mutated(chance, known))


def test_every_target_has_inputs_and_every_folder_a_target():
    assert sorted(TARGETS) == sorted(path.name for path in CORPUS.iterdir())


@pytest.mark.parametrize("name", sorted(set(TARGETS) - {"journal", "prototxt"}))
def test_one_input_of_a_target_is_taken_and_one_is_refused(name):
    """Else a target might refuse everything, for a reason that has nothing to do with its input."""
    taken, refused = 0, 0
    chance, known = random.Random(0), seeds(name)
    for data in [*known, *(mutated(chance, known) for _ in range(100)), b"\xff\0"]:
        try:
            TARGETS[name](data)
            taken += 1
        except Exception:
            refused += 1
        if taken and refused:
            break
    assert taken
    assert refused or name in ("settings", "labels")


def test_what_must_not_happen_is_told(monkeypatch):
    monkeypatch.setattr("tests.fuzz.limits.MAX_BYTES", 64 << 20)

    def other(data):
        raise KeyError(data)

    def long(data):
        raise CfgError("x" * 3000)

    def large(data):
        return bytearray(96 << 20).count(1)

    with pytest.raises(KeyError):
        checked(other)(b"")
    with pytest.raises(LimitError, match="a message of 3,000 characters"):
        checked(long)(b"")
    with pytest.raises(LimitError, match="bytes of memory"):
        checked(large)(b"")


def test_what_takes_too_long_is_interrupted(monkeypatch):
    monkeypatch.setattr("tests.fuzz.limits.MAX_SECONDS", 0.1)

    def endless(data):
        while True:
            pass

    with pytest.raises(LimitError, match="processor time"):
        checked(endless)(b"")


@pytest.mark.parametrize("use_atheris", [False, True])
def test_a_planted_defect_is_found_and_its_input_kept(tmp_path, use_atheris):
    atheris = pytest.importorskip("atheris") if use_atheris else None

    def planted(data):
        if b"9" in data:
            raise KeyError("planted")

    assert not any(b"9" in data for data in seeds("names"))
    task = Task("names", planted, tmp_path, 0, 60, 1, atheris)
    _, status = os.waitpid(begin(task), 0)
    assert os.waitstatus_to_exitcode(status) == CRASHED
    assert "planted" in (tmp_path / "log").read_text()
    (kept,) = {path.read_bytes() for path in tmp_path.glob("crash-*")}
    assert b"9" in kept


def test_inputs_are_drawn_the_same_way_each_time_and_are_small():
    known = [b"abc", bytes(LARGEST_INPUT)]
    drawn = [[mutated(chance, known) for _ in range(200)] for chance in (random.Random(3), random.Random(3))]
    assert drawn[0] == drawn[1]
    assert max(map(len, drawn[0])) <= LARGEST_INPUT
    assert len(set(drawn[0])) > 150


def test_a_campaign_prints_its_figures(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "tree", "names", "--inputs", "50", "--random", "--out", str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert Spent.read(tmp_path / "tree" / "spent").inputs == 50
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()[2:]}
    assert rows["names"][1:3] == ["50", "0"]
    assert rows["all"][1:3] == ["100", "0"]


def test_a_registry_that_is_made_for_the_targets_leaves_the_package_as_it_was(tmp_path):
    before = facts.environment
    folder_targets._make_registry(tmp_path / "registry")
    assert facts.environment is before
