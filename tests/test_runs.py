"""How tests run: the same numbers in every run, others where asked, and an end to each that hangs."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import randomness
from tests.nested_pytest import nested_environment

ROOT = Path(__file__).parents[1]
SHARED = randomness.generator(7)
DRAWS = """
from hypothesis import given, strategies as st

@given(st.lists(st.integers(0, 2**60), min_size=3))
def test_draws(numbers):
    with open({log!r}, "a") as log:
        print(numbers, file=log)
"""
UNSEEDED = {"default_rng", "Random", "RandomState", "Generator", "SystemRandom"}
GLOBAL_STATE = {"rand", "randn", "randint", "normal", "uniform", "random", "choice", "permutation", "shuffle", "sample"}
DRAWING = re.compile("|".join((*UNSEEDED, "random", "uuid", "secrets")))
"""What a file has somewhere if it draws numbers: `_unseeded` asks for these names, or for what begins with them."""


@pytest.fixture
def run(tmp_path):
    """Run a test file with this project's settings; gives the exit code and what was printed."""

    def run_(source, *options, **environment):
        (tmp_path / "test_it.py").write_text(source, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
        plugins = ["tests.conftest", "_hypothesis_pytestplugin", "pytest_timeout", "no:cacheprovider"]
        command += [*(word for name in plugins for word in ("-p", name)), *options, str(tmp_path / "test_it.py")]
        kept = {"PYTHONPATH": str(ROOT), "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "hypothesis")}
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=nested_environment(**kept, **environment),
            capture_output=True,
            encoding="utf-8",
            timeout=100,
        )
        return done.returncode, done.stdout + done.stderr

    return run_


@pytest.fixture
def draws(run, tmp_path):
    """What hypothesis draws in one run, and what pytest prints."""

    def draws_(*options, **environment):
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        code, printed = run(DRAWS.format(log=str(log)), *options, **environment)
        assert code == 0, printed
        return log.read_text(encoding="utf-8"), printed

    return draws_


def test_every_run_draws_the_same_examples(draws):
    first, second = draws()[0], draws()[0]
    assert first == second
    assert first.count("\n") >= 30


def test_the_randomized_profile_draws_others_and_prints_the_seed_that_repeats_them(draws):
    first, printed = draws(HYPOTHESIS_PROFILE="randomized")
    other, _ = draws("--hypothesis-profile=randomized")
    assert first != other
    seed = re.findall(r"HYPOTHESIS_PROFILE=randomized pytest (--hypothesis-seed=\d+)", printed)[0]
    again, _ = draws(seed, HYPOTHESIS_PROFILE="randomized")
    assert again == first


def test_a_test_that_hangs_is_ended(run):
    code, printed = run("import threading\ndef test_hangs():\n    threading.Lock().acquire() and threading.Event().wait()\n",
                        "--timeout=1", "--override-ini=timeout_func_only=true")  # fmt: skip
    assert code != 0
    assert "Timeout" in printed
    assert "test_hangs" in printed


def test_every_test_has_a_limit(request):
    assert 0 < float(request.config.getini("timeout")) <= 600
    assert request.config.pluginmanager.hasplugin("timeout")


@pytest.mark.parametrize("_", range(2))
def test_each_test_finds_shared_generators_as_they_were_made(_):
    np.testing.assert_array_equal(SHARED.random(3), np.random.default_rng(7).random(3))
    np.testing.assert_array_equal(np.random.rand(2), np.random.RandomState(0).rand(2))


def _unseeded(tree):
    """Lines that draw numbers nobody can draw again, or from a generator whose state depends on the tests before."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _name(node.func)
            last = name.rpartition(".")[2]
            unseeded = last in UNSEEDED and not node.args and not node.keywords
            shared = last in GLOBAL_STATE and re.fullmatch(r"(np|numpy)\.random\.\w+", name)
            if unseeded or shared or name == "os.urandom" or name.startswith(("uuid.", "secrets.")):
                yield node.lineno, name
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name = ast.unparse(node.value.func)
            if name.rpartition(".")[2] in ("default_rng", "RandomState", "Random"):
                yield node.lineno, f"{name} of a whole module; take tests.randomness.generator"


def _name(called):
    """What is called, as it is written from the last thing that is no name."""
    if isinstance(called, ast.Attribute):
        return f"{_name(called.value)}.{called.attr}"
    return called.id if isinstance(called, ast.Name) else ""


ALLOWED = {
    ("tests/broken_plugins.py", "np.random.default_rng"),  # a plugin that is wrong because of it
    ("tests/conftest.py", "random.SystemRandom"),  # draws the seed, which is printed
    ("tests/test_runs.py", "np.random.rand"),
}


def test_random_numbers_have_seeds():
    found = set()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name, source = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        if not DRAWING.search(source):
            continue
        for line, call in _unseeded(ast.parse(source)):
            if (name, call) not in ALLOWED:
                found.add(f"{name}:{line}: {call}")
    assert not found


@pytest.mark.parametrize(
    "line",
    ["x = np.random.default_rng()", "x = f(np.random.rand(3))", "x = os.urandom(4)", "R = np.random.default_rng(0)"],
)
def test_the_search_finds_each_kind(line):
    assert list(_unseeded(ast.parse(line)))
