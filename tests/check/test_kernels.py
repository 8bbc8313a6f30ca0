"""check_plugin survives what kernels and plugins do, and calls each defect by its name."""

import functools
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.check import isolate, steps
from tests.broken_kernels import (
    NEEDED,
    RIGHT,
    SURVIVED,
    ZOO,
    Crashes,
    IndexInInt,
    KernelHangs,
    MissingBarrier,
    NoBoundsTest,
    OneTooManyInNumPy,
    Twice,
)
from tests.small_process import in_small_process

pytestmark = NEEDED
CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children")


@functools.cache
def checked(plugin, time_limit=30.0):
    """The report, which several tests read, and whether the check has left a process."""
    before = CHILDREN.read_text()
    report = ptp.check_plugin(plugin, engines=[], time_limit=time_limit)
    return report, CHILDREN.read_text() != before


@pytest.mark.parametrize("plugin", RIGHT, ids=lambda cls: cls.__name__)
@in_small_process
def test_what_is_right_passes(plugin):
    report = ptp.check_plugin(plugin, engines=[], shapes=[(1, 8), (3, 1, 9), (2, 3, 1, 40)])
    report.raise_if_failed()
    assert not report["memory"].skipped
    assert not report["thread order"].skipped


@pytest.mark.parametrize(("broken", "entry", "name"), ZOO, ids=[cls.__name__ for cls, _, _ in ZOO])
@in_small_process
def test_a_defect_is_called_by_its_name(broken, entry, name):
    report, _ = checked(broken)
    assert [found.name for found in report.failed] == [entry], str(report)
    assert name in report[entry].detail, str(report)


@pytest.mark.parametrize(("broken", "entry", "name"), SURVIVED, ids=[cls.__name__ for cls, _, _ in SURVIVED])
@in_small_process
def test_a_crash_or_a_hang_is_a_failed_check(broken, entry, name):
    limit = 1 if name.startswith("hang") else 30  # a processor with other work may take a second to load a kernel
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "_PATIENCE_S", 1.5)
        report, process_left = checked(broken, getattr(broken, "limit_s", limit))
    assert [found.name for found in report.failed] == [entry], str(report)
    assert name in report[entry].detail, str(report)
    assert not process_left


@in_small_process
def test_the_report_names_buffer_element_thread_block_and_line():
    detail = checked(NoBoundsTest)[0]["memory"].detail
    assert detail.startswith("NoBoundsTest() on float32[1, 1, 1, 1]: out-of-bounds read, off by one: twice.cu:4: ")
    assert (
        "thread (1, 0, 0) reads element 1 of input 0 (float32[1, 1, 1, 1], elements 0 to 0) (block (0, 0, 0))" in detail
    )
    assert detail.endswith("\n       4 |     y[i] = x[i] + x[i];")
    detail = checked(MissingBarrier)[0]["thread order"].detail
    assert "shared memory, which thread (" in detail
    assert "twice.cu:" in detail
    detail = checked(OneTooManyInNumPy)[0]["memory"].detail
    assert "element 1 of output 0 (float32[1, 1, 1, 1], elements 0 to 0) was written" in detail


@in_small_process
def test_a_crash_has_the_smallest_shape_and_the_line_of_python():
    detail = checked(Crashes, 30)[0]["compute"].detail
    assert "6]: crash" in detail, detail
    assert "in string_at)" in detail, detail


@in_small_process
def test_a_kernel_that_hangs_is_named_with_its_line():
    detail = checked(KernelHangs, 1)[0]["memory"].detail
    assert "twice.cu:5" in detail
    assert "still runs when the time is up" in detail


@ptp.plugin(namespace="broken_kernels")
class TakesAllMemory(Twice):
    def compute(self, x):
        kept = [np.empty(1 << 27) for _ in range(1 << 10)]
        return x + x + len(kept)


@in_small_process
def test_a_plugin_that_takes_all_memory_takes_four_gibibytes():
    report = ptp.check_plugin(TakesAllMemory, shapes=[(1, 2)], engines=[])
    assert "MemoryError" in report.failed[0].detail, str(report)


def test_classes_without_a_module_are_checked_too():
    class Local(Twice):
        def compute(self, x):
            return (lambda value: value + value)(x)

    local = ptp.plugin(namespace="broken_kernels")(Local)
    ptp.check_plugin(local, engines=[]).raise_if_failed()
    program = (
        "import pytrtplugins as ptp\n@ptp.plugin(namespace='main')\nclass Main(ptp.Plugin):\n"
        "    def output_dims(self, x): return x\n    def compute(self, x): return x * 2\n"
        "print(ptp.check_plugin(Main, engines=[]))"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-"], input=program, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("Main(): ok"), done.stdout + done.stderr


@in_small_process
def test_a_check_may_be_made_from_any_thread():
    reports = []
    thread = threading.Thread(target=lambda: reports.append(ptp.check_plugin(Crashes, shapes=[(2, 3)], engines=[])))
    thread.start()
    thread.join()
    assert "SIGSEGV" in reports[0].failed[0].detail


def test_where_processes_cannot_be_forked_the_report_says_what_is_not_checked(monkeypatch):
    monkeypatch.setattr(isolate.sys, "platform", "darwin")
    report = ptp.check_plugin(Twice, engines=[])
    report.raise_if_failed()
    assert report["memory"].skipped
    assert "crashes, hangs and accesses outside of arrays are not caught" in report["memory"].detail


def test_what_the_process_of_a_check_prints_is_printed_once(capfd):
    print("before", end=" ")
    assert isolate.run(lambda send: print("inside", end=" "), lambda message: None, 20) == ""
    print("after")
    sys.stdout.flush()
    assert capfd.readouterr().out.split() == ["before", "inside", "after"]


def test_an_error_of_the_check_itself_is_raised():
    with pytest.raises(ptp.PytrtpluginsError, match="ZeroDivisionError"):
        isolate.run(lambda send: send(1 // 0), lambda message: None, 20)


def test_an_interrupted_check_leaves_no_process():
    before = CHILDREN.read_text()

    def interrupt(message):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        isolate.run(lambda send: [send(1), isolate.time.sleep(1000)], interrupt, 20)
    assert CHILDREN.read_text() == before


@in_small_process
def test_a_failure_that_shows_a_line_of_source_stands_by_itself():
    lines = str(checked(NoBoundsTest)[0]).splitlines()
    (number,) = (i for i, line in enumerate(lines) if line.startswith("  memory"))
    assert lines[number + 1 : number + 3] == ["           4 |     y[i] = x[i] + x[i];", "    tried 1 of 14 cases"]


@pytest.mark.parametrize(("most", "ok"), [(2**31 - 1, True), (2**32, False)])
@in_small_process
def test_large_tensors_are_tried_up_to_the_bound_that_a_plugin_declares(most, ok):
    plugin = ptp.plugin(namespace="bounds")(type(f"Bounded{ok}", (IndexInInt,), {"max_elements": most}))
    entry = ptp.check_plugin(plugin, engines=[], shapes=[(2, 3, 4)])["large tensors"]
    assert entry.ok is ok
    assert not entry.skipped
    assert ok or f"integer overflow within max_elements = {most}" in entry.detail


LAUNCHES_IN_THREADS = '''
import threading
import numpy as np
from pytrtplugins.check.guard import Memory
from pytrtplugins.cuda import CudaKernel
from pytrtplugins.cuda.watch import Watch, watching

SOURCE = """template <typename T> __global__ void scale(const T* x, T* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = FACTOR * x[i];
}"""


def work(n, factor):
    for _ in range(60):
        kernel = CudaKernel.from_source(SOURCE.replace("FACTOR", factor), "scale")
        with Memory(at_end=True) as memory:
            x, y = memory.array("x", (n,), np.float32), memory.array("y", (n,), np.float32)
            x[...] = np.arange(n)
            with watching(Watch(memory.regions)):
                kernel.launch(x, y, n, threads=n, block=64)
            assert (y == x * int(factor)).all()
    print("right", n)


for case in ((1000, "2"), (3000, "2"), (70, "3")):
    threading.Thread(target=work, args=case).start()
'''


def test_watched_launches_in_threads_do_not_disturb_each_other():
    """In a process of its own: threads that share a plan or the handlers of signals end it."""
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHES_IN_THREADS], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "right 1000", "right 3000", "right 70"], done.stdout + done.stderr
