"""A kernel to try, and what skips tests where they cannot run."""

import shutil

import pytest

from pytrtplugins.cuda import CudaKernel, gpu_reason

AFFINE = """
// y = x * factor + summand, a thread per value
template <typename T>
__global__ void affine(const T* __restrict__ x, T* __restrict__ y, int n, float factor, bool negate) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float value = static_cast<float>(x[i]) * factor;
    y[i] = T(negate ? -value : value);
}
"""


@pytest.fixture
def host():
    """Skips without a C++ compiler."""
    if not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("no C++ compiler: kernels do not run on NumPy arrays (apt-get install g++)")


@pytest.fixture
def cupy():
    """CuPy; skips without a GPU."""
    if reason := gpu_reason():
        pytest.skip(reason.partition("\n")[0])
    import cupy

    return cupy


@pytest.fixture
def affine():
    """A new kernel, so that nothing is compiled in this process yet."""
    return CudaKernel.from_source(AFFINE, "affine")
