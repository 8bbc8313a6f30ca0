"""What a watched launch finds is told with its kernel, thread and line."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.cuda import CudaKernel
from pytrtplugins.cuda.backends import watched
from pytrtplugins.cuda.watch import Finding, Region, Watch, watching
from pytrtplugins.errors import KernelError
from tests.broken_kernels import NEEDED

pytestmark = NEEDED
KERNEL = CudaKernel.from_source(
    """__global__ void divide(int* y, int n) {
    const int i = threadIdx.x;
    y[i] = 12 / (n - i);
}""",
    "divide",
)


def test_what_does_not_compile_says_the_compilers_words():
    with pytest.raises(watched._CannotWatchError, match=r"^no such type\n$"):
        watched._run(["sh", "-c", "echo no such type >&2; exit 3"])
    watched._run(["true"])


def test_a_defect_is_an_error_with_the_line_and_the_thread():
    with watching(Watch()), pytest.raises(KernelError) as caught:
        KERNEL.launch(np.zeros(4, np.int32), 2, threads=4, block=4)
    error = caught.value
    assert (error.facts["defect"], error.facts["line"], error.facts["thread"]) == ("division by zero", 3, (2, 0, 0))
    assert "kernel divide: thread (2, 0, 0) divides an integer by 0" in str(error)


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("/cache/a.cu:2\n", 2),
        ("/usr/include/c++/vector:88\n/cache/a.cu:3 (discriminator 1)\n", 3),  # inlined into line 3
        ("/cache/a.cu:4\n", 0),  # it has 3
        ("/cache/a.cu:0\n??:?\n", 0),
    ],
)
def test_the_line_of_an_access_is_that_of_the_byte_before_its_return_address(monkeypatch, output, line):
    commands = []
    monkeypatch.setattr(watched.shutil, "which", lambda name: "addr2line")
    monkeypatch.setattr(
        watched.subprocess,
        "run",
        lambda command, check, **options: commands.append([*command, check]) or SimpleNamespace(stdout=output),
    )
    unit = SimpleNamespace(label="a.cu", source="1\n2\n3\n")
    assert watched._line(unit, Path("a.so"), Finding(place=0x1000)) == line
    assert commands == [["addr2line", "-i", "-e", "a.so", "0xfff", False]]  # it may fail
    assert watched._line(unit, Path("a.so"), Finding(place=0)) == 0
    assert watched._line(unit, Path("a.so"), Finding(place=0x1000, line=7, text=b"a.cu")) == 7
    assert len(commands) == 1


@pytest.mark.parametrize(
    ("region", "offset", "memory"),
    [
        (0, 0, "input 0[0, 0]"),
        (0, 20, "input 0[1, 2]"),
        (0, 24, "element 6 of input 0 (float32[2, 3], elements 0 to 5)"),
        (1, -8, "element -1 of output 0 (float64[2], elements 0 to 1)"),
        (1, 8, "output 0[1]"),
        (-1, 0, "memory"),
        (-2, 0, "shared memory"),
    ],
)
def test_memory_is_named_with_the_element(region, offset, memory):
    arrays = (("input 0", (2, 3), np.float32), ("output 0", (2,), np.float64))
    regions = [Region(name, dims, np.dtype(kind), 0, 0, 0, False) for name, dims, kind in arrays]
    unit = SimpleNamespace(label="a.cu", source="1")
    facts = watched._Facts(
        unit, Path("a.so"), regions, (1, 1, 1), (4, 2, 1), Finding(region=region, offset=offset, thread=6)
    )
    assert (facts.memory, facts.thread) == (memory, (2, 1, 0))
