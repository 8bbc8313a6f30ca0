"""How arrays of the host go to a GPU, with memory of the host in the GPU's place."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.engines.cudnn.upload import Upload

MEGABYTE = 1 << 20


class Runtime:
    """Copies when they are waited for, not before: what is written too early shows."""

    memcpyHostToDevice, memoryTypeHost = 1, 1

    def __init__(self, locked):
        self.locked, self.queued, self.copies, self.recorded = locked, [], [], {}

    def memcpyAsync(self, target, source, size, kind, stream):
        self.copies.append(source)
        self.queued.append((target, source, size))

    def eventRecord(self, event, stream):
        self.recorded[event] = len(self.copies)

    def eventSynchronize(self, event):
        left = len(self.copies) - self.recorded.get(event, 0)
        while len(self.queued) > left:
            ctypes.memmove(*self.queued.pop(0))

    def pointerGetAttributes(self, address):
        found = any(begin <= address < begin + size for begin, size in self.locked)
        return SimpleNamespace(type=1 if found else 0)

    def finish(self):
        while self.queued:
            ctypes.memmove(*self.queued.pop(0))


class Gpu:
    def __init__(self, *locked):
        self.runtime, events = Runtime([(array.ctypes.data, array.nbytes) for array in locked]), iter(range(99))
        cuda = SimpleNamespace(runtime=self.runtime, Event=lambda disable_timing: SimpleNamespace(ptr=next(events)))
        self.xp = SimpleNamespace(cuda=cuda)

    def pinned(self, size):
        return np.zeros(size, np.uint8), None


def on_gpu(array):
    return SimpleNamespace(data=SimpleNamespace(ptr=array.ctypes.data))


STREAM = SimpleNamespace(ptr=7)


@pytest.mark.parametrize("size", [1, 1000, 1 << 16, (1 << 16) + 1, MEGABYTE, 3 * MEGABYTE + 17])
def test_every_byte_arrives_where_it_belongs(size):
    gpu, array = Gpu(), np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    memory = np.full(size + 100, 7, np.uint8)
    send = Upload(gpu)
    for values in (array, array[::-1].copy()):
        send(values, on_gpu(memory), STREAM, 64)
        gpu.runtime.finish()
        np.testing.assert_array_equal(memory[64 : 64 + size], values)
        assert (memory[:64] == 7).all()
        assert (memory[64 + size :] == 7).all()


def test_page_locked_arrays_are_copied_by_the_gpu_itself():
    array = np.random.default_rng(0).random((3, 500, 700), dtype=np.float32)
    gpu, memory = Gpu(array), np.zeros_like(array)
    Upload(gpu)(array, on_gpu(memory), STREAM)
    assert gpu.runtime.copies == [array.ctypes.data]
    gpu.runtime.finish()
    np.testing.assert_array_equal(memory, array)


def test_half_page_locked_arrays_are_not():
    array = np.random.default_rng(0).integers(0, 256, MEGABYTE).astype(np.uint8)
    gpu, memory = Gpu(array[: MEGABYTE // 2]), np.zeros_like(array)
    send = Upload(gpu)
    send(array, on_gpu(memory), STREAM)
    assert array.ctypes.data not in gpu.runtime.copies
    gpu.runtime.finish()
    np.testing.assert_array_equal(memory, array)
