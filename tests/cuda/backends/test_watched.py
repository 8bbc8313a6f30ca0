"""What a watched launch finds is told with its kernel, thread and line."""

import numpy as np
import pytest

from pytrtplugins.cuda import CudaKernel
from pytrtplugins.cuda.watch import Watch, watching
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


def test_a_defect_is_an_error_with_the_line_and_the_thread():
    with watching(Watch()), pytest.raises(KernelError) as caught:
        KERNEL.launch(np.zeros(4, np.int32), 2, threads=4, block=4)
    error = caught.value
    assert (error.facts["defect"], error.facts["line"], error.facts["thread"]) == ("division by zero", 3, (2, 0, 0))
    assert "kernel divide: thread (2, 0, 0) divides an integer by 0" in str(error)
