"""Descriptions of arrays, read from DLPack's capsules."""

from __future__ import annotations

import sys

import numpy as np

from pytrtplugins.cuda.dlpack import read_dlpack
from tests.cuda.dlpack import on_cuda


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
