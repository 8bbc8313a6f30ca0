"""Each fault of memory is found on each operand of a kernel, and the message names that operand."""

from typing import ClassVar

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.cuda import CudaKernel
from tests.broken_kernels import NEEDED
from tests.small_process import in_small_process

pytestmark = NEEDED
OPERANDS = {"a": "input 0", "b": "input 1", "s": "output 0", "d": "output 1", "w": "workspace"}
FAULTS = {
    "read behind": ("if (i == 0 && @[n] == T(7)) s[0] = T(0);", "absdw", "out-of-bounds read"),
    "read before": ("if (i == 0 && @[-1] == T(7)) s[0] = T(0);", "absdw", "out-of-bounds read"),
    "write behind": ("if (i == 0) @[n] = T(0);", "sdw", "out-of-bounds write"),
    "write before": ("if (i == 0) @[-1] = T(0);", "sdw", "out-of-bounds write"),
    "read first": ("if (i < n && @[i] > T(0)) odd = true;", "w", "uninitialized read"),
    "read first, of outputs": ("if (i < n && @[i] > T(0)) odd = true;", "sd", "depend on what the output held"),
    "write an input": ("if (i < n) const_cast<T*>(@)[i] = T(3);", "ab", "write to an input"),
    "every thread writes": ("if (i < n && n > 1) @[0] = T(i);", "sd", "race"),
}
CASES = [(fault, name) for fault, (_, names, _) in FAULTS.items() for name in names]
LINES = [
    f"if (fault == {number}) {{ {FAULTS[fault][0].replace('@', name)} }}" for number, (fault, name) in enumerate(CASES)
]
EARLY = [line for line in LINES if "odd" in line]
KERNEL = """template <typename T>
__global__ void both(const T* a, const T* b, T* s, T* d, T* w, int n, int fault) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool odd = false;
    EARLY
    if (i < n) {
        w[i] = a[i];
        s[i] = odd ? T(1) : T(w[i] + b[i]);
        d[i] = a[i] - b[i];
    }
    LATE
}
""".replace("EARLY", "\n    ".join(EARLY)).replace("LATE", "\n    ".join(line for line in LINES if line not in EARLY))


@ptp.plugin(namespace="positions")
class SumAndDifference(ptp.Plugin):
    """Two inputs, two outputs and a workspace; each number is another fault, and -1 is none."""

    fault: int

    kernel: ClassVar[CudaKernel] = CudaKernel.from_source(KERNEL, "both")

    def output_dims(self, a, b):
        if a != b:
            raise ptp.PytrtpluginsError("dims that are equal")
        return a, a

    def workspace_size(self, inputs, outputs):
        return int(np.prod(inputs[0].dims)) * inputs[0].dtype.numpy.itemsize

    def compute(self, a, b):
        return a + b, a - b

    def enqueue(self, inputs, outputs, workspace, stream):
        if (n := inputs[0].size) > 0:
            arrays = (*inputs, *outputs, workspace.view(inputs[0].dtype))
            self.kernel.launch(*arrays, n, self.fault, threads=n, block=64, stream=stream)


def failed(fault):
    report = ptp.check_plugin(SumAndDifference(fault), engines=[], shapes=[[(2, 9), (2, 9)]])
    return [found.detail for found in report.failed]


@in_small_process
def test_without_a_fault_it_passes():
    assert failed(-1) == []


@pytest.mark.parametrize(("fault", "name"), CASES, ids=lambda value: value)
@in_small_process
def test_a_fault_is_found_on_each_operand(fault, name):
    details = "; ".join(failed(CASES.index((fault, name))))
    assert FAULTS[fault][2] in details, details
    assert OPERANDS[name] in details, details
