"""check_plugin(sanitize=True): launches repeated under g++'s sanitizers, and NVIDIA's tools read."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.check import replay, sanitize
from pytrtplugins.check.cases import Case
from pytrtplugins.check.sanitize import read_compute_sanitizer
from pytrtplugins.cuda import gpu_reason
from pytrtplugins.errors import UnavailableError
from pytrtplugins.layers import Region
from pytrtplugins.plugin.runner import PluginRunner
from tests.broken_kernels import (
    NEEDED,
    MissingBarrier,
    NoBoundsTest,
    OneTooManyInNumPy,
    Overflows,
    ReadsTheWorkspace,
    Reversed,
    SharedTooSmall,
    Summed,
    Twice,
)

pytestmark = NEEDED


def sanitized(plugin, **options):
    entry = ptp.check_plugin(plugin, engines=[], sanitize=True, **options)["AddressSanitizer"]
    if entry.skipped and "cannot build" in entry.detail:
        pytest.skip(entry.detail)
    return entry


@pytest.mark.parametrize("plugin", [Twice, Reversed, Summed, Region(classes=2, softmax=True)], ids=repr)
def test_right_kernels_have_nothing_to_report(plugin):
    shapes = [(1, 7, 2, 2)] if isinstance(plugin, Region) else [(2, 9), (1, 40)]
    entry = sanitized(plugin, shapes=shapes)
    assert entry.ok, entry.detail
    assert not entry.skipped, entry.detail


@pytest.mark.parametrize(
    ("broken", "wanted"),
    [
        (
            NoBoundsTest,
            ["AddressSanitizer: twice.cu:4: heap-buffer-overflow, READ of size 4", "\n       4 |     y[i] = x[i]"],
        ),
        (SharedTooSmall, ["UndefinedBehaviorSanitizer: twice.cu:5: index 2 out of bounds for type"]),
        (Overflows, ["UndefinedBehaviorSanitizer: twice.cu:4: signed integer overflow: "]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_line_and_what_the_sanitizer_calls_it_are_reported(broken, wanted):
    entry = sanitized(broken)
    assert not entry.ok
    for text in wanted:
        assert text in entry.detail


def test_under_a_sanitizer_threads_that_wait_for_each_other_leave_no_stack_by_longjmp(monkeypatch):
    programs = []

    def keeping(command, environment):
        programs.append(program(command, environment))
        return programs[-1]

    program = sanitize._program
    monkeypatch.setattr(sanitize, "_program", keeping)
    assert not sanitize.address_sanitizer(Case(Reversed(), ((2, 9),), (ptp.DType.FLOAT32,)))
    (done,) = programs
    assert done.returncode == 0
    assert "handle_no_return" not in done.stderr, "it would take variables of another stack for out of bounds"


def test_without_sanitize_there_is_no_such_entry():
    names = [entry.name for entry in ptp.check_plugin(Twice, engines=[], shapes=[(1, 4)]).entries]
    assert "AddressSanitizer" not in names
    assert "compute-sanitizer" not in names


def test_an_enqueue_that_does_more_than_to_launch_is_skipped_with_the_reason():
    entry = sanitized(OneTooManyInNumPy, shapes=[(1, 4)])
    assert entry.skipped
    assert "more than to launch kernels" in entry.detail


def test_without_compute_sanitizer_the_entry_says_what_to_install(monkeypatch):
    monkeypatch.setattr(
        shutil, "which", lambda name, path=None: None if name == "compute-sanitizer" else "/usr/bin/" + name
    )
    entry = ptp.check_plugin(Twice, engines=[], sanitize=True, shapes=[(1, 4)])["compute-sanitizer"]
    assert entry.skipped
    assert "Do: install the CUDA toolkit" in entry.detail


@pytest.mark.parametrize("plugin", [Twice(), Summed(), Region(classes=2, softmax=True)], ids=repr)
def test_launches_that_were_written_down_give_the_same_results(tmp_path, plugin):
    case = Case(plugin, ((1, 7, 2, 2),), (ptp.DType.FLOAT32,))
    runner, descs = PluginRunner(plugin.clone(), allocate=None), case.descs()
    runner.prepare(*descs)
    replay.write(tmp_path, case, runner.recorded_launches())
    found = replay.repeat(tmp_path, np)["output0"].view(np.float32).reshape(descs[1][0].dims)
    np.testing.assert_allclose(found, plugin.compute(*case.inputs()), rtol=1e-6)


REPORTS = {
    """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at void twice<float>(const float *, float *, int)+0x90 in twice.cu:4
=========     by thread (20,0,0) in block (3,0,0)
=========     Address 0x7f2a1be00a50 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2a1be00a00 of size 80 bytes
=========
========= ERROR SUMMARY: 1 error
""": "Invalid __global__ read of size 4 bytes: twice.cu:4: thread (20,0,0) of block (3,0,0)\n       4 |     y[i] = x[i] + x[i];",
    """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at void twice<float>(const float *, float *, int)+0x120 in /tmp/a/twice.cu:4
=========     and Read access at void twice<float>(const float *, float *, int)+0x180 in /tmp/a/twice.cu:5 [252 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
""": "Error: Race reported between Write access: twice.cu:4\n       4 |     y[i] = x[i] + x[i];",
    """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at fault+0x70
=========     by thread (0,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 64 errors
""": "Uninitialized __global__ memory read of size 4 bytes, thread (0,0,0) of block (0,0,0)",
    """========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at fault+0x60 in fault.cu:2
=========     by thread (63,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
""": "Barrier error detected. Divergent thread(s) in block: fault.cu:2: thread (63,0,0) of block (0,0,0)",
    "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 2 errors\n": "ERROR SUMMARY: 2 errors",
}


@pytest.mark.parametrize("report", REPORTS, ids=["memcheck", "racecheck", "initcheck", "synccheck", "unknown"])
def test_the_first_report_of_compute_sanitizer_is_read(report):
    assert read_compute_sanitizer(report, [NoBoundsTest.kernel]) == REPORTS[report]


def test_calls_of_the_driver_that_fail_are_no_findings_of_compute_sanitizer(monkeypatch):
    commands = []

    def keeping(command, environment):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(sanitize, "_program", keeping)
    monkeypatch.setattr(sanitize.shutil, "which", lambda name, path=None: f"/usr/local/cuda/bin/{name}")
    assert not sanitize.compute_sanitizer(Case(Twice(), ((2, 9),), (ptp.DType.FLOAT32,)))
    tools = [command for command in commands if "--tool" in command]
    assert [command[command.index("--tool") + 1] for command in tools] == list(sanitize.TOOLS)
    for command in tools:  # CuPy asks for functions that a driver may lack
        assert command[command.index("--report-api-errors") + 1] == "no"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("broken", "tool", "what"),
    [
        (NoBoundsTest, "memcheck", "Invalid __global__"),
        (MissingBarrier, "racecheck", "Race reported"),
        (ReadsTheWorkspace, "initcheck", "Uninitialized __global__"),
        (Twice, "", ""),
    ],
    ids=["memcheck", "racecheck", "initcheck", "right"],
)
def test_compute_sanitizer_finds_it_on_the_gpu(broken, tool, what):
    from pytrtplugins.check.sanitize import compute_sanitizer

    if reason := gpu_reason():
        pytest.skip(reason.partition("\n")[0])
    case = Case(broken(), ((3, 40),), (ptp.DType.FLOAT32,))
    try:
        found = compute_sanitizer(case)
    except UnavailableError as error:
        pytest.skip(str(error).partition("\n")[0])
    assert (tool in found and what in found) if tool else not found, found


def test_launches_are_repeated_on_the_gpu_each_array_apart_until_it_has_done_them(monkeypatch):
    calls = list[object]()
    device = SimpleNamespace(synchronize=lambda: calls.append("waited"))
    cupy = SimpleNamespace(cuda=SimpleNamespace(set_allocator=calls.append, Device=lambda: device))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(replay, "repeat", lambda *arguments: calls.append(arguments))
    replay.main(Path("folder"))
    assert calls == [None, (Path("folder"), cupy), "waited"]
