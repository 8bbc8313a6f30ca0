"""The package's kernels compile for the GPUs that people have; `make test-slow`."""

from __future__ import annotations

import pytest

from pytrtplugins.cuda import find_symbol
from pytrtplugins.cuda.backends import nvcc
from pytrtplugins.layers import Region, Reorg
from pytrtplugins.vision import kernels

FLOATS = ("float32", "float16")
KERNELS = [(Reorg.kernel, (*FLOATS, "int8")), (Reorg.kernel_nhwc, (*FLOATS, "int8")), (Region.kernel, FLOATS),
           (kernels._LETTERBOX, (*FLOATS, "int8")), (kernels._DECODE, FLOATS), (kernels._NMS, (None,))]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not nvcc.available(), reason="nvcc is not installed")
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_every_kernel_compiles_without_a_gpu(architecture):
    for kernel, dtypes in KERNELS:
        for dtype in dtypes:
            assert find_symbol(kernel.compile(dtype, architecture=architecture), kernel.name, kernel.label)
