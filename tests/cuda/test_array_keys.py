"""Addresses and forms of arrays, read in each call."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.cuda.array_keys import names_device, reader_of, writers
from tests.cuda.dlpack import Exchanged, on_cuda


def seen(array, stream=7):
    return reader_of(array)(array, stream)


def form(array):
    found = seen(array)
    assert found is not None
    return found[1]


def test_tensors_of_one_form_differ_in_their_address_only():
    torch = pytest.importorskip("torch")
    one, other = torch.zeros(2, 3), torch.nn.Parameter(torch.ones(2, 3), requires_grad=False)
    assert seen(one) == (one.data_ptr(), ("torch", (2, 3), torch.float32, torch.device("cpu")))
    assert form(other) == form(one)
    for different in (torch.zeros(3, 2), torch.zeros(2, 3, dtype=torch.float16), torch.zeros(2, 3, device="meta")):
        assert form(different) != form(one)


def test_arrays_whose_memory_is_not_their_values_in_order_have_no_form():
    torch = pytest.importorskip("torch")
    x = torch.zeros(2, 3)
    for array in (x.T, x[:, ::2], torch.zeros(2, 3, requires_grad=True), torch._neg_view(x), np.zeros(2), [1, 2]):
        assert seen(array) is None


class Array:
    """With CuPy's attributes and PyCUDA's."""

    def __init__(self, array, device=0):
        self.shape, self.dtype, self.strides = array.shape, array.dtype, array.strides
        self.gpudata = array.ctypes.data
        self.data = SimpleNamespace(ptr=array.ctypes.data, device_id=device)


class Interface:
    """With ``__cuda_array_interface__``."""

    def __init__(self, array, **more):
        self.__cuda_array_interface__ = {**array.__array_interface__, "strides": list(array.strides), **more}


class Both(Interface):
    """With DLPack too."""

    asked = 0

    def __dlpack__(self, stream):
        self.asked = stream
        return on_cuda(np.zeros(3))


def cupys(array, device=0):
    return type("ndarray", (Array,), {"__module__": "cupy"})(array, device)


def pycudas(array):
    return type("GPUArray", (Array,), {"__module__": "pycuda.gpuarray"})(array)


@pytest.mark.parametrize(("make", "library"), [(cupys, "cupy"), (pycudas, "pycuda"), (Interface, "interface")])
def test_forms_tell_dims_element_type_and_strides_of_arrays_of_other_libraries(make, library):
    x = np.zeros((2, 3, 4), np.float32)
    different = [x, x.reshape(3, 2, 4), x.astype(np.float16), x.view(np.int32), x[:, :, ::2], x.transpose(0, 2, 1)]
    assert len({form(make(array)) for array in different}) == len(different)
    for array in different:
        assert seen(make(array))[0] == array.ctypes.data
    assert form(make(x)) == form(make(x.copy()))
    assert form(make(x))[0] == library


def test_arrays_of_cupys_on_different_gpus_have_different_forms():
    x = np.zeros(3)
    assert form(cupys(x, 0)) != form(cupys(x, 1))


def test_an_interface_names_the_stream_that_its_array_is_written_on():
    x = np.zeros(3)
    assert [origin() for origin in writers((form(Interface(x, stream=5)), form(Interface(x, stream=5))))] == [5]
    assert not writers((form(Interface(x)), form(Interface(x, stream=None)), form(cupys(x))))


def test_a_library_whose_interface_names_no_stream_is_told_by_dlpack_which_one_will_read():
    for stream, told in ((7, 7), (0, 1)):
        array = Both(np.zeros(3), stream=None)
        found = seen(array, stream)
        assert (array.asked, found[1][0]) == (told, "dlpack")
    named = Both(np.zeros(3), stream=5)
    assert form(named)[0] == "interface"
    assert not named.asked


def test_a_library_with_c_functions_names_the_stream_that_its_array_is_written_on(monkeypatch):
    monkeypatch.setattr(Exchanged, "current", [6, 8])
    arrays = [Exchanged(np.zeros(3), (2, number)) for number in (0, 1, 0)]
    assert [seen(array)[0] for array in arrays] == [array.array.ctypes.data for array in arrays]
    assert [origin() for origin in writers(tuple(map(form, arrays)))] == [6, 8]
    assert seen(Exchanged(None)) is None


def test_an_object_that_has_lost_its_interface_has_no_form():
    array = Interface(np.zeros(3))
    read = reader_of(array)
    del array.__cuda_array_interface__
    assert read(array, 7) is None


def test_pytorchs_current_stream_is_asked_for_each_time(monkeypatch):
    current = [3, 4]
    cuda = SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=current[device.index]))
    inner = SimpleNamespace(_cuda_getCurrentRawStream=lambda index: current[index])
    tensors = tuple(("torch", (2,), "float32", _Device(index)) for index in (0, 1, 1))
    for torch in (SimpleNamespace(cuda=cuda), SimpleNamespace(cuda=cuda, _C=inner)):
        monkeypatch.setitem(sys.modules, "torch", torch)
        current[:] = [3, 4]
        asked = writers(tensors)
        assert [ask() for ask in asked] == [3, 4]
        current[0] = 5
        assert [ask() for ask in asked] == [5, 4]


class _Device:
    def __init__(self, index):
        self.index = index

    def __eq__(self, other):
        return self.index == other.index

    def __hash__(self):
        return hash(self.index)


@pytest.mark.parametrize(
    ("library", "told"), [("cupy", True), ("torch", True), ("dlpack", True), ("interface", False), ("pycuda", False)]
)
def test_some_forms_tell_the_gpu(library, told):
    assert names_device((library, (2, 3), np.float32, None)) == told
