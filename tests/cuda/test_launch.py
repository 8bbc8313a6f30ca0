"""`CudaKernel` on arrays of a GPU, with a driver that runs the kernel on memory of the host."""

import ctypes
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins import errors
from pytrtplugins.cuda import Constant, CudaKernel, gpu_reason
from pytrtplugins.cuda import driver as driver_module
from pytrtplugins.cuda.backends import gpu
from pytrtplugins.cuda.driver import Driver
from tests.cuda.conftest import AFFINE
from tests.cuda.fake_driver import FakeDriver
from tests.cuda.foreign import Foreign

CONTEXT, STREAM = 7, 0x50


class Array:
    """What CuPy's array has, over an array of NumPy."""

    def __init__(self, values):
        self.values = np.array(values, np.float32)
        self.dtype, self.flags = self.values.dtype, self.values.flags
        self.data = SimpleNamespace(ptr=self.values.ctypes.data)

    @property
    def __cuda_array_interface__(self):
        return {"data": (self.data.ptr, False), "typestr": self.dtype.str, "shape": self.values.shape, "version": 3}


class Device(FakeDriver):
    """A driver whose one kernel is `AFFINE`.

    Attributes:
        launches: (grid, block, bytes of shared memory, stream) of each.
        before: Called in each launch.
    """

    def __init__(self, types):
        super().__init__(types=types)
        self.launches, self.before = [], lambda: None

    def cuLaunchKernelEx(self, config, handle, address, extra):
        self.before()
        given = (ctypes.c_void_p * 5).from_address(address)
        count, factor = ctypes.c_int.from_address(given[2]).value, ctypes.c_float.from_address(given[3]).value
        negate = ctypes.c_bool.from_address(given[4]).value
        x, y = (np.ctypeslib.as_array((ctypes.c_float * count).from_address(_pointer(at))) for at in given[:2])
        y[:] = x * factor * (-1 if negate else 1)
        sizes = [tuple(getattr(config, f"{what}Dim{axis}") for axis in "XYZ") for what in ("grid", "block")]
        self.launches.append((*sizes, config.sharedMemBytes, int(config.hStream)))
        return self.__getattr__("cuLaunchKernelEx")(config, handle, address, extra)


def _pointer(address):
    return ctypes.c_void_p.from_address(address).value


@pytest.fixture
def device(monkeypatch):
    """The GPU of this process, for the test."""
    types = pytest.importorskip("cuda.bindings.driver", reason="no cuda-bindings. Do: pip install cuda-bindings")
    found = Device(types)
    number = SimpleNamespace(compute_capability="90", use=lambda: setattr(found, "current", CONTEXT))
    stream = SimpleNamespace(ptr=STREAM, synchronize=lambda: None)
    runtime = SimpleNamespace(getDeviceCount=lambda: 1, CUDARuntimeError=RuntimeError)
    cuda = SimpleNamespace(runtime=runtime, Device=lambda: number, get_current_stream=lambda: stream)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, ndarray=Array, asarray=Array))
    for module in (driver_module, gpu):
        monkeypatch.setattr(module, "driver", lambda: Driver(found))
    monkeypatch.setattr(gpu, "_libraries", {})
    monkeypatch.setattr(gpu, "compile_unit", lambda unit, *how: f".text._Z{len(unit.signature.name)}affine".encode())
    assert not gpu_reason()
    return found


def test_a_launch_gets_the_arrays_and_the_stream_of_its_call(device, affine):
    streams = [None, 3, SimpleNamespace(ptr=4), SimpleNamespace(cuda_stream=5), SimpleNamespace(handle=6)]
    for number, stream in enumerate(streams):
        x, y = Array(np.arange(10) + number), Array(np.zeros(10))
        affine.launch(x, y, 10, 2, True, threads=(10, 3), block=(4, 2), shared_bytes=64, stream=stream)
        np.testing.assert_array_equal(y.values, -2 * x.values)
    assert device.launches == [((3, 2, 1), (4, 2, 1), 64, handle) for handle in (STREAM, 3, 4, 5, 6)]
    assert len(device.called("cuModuleLoadData")) == len(device.called("cuModuleGetFunction")) == 1


ALIKE = {"count": 6, "factor": 2.0, "negate": False, "threads": 6, "block": 32, "shared_bytes": 0}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("count", 4), ("factor", 3.0), ("negate", True), ("threads", 70), ("threads", (6, 2))),
        *(("block", 64), ("shared_bytes", 8)),
    ],
)
def test_a_launch_that_differs_in_one_number_from_one_before_has_its_own(device, affine, name, value):
    """Also where both are alike to Python; a third launch is like the first again."""
    for count, factor, negate, threads, block, shared_bytes in map(dict.values, (ALIKE, {**ALIKE, name: value}, ALIKE)):
        x, y = Array(np.arange(1, 7)), Array(np.zeros(6))
        affine.launch(x, y, count, factor, negate, threads=threads, block=block, shared_bytes=shared_bytes)
        wanted = np.where(np.arange(6) < count, x.values * factor * (-1 if negate else 1), 0)
        np.testing.assert_array_equal(y.values, wanted)
        sizes = threads if isinstance(threads, tuple) else (threads, 1)
        grid = (-(-sizes[0] // block), sizes[1], 1)
        assert device.launches.pop() == (grid, (block, 1, 1), shared_bytes, STREAM)


def test_a_launch_in_another_context_loads_its_own_kernel(device, affine):
    for context, loads in ((CONTEXT, 1), (CONTEXT + 1, 2), (CONTEXT, 2)):
        device.current = context
        x, y = Array(np.arange(4)), Array(np.zeros(4))
        affine.launch(x, y, 4, 2.0, False, threads=4)
        np.testing.assert_array_equal(y.values, 2 * x.values)
        assert len(device.called("cuModuleLoadData")) == loads


def test_numbers_that_are_equal_and_not_the_same_are_told_apart(device, affine):
    for factor in (0.0, -0.0, 0.0):
        y = Array(np.ones(2))
        affine.launch(Array([1, 1]), y, 2, factor, False, threads=2)
        assert np.signbit(y.values).tolist() == [np.signbit(factor)] * 2
    with pytest.raises(errors.KernelError, match="expected True or False, found 0"):
        affine.launch(Array([1, 1]), y, 2, 0.0, 0, threads=2)
    with pytest.raises(errors.KernelError, match=r"expected a whole number, found 2\.0"):
        affine.launch(Array([1, 1]), y, 2.0, 0.0, False, threads=2)


def test_arrays_of_other_libraries_and_constants_are_taken(device, affine):
    table, y = Constant(np.arange(6, dtype=np.float32)), Array(np.zeros(6))
    for factor in (2, 3):
        affine.launch(table, Foreign(y), 6, factor, False, threads=6)
        np.testing.assert_array_equal(y.values, factor * np.arange(6))
    assert list(table.copies) == [CONTEXT]


def test_a_new_thread_gets_the_context_of_its_gpu(device, affine):
    device.current = 0
    affine.launch(Array([1]), Array([0]), 1, 1, False, threads=1)
    assert (device.current, len(device.launches)) == (CONTEXT, 1)


def test_threads_that_launch_one_kernel_do_not_mix_their_arrays(device, affine):
    x, y = [Array([number]) for number in (1, 2)], [Array([0]), Array([0])]
    affine.launch(x[0], y[0], 1, 1, False, threads=1)
    other = threading.Thread(target=affine.launch, args=(x[1], y[1], 1, 1, False), kwargs={"threads": 1})

    def start():
        device.before = lambda: None
        other.start()
        other.join(0.05)  # it waits for this launch

    device.before = start
    y[0].values[:] = 0
    affine.launch(x[0], y[0], 1, 1, False, threads=1)
    other.join()
    assert [array.values.tolist() for array in y] == [[1], [2]]


def test_a_refused_launch_names_the_kernel_and_the_next_one_runs(device, affine):
    x, y = Array([3]), Array([0])
    device.fails = {"cuLaunchKernelEx"}
    with pytest.raises(errors.KernelError, match=r"kernel affine: CUDA: cuLaunchKernelEx gives CUDA_ERROR") as caught:
        affine.launch(x, y, 1, 2, False, threads=1)
    assert caught.value.path == "cuLaunchKernelEx"
    device.fails = set()
    affine.launch(x, y, 1, 2, False, threads=1)
    assert y.values.tolist() == [6]


def test_a_kernel_that_was_not_loaded_is_loaded_again(device, affine):
    device.fails = {"cuModuleLoadData"}
    with pytest.raises(errors.KernelError, match="cuModuleLoadData"):
        affine.prepare("float32")
    device.fails = set()
    affine.prepare("float32")
    assert not device.launches


def test_the_most_shared_memory_that_was_asked_for_stays_allowed(device, affine):
    for size in (40_000, 100_000, 60_000):
        affine.launch(Array([1]), Array([0]), 1, 1, False, threads=1, shared_bytes=size)
    assert [call[-1] for call in device.called("cuFuncSetAttribute")] == [40_000, 100_000]
    assert [launch[2] for launch in device.launches] == [40_000, 100_000, 60_000]


def test_a_kernel_is_unloaded_with_the_object(device):
    kernel = CudaKernel.from_source(AFFINE, "affine")
    kernel.launch(Array([1]), Array([0]), 1, 1, False, threads=1)
    assert not device.called("cuModuleUnload")
    del kernel
    assert len(device.called("cuModuleUnload")) == 1
