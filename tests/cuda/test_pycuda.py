"""PyCUDA: its arrays and allocations as bindings, its launches, one context for all."""

import numpy as np
import pytest

from pytrtplugins import errors
from pytrtplugins.cuda import CudaKernel, as_cupy, device_array, is_device_array
from pytrtplugins.cuda.backends import gpu
from pytrtplugins.cuda.compiler import find_nvcc
from tests.cuda.conftest import AFFINE

pytestmark = pytest.mark.gpu


@pytest.fixture
def pycuda(cupy):
    """PyCUDA's driver, in the primary context."""
    driver = pytest.importorskip("pycuda.driver", reason="PyCUDA is not installed")
    gpu.library("pycuda")
    return driver


def test_pycuda_and_cupy_share_the_primary_context(cupy, pycuda):
    cupy.zeros(1)
    assert pycuda.Context.get_current() is not None
    handle = cupy.cuda.driver.ctxGetCurrent()
    primary = pycuda.Device(0).retain_primary_context()
    assert primary.handle == handle == pycuda.Context.get_current().handle
    allocation = pycuda.mem_alloc(16)  # made by one, written by the other
    cupy.cuda.runtime.memset(int(allocation), 7, 16)
    found = np.empty(16, np.uint8)
    pycuda.memcpy_dtoh(found, allocation)
    assert (found == 7).all()


def test_a_gpuarray_is_a_binding_without_a_copy(cupy, pycuda):
    gpuarray = pytest.importorskip("pycuda.gpuarray")
    x, y = gpuarray.to_gpu(np.arange(12, dtype=np.float32).reshape(3, 4)), gpuarray.to_gpu(np.zeros((3, 4), np.float32))
    assert is_device_array(x)
    assert device_array(x).address == int(x.gpudata)
    CudaKernel.from_source(AFFINE, "affine").launch(x, y, 12, 3, False, threads=12)
    cupy.cuda.Device().synchronize()
    np.testing.assert_array_equal(y.get().ravel(), 3 * np.arange(12))
    same = as_cupy(x, (3, 4), "float32")
    assert same.data.ptr == int(x.gpudata)
    np.testing.assert_array_equal(cupy.asnumpy(same), x.get())


def test_a_device_allocation_is_a_binding_with_the_dims_that_are_known(cupy, pycuda):
    values = np.arange(6, dtype=np.float32)
    allocation, y = pycuda.to_device(values), cupy.zeros(6, np.float32)
    CudaKernel.from_source(AFFINE, "affine").launch(allocation, y, 6, 2, False, threads=6)
    np.testing.assert_array_equal(cupy.asnumpy(y), 2 * values)
    np.testing.assert_array_equal(cupy.asnumpy(as_cupy(allocation, (2, 3), "float32")).ravel(), values)
    with pytest.raises(errors.BindingError, match="DeviceAllocation has no dims"):
        as_cupy(allocation)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_pycuda_launches_the_same_kernel(cupy, pycuda, dtype):
    if not find_nvcc()[0]:
        pytest.skip("nvcc is not installed")
    gpuarray = pytest.importorskip("pycuda.gpuarray")
    stream = pycuda.Stream()
    x, y = gpuarray.to_gpu(np.arange(30).astype(dtype)), gpuarray.to_gpu(np.zeros(30, dtype))
    pycuda.Context.synchronize()
    kernel = CudaKernel.from_source(AFFINE, "affine", backend="pycuda")
    kernel.launch(x, y, 30, 3, True, threads=30, block=32, stream=stream)
    stream.synchronize()
    np.testing.assert_array_equal(y.get(), -3 * np.arange(30).astype(dtype))
    kernel.launch(cupy.full(30, 2, dtype), y, 30, 3, False, threads=30)  # CuPy's array, PyCUDA's launch
    pycuda.Context.synchronize()
    np.testing.assert_array_equal(y.get(), np.full(30, 6, dtype))
    other = cupy.cuda.Stream(non_blocking=True)
    kernel.launch(y, x, 30, 2, False, threads=30, stream=other)
    other.synchronize()
    np.testing.assert_array_equal(x.get(), np.full(30, 12, dtype))
