"""Descriptions of arrays, read from DLPack's capsules."""

from __future__ import annotations

import ctypes
import struct
import sys
from typing import Any

import numpy as np
import pytest

from pytrtplugins.cuda import dlpack
from pytrtplugins.cuda.dlpack import exchange_reader, read_dlpack
from tests.cuda.dlpack import Exchanged, OfAnotherVersion, on_cuda


class Exported:
    """An array on a GPU, for DLPack."""

    def __init__(self, array, offset=0):
        self.array, self.offset, self.streams = array, offset, []

    def __dlpack__(self, stream):
        self.streams.append(stream)
        return on_cuda(self.array, self.offset)


def test_the_address_is_that_of_the_first_element_and_the_library_is_told_the_stream():
    memory = np.arange(24, dtype=np.float32)
    for array, offset in ((memory, 0), (memory[6:], 0), (memory[6:], 24)):
        exported = Exported(array, offset)
        address, _ = read_dlpack(exported, 7)
        assert address == array.ctypes.data
        assert exported.streams == [7]


def form(array):
    found = read_dlpack(Exported(array), 1)
    assert found is not None
    return found[1]


def test_forms_are_equal_exactly_where_dims_element_type_and_strides_are():
    x = np.zeros((2, 3, 4), np.float32)
    kinds = [x, x.reshape(3, 2, 4), x[0], x.astype(np.float16), x.view(np.int32), x[:, :, ::2], x.transpose(0, 2, 1)]
    forms = [form(array) for array in kinds]
    assert len(set(forms)) == len(forms)
    assert [form(array.copy(order="K")) for array in kinds[:5]] == forms[:5]
    assert form(np.zeros((), np.float32)) not in forms


def test_an_array_on_the_host_and_one_whose_library_refuses_have_no_form():
    class Refusing:
        def __dlpack__(self, stream):
            raise BufferError("not now")

    class Other:
        def __dlpack__(self):
            return on_cuda(np.zeros(3))

    class OnHost:
        def __dlpack__(self, stream):
            return np.zeros(3).__dlpack__()

    for array in (Refusing(), Other(), OnHost(), Exported("no array")):
        assert read_dlpack(array, 1) is None


def test_the_array_is_given_back():
    array = np.zeros(3)
    before = sys.getrefcount(array)
    for _ in range(5):
        read_dlpack(Exported(array), 1)
    assert sys.getrefcount(array) == before


def test_a_description_is_deleted_once_by_its_capsule_whose_name_stays():
    deleted, names = [], []
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))

    class Kept(Exported):
        def __dlpack__(self, stream):
            self.capsule = super().__dlpack__(stream)
            managed = ctypes.pythonapi.PyCapsule_GetPointer
            managed.restype, managed.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            behind = managed(self.capsule, b"dltensor") + 56  # the tensor; its owner is there
            deleter = ctypes.c_void_p.from_address(behind)
            delete = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
            numpys = delete(deleter.value)
            self.own = delete(lambda tensor: (deleted.append(tensor), numpys(tensor))[0])
            deleter.value = ctypes.cast(self.own, ctypes.c_void_p).value
            return self.capsule

    exported = Kept(np.zeros(3))
    assert read_dlpack(exported, 1) is not None
    names.append(name_of(exported.capsule))
    assert not deleted
    del exported.capsule
    assert (names, len(deleted)) == ([b"dltensor"], 1)


def test_c_functions_describe_an_array_and_name_the_stream_that_it_is_written_on(monkeypatch):
    read: Any = exchange_reader(Exchanged)
    x = np.zeros((2, 3), np.float32)
    (address, form), origin = read(Exchanged(x))
    assert address == x.ctypes.data
    forms = form, (*form[:3], None)  # NumPy before 2.3 leaves out C's strides
    assert read_dlpack(Exported(x), 1) in [(address, each) for each in forms]
    assert origin == read(Exchanged(x.copy()))[1]
    assert origin != read(Exchanged(x, (2, 1)))[1]
    monkeypatch.setattr(Exchanged, "current", [5, 7])
    assert (origin.current(), read(Exchanged(x, (2, 1)))[1].current()) == (5, 7)
    Exchanged.current[0] = 0
    assert origin.current() == 0


def test_arrays_that_c_functions_refuse_or_that_lie_elsewhere_have_no_form():
    read: Any = exchange_reader(Exchanged)
    for array in (Exchanged(None), Exchanged(np.zeros(3), (1, 0))):
        assert read(array) is None


class Odd:
    __dlpack_c_exchange_api__ = "no capsule"


@pytest.mark.parametrize("kind", [OfAnotherVersion, Odd, Exported])
def test_libraries_without_c_functions_of_this_version_are_read_by_capsules(kind):
    assert exchange_reader(kind) is None


@pytest.mark.slow  # as long as PyTorch's import
def test_pytorchs_c_functions_are_those_of_the_header(monkeypatch):
    torch = pytest.importorskip("torch")
    read: Any = exchange_reader(torch.Tensor)
    x = torch.zeros(2, 3)
    if read is None:
        pytest.skip(f"PyTorch {torch.__version__} has no C functions of DLPack")
    assert read(x) is None  # it lies on the host
    monkeypatch.setattr(dlpack, "_CUDA", 1)
    (address, form), origin = read(x)
    assert address == x.data_ptr()
    lists = [struct.unpack("=2q", each) for each in form[2:]]
    assert lists == [(2, 3), (3, 1)]
    assert origin.current() == 0
