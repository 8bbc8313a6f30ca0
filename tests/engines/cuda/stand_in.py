"""NumPy in the GPU's place, for contexts: what they need of arrays, a device, streams and the engine."""

from __future__ import annotations

import ctypes
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np

from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import SymbolicDim, TensorDesc
from tests.engines.cuda.host import host_execution
from tests.engines.networks import conv_net


class OnGpu(np.ndarray):
    """An array with the address that CuPy's have."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


class Execution:
    """Another's tensors as arrays on a GPU."""

    def __init__(self, execution):
        self.inner, self.device, self.queue, self.close = execution, execution.device, execution.queue, execution.close
        self.segments, self.capture, self.plan = execution.segments, execution.capture, execution.plan
        self.allocating, self.indices = execution.allocating, execution.indices

    @property
    def late(self):
        return self.inner.late

    def input(self, name):
        return self.inner.input(name).view(OnGpu)

    def output(self, name):
        return self.inner.output(name).view(OnGpu)


def on_gpu(array, begin=0):
    """A copy that begins so many bytes behind a multiple of 256."""
    memory = HostDevice().allocate(array.nbytes + begin)[begin:]
    copy = memory[: array.nbytes].view(array.dtype).reshape(array.shape).view(OnGpu)
    copy[...] = array
    return copy


class Graph:
    """Does again what was captured."""

    def __init__(self, queue):
        self.queue = queue

    def launch(self, stream=None):
        self.queue(stream or Stream())


def capture_graph(queue, stream):
    return Graph(queue)


class Device(HostDevice):
    """A GPU.

    Attributes:
        copies: Sizes of the copies that were made from the device.
        order: Events that were recorded and waited for by their numbers, each with the stream's.
        capturing: Whether callers' streams are being captured.
    """

    def __init__(self):
        self.copies: list[int] = []
        self.order: list[tuple[str, int, int]] = []
        self.capturing = False
        runtime = SimpleNamespace(
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
            memcpyAsync=self.copy,
            deviceSynchronize=lambda: None,
            eventRecord=lambda event, stream: self.order.append(("record", event, stream)),
            streamWaitEvent=lambda stream, event: self.order.append(("wait", event, stream)),
            streamIsCapturing=lambda stream: self.capturing,
        )
        self.xp, self.number, self.number_of_devices = SimpleNamespace(), 0, 1
        self.xp.cuda = SimpleNamespace(Stream=Stream, Event=Event, runtime=runtime, get_current_stream=Stream)

    def copy(self, to, source, size, kind, stream):
        ctypes.memmove(to, source, size)
        self.copies.append(size)

    def holder(self, array):
        return 0

    def send(self, array, memory, stream, begin=0):
        ctypes.memmove(memory.data.ptr + begin, array.ctypes.data, array.nbytes)

    def explaining_memory(self):
        return nullcontext()


class Stream(nullcontext):
    ptr = 0

    def __init__(self, non_blocking=False):
        super().__init__()

    def synchronize(self):
        pass

    def record(self):
        return "event"

    def wait_event(self, event):
        pass


class Event:
    """Its number counts the events made so far."""

    made = 0

    def __init__(self, disable_timing=False):
        Event.made += 1
        self.ptr = Event.made

    def record(self, stream):
        pass


class Engine:
    """What a context needs of the engine."""

    name, capturing = "cuda", threading.Lock()
    nests = True
    inputs: tuple[TensorDesc, ...] = (TensorDesc("data", (SymbolicDim("N"), 3, 8, 8)),)
    outputs: tuple[TensorDesc, ...] = (TensorDesc("y", (SymbolicDim("N"), 4, 8, 8)),)

    def __init__(self, model=None, disabled=("graph",)):
        self.device, self.model, self.disabled = Device(), model or conv_net(batch="N"), frozenset(disabled)

    def check_process(self):
        pass

    def execution(self, sizes, outside=None):
        data = np.zeros((sizes.get("N", 1), 3, 8, 8), np.float32)
        execution = host_execution(prepare(self.model), {self.inputs[0].name: data}, outside=outside)
        execution._arena[:] = 0  # as memory of a GPU is, which the run before a capture reads
        execution.device = self.device
        return Execution(execution)
