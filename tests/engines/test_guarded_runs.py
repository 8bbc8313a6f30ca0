"""Inputs that contradict the network beside pages that nobody may touch: engines read and write no other memory, and raise."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.engines.run_dims import CASES
from tests.guard_pages import guarded

# engine, threads, the first network, and of how many one runs: each one on engine cpu, with 1, 2 and 4 threads by turns
RUNS = [("cpu", 1, 0, 3), ("cpu", 2, 1, 3), ("cpu", 4, 2, 3), ("onnxruntime", 2, 0, 3), ("reference", 1, 0, 3)]


@pytest.mark.parametrize(("engine_name", "threads", "first", "step"), RUNS)
def test_runs_touch_no_other_memory_and_name_what_contradicts(engine_name, threads, first, step):
    command = [sys.executable, "-m", "tests.engines.guarded_runs", engine_name, *map(str, (threads, first, step))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (lines[-1:], done.stderr[-500:])
    assert lines == [f"{case}:" for case in [*CASES][first::step]]


@pytest.mark.parametrize(("before", "index"), [(False, 3), (True, -1)])
def test_a_touch_beside_a_guarded_array_ends_the_process(before, index):
    text = (
        "import ctypes, numpy; from tests.guard_pages import guarded;"
        f"a = guarded(numpy.arange(3.0), before={before}); print(a.sum(), flush=True);"
        f"print(ctypes.c_double.from_address(a.ctypes.data + 8 * {index}))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("3.0\n", -signal.SIGSEGV)


@pytest.mark.parametrize("before", [False, True])
def test_a_guarded_array_is_a_writable_copy(before):
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    copy = guarded(array, before=before)
    copy += 1
    np.testing.assert_array_equal(copy, array + 1)
