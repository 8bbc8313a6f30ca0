"""What counts as an array on a GPU, told without one."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins import errors
from pytrtplugins.cuda import Constant, CudaKernel, SymbolicArray, bindings, device_array, is_device_array
from pytrtplugins.cuda.arguments import is_array
from tests.cuda.conftest import AFFINE


class OnGpu:
    """Claims that a NumPy array lies on a GPU."""

    def __init__(self, array):
        self.__cuda_array_interface__ = {**array.__array_interface__, "strides": array.strides, "version": 3}


class DeviceAllocation:
    """As PyCUDA's: an address and nothing else."""

    def __int__(self):
        return 4096


DeviceAllocation.__module__ = "pycuda._driver"


@given(shape=st.lists(st.integers(0, 3), max_size=4), axes=st.randoms(), step=st.integers(1, 2))
def test_an_array_is_contiguous_exactly_where_numpy_says_so(shape, axes, step):
    order = list(range(len(shape)))
    axes.shuffle(order)
    array = np.zeros(shape, np.float16).transpose(order)[..., ::step] if shape else np.zeros((), np.float16)
    found = device_array(OnGpu(array))
    assert (found.contiguous, found.shape, found.dtype) == (array.flags.c_contiguous, array.shape, array.dtype)
    assert found.address == array.__array_interface__["data"][0]


def test_an_array_without_strides_is_contiguous():
    array = OnGpu(np.zeros((2, 3), np.int8))
    array.__cuda_array_interface__["strides"] = None
    assert device_array(array).contiguous


def test_pycudas_allocation_has_an_address_and_no_dims():
    found = device_array(DeviceAllocation())
    assert (found.address, found.dtype, found.shape, found.contiguous) == (4096, None, None, True)


@pytest.mark.parametrize("value", [np.zeros(3), np.float32(1), [1, 2], 7, None, "x"])
def test_what_lies_elsewhere_is_no_array_on_a_gpu(value):
    assert not is_device_array(value)
    with pytest.raises(errors.BindingError, match="not an array on a GPU"):
        device_array(value)


def test_arguments_on_a_gpu_are_checked_before_the_gpu_is_asked():
    kernel = CudaKernel.from_source(AFFINE, "affine")
    x, y = OnGpu(np.zeros(4, np.float32)), OnGpu(np.zeros(4, np.float16))
    for arrays, message in (
        ((x, y), r"`T\* y`: expected an array of float32 as the first one is, found float16"),
        ((x, np.zeros(4, np.float32)), r"different devices \((y: host, x: device|x: device, y: host)\)"),
        ((DeviceAllocation(), DeviceAllocation()), "no array says what T is"),
    ):
        with pytest.raises(errors.KernelError, match=message):
            kernel.launch(*arrays, 4, 1, False, threads=4)


class Stream:
    """CuPy's, written down."""

    ptr = 64

    def __init__(self):
        self.waits = []

    def wait_event(self, event):
        self.waits.append(event.recorded)


class Event:
    ptr = property(lambda self: self)

    def __init__(self, disable_timing):
        self.recorded = None


@pytest.fixture
def stream(monkeypatch):
    runtime = SimpleNamespace(eventRecord=lambda event, where: setattr(event, "recorded", where))
    cupy = SimpleNamespace(ndarray=Given, cuda=SimpleNamespace(Event=Event, runtime=runtime))
    monkeypatch.setattr(bindings, "require", lambda *_, **__: cupy)
    return Stream()


class Given(OnGpu):
    """Stands for CuPy's arrays."""


class Exported(OnGpu):
    """As PyTorch's: version 2 of the interface, and DLPack."""

    def __dlpack__(self, stream):
        self.waited = stream


def test_a_stream_waits_for_the_one_that_an_array_names(stream):
    array = OnGpu(np.zeros(3))
    array.__cuda_array_interface__["stream"] = 7
    bindings.wait_for(array, stream)
    assert stream.waits == [7]


def test_a_library_without_a_name_for_its_stream_is_asked_by_dlpack(stream):
    array = Exported(np.zeros(3))
    bindings.wait_for(array, stream)
    assert (stream.waits, array.waited) == ([], 64)


@pytest.mark.parametrize("make", [Given, OnGpu])
def test_cupys_arrays_and_those_that_tell_nothing_are_not_waited_for(stream, make):
    array = make(np.zeros(3))
    if make is Given:
        array.__cuda_array_interface__["stream"] = 7
    bindings.wait_for(array, stream)
    bindings.wait_for(DeviceAllocation(), stream)
    assert stream.waits == []


def test_what_a_kernel_takes_as_an_array():
    symbolic = SymbolicArray("input", 0, (4,), "float32")
    arrays = [np.zeros(4), symbolic, Constant(np.zeros(4)), device_array(OnGpu(np.zeros(4))), OnGpu(np.zeros(4))]
    assert [is_array(each) for each in arrays] == [True] * 5
    assert [is_array(each) for each in (4, 2.0, True, np.float32(1), (1, 2), None)] == [False] * 6
