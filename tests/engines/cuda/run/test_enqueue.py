"""Runs from arrays on the GPU to arrays on the GPU, again and again, with NumPy in the GPU's place."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from pytrtplugins.cuda import array_keys as forms
from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.engines.cuda.run.context import CudaContext
from pytrtplugins.errors import BindingError, EngineError, ExecutionError
from tests.cuda.dlpack import Exchanged, on_cuda
from tests.engines.cuda.stand_in import Graph, OnGpu, Stream, on_gpu
from tests.engines.networks import Affine, conv_net, image

pytestmark = pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")


@pytest.fixture
def context(make):
    made = make(conv_net(batch="N"))
    made.accept_host_arrays()
    return made


def target(batch=1):
    return on_gpu(np.zeros((batch, 4, 8, 8), np.float32))


def wanted(context, x):
    return context.run({"data": np.array(x)})["y"]


def assert_right(context, x, y, stream=None):
    """A call writes what a run gives."""
    y[...] = 0
    context.enqueue({"data": x}, {"y": y}, stream)
    np.testing.assert_array_equal(y, wanted(context, x))


def checks(context, monkeypatch):
    """The calls whose arrays are checked, from here on."""
    found, check = [], CudaContext._check_on_gpu

    def counted(self, *args):
        found.append(args)
        return check(self, *args)

    monkeypatch.setattr(CudaContext, "_check_on_gpu", counted)
    return found


def test_other_arrays_of_the_same_form_are_not_checked_again(context, monkeypatch):
    found = checks(context, monkeypatch)
    for seed in (1, 2, 3):
        for batch in (1, 2):
            x, y = on_gpu(image(batch, seed)), target(batch)
            assert_right(context, x, y, Stream())
    assert len(found) == 2


def test_streams_of_any_kind_are_taken(context):
    x, y = on_gpu(image()), target()
    for stream in (None, Stream(), SimpleNamespace(cuda_stream=0), SimpleNamespace(handle=0), 0):
        assert_right(context, x, y, stream)


def test_arrays_that_do_not_fit_are_refused_behind_those_that_do(context):
    x, y = on_gpu(image()), target()
    for _ in range(2):
        context.enqueue({"data": x}, {"y": y})
    wrong = [
        ({}, {"y": y}),
        ({"other": x}, {"y": y}),
        ({"data": on_gpu(image().astype(np.float64))}, {"y": y}),
        ({"data": x[0]}, {"y": y}),
        ({"data": x[:, :, ::-1]}, {"y": y}),
        ({"data": x}, {"z": y}),
        ({"data": x}, {"y": target(2)}),
        ({"data": x}, {"y": on_gpu(np.zeros((1, 4, 8, 8)))}),
    ]
    for inputs, outputs in wrong:
        with pytest.raises(BindingError):
            context.enqueue(inputs, outputs)
    assert_right(context, x, y)


def test_outputs_may_be_left_out_and_then_come_back(context):
    x, y = on_gpu(image()), target()
    for outputs in ({"y": y}, {}, {"y": y}, {}):
        y[...] = 0
        context.enqueue({"data": x}, outputs)
        np.testing.assert_array_equal(y, wanted(context, x) if outputs else 0)


def test_a_run_waits_for_the_last_one_on_whatever_stream_and_is_waited_for(context):
    x, y, device = on_gpu(image()), target(), context.engine.device
    context.enqueue({"data": x}, {"y": y}, 7)
    for stream in (7, 8):
        done = context._done.ptr
        del device.order[:]
        context.enqueue({"data": x}, {"y": y}, stream)
        assert device.order == [("wait", done, stream), ("record", done, stream)]
    waited: list[object] = []
    context._stream.wait_event = waited.append
    context.run({"data": image()})
    context.run({"data": image()})
    assert waited == [context._done]


def test_a_stream_that_is_captured_waits_for_nothing_outside_of_its_graph(context):
    x, y, device = on_gpu(image()), target(), context.engine.device
    context.enqueue({"data": x}, {"y": y}, 7)
    device.capturing = True
    del device.order[:]
    context.enqueue({"data": x}, {"y": y}, 7)
    assert not device.order
    assert not context._elsewhere


@pytest.mark.parametrize("calls", [1, 20])  # once, and so often that the arrays have a graph of their own
def test_no_graph_is_launched_on_a_stream_that_is_captured(context, monkeypatch, calls):
    x, y = on_gpu(image()), target()
    for _ in range(calls):
        context.enqueue({"data": x}, {"y": y}, 7)
    expected = y.copy()
    context.engine.device.capturing = True
    monkeypatch.setattr(Graph, "launch", lambda *_: pytest.fail("a graph inside of another"))
    y[...] = 7
    context.enqueue({"data": x}, {"y": y}, 7)
    np.testing.assert_array_equal(y, expected)


def test_a_run_waits_for_the_stream_that_pytorch_writes_its_tensors_on(context, monkeypatch):
    def read(array, stream):
        return array.ctypes.data, ("torch", array.shape, array.dtype, "cuda:0")

    current = SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=3))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=current))
    monkeypatch.setitem(forms.READERS, OnGpu, read)
    x, y, device = on_gpu(image()), target(), context.engine.device
    context.enqueue({"data": x}, {"y": y}, 7)
    for stream, waits in ((7, True), (3, False)):
        del device.order[:]
        context.enqueue({"data": x}, {"y": y}, stream)
        begun = context._begun.ptr
        assert (("record", begun, 3) in device.order) == waits
        assert (("wait", begun, stream) in device.order) == waits


def test_what_was_remembered_goes_with_the_buffers(context, monkeypatch):
    found = checks(context, monkeypatch)
    for batch in (*range(1, 10), 9, 1, 1):
        x, y = on_gpu(image(batch)), target(batch)
        assert_right(context, x, y)
    assert len(found) == 10  # nine batches, of which eight are kept, and the first once more


def test_of_the_shapes_those_enqueued_last_are_kept(context):
    for batch in (*range(1, 9), 1, 9):
        context.enqueue({"data": on_gpu(image(batch))}, {"y": target(batch)})
    assert [shapes[0][0] for shapes in context._ready] == [3, 4, 5, 6, 7, 8, 1, 9]


def test_a_network_in_parts_is_checked_in_each_call(make, monkeypatch):
    context = make(conv_net(Affine(3.0), batch="N"))
    context.accept_host_arrays()
    found = checks(context, monkeypatch)
    for _ in range(2):
        x, y = on_gpu(image()), target()
        assert_right(context, x, y)
    assert len(found) == 2


def test_another_thread_and_a_closed_context_are_refused(context):
    x, y = on_gpu(image()), target()
    context.enqueue({"data": x}, {"y": y})

    def enqueue():
        with pytest.raises(EngineError, match="another thread"):
            context.enqueue({"data": x}, {"y": y})

    with context._running(), ThreadPoolExecutor(1) as pool:
        pool.submit(enqueue).result()
    context.enqueue({"data": x}, {"y": y})
    context.close()
    with pytest.raises(EngineError, match="closed"):
        context.enqueue({"data": x}, {"y": y})


def test_what_cuda_refuses_is_an_execution_error_and_leaves_the_context_free(context):
    x, y = on_gpu(image()), target()
    context.enqueue({"data": x}, {"y": y})
    runtime = context.engine.device.xp.cuda.runtime
    record = runtime.eventRecord

    def refuse(*_):
        raise RuntimeError("cudaErrorInvalidValue")

    runtime.eventRecord = refuse
    with pytest.raises(ExecutionError, match="engine 'cuda' failed in the run: cudaErrorInvalidValue"):
        context.enqueue({"data": x}, {"y": y})
    runtime.eventRecord = record
    assert_right(context, x, y)


@pytest.mark.parametrize("where", ["the input", "the output"])
def test_arrays_of_another_gpu_are_copied_by_the_driver_in_each_call(context, monkeypatch, where):
    x, y = on_gpu(image()), target()
    far, found = x if where == "the input" else y, checks(context, monkeypatch)
    monkeypatch.setattr(context.engine.device, "holder", lambda array: int(array is far))
    for _ in range(3):
        assert_right(context, x, y)
    assert len(found) == 3


@pytest.mark.parametrize(("devices", "calls"), [(1, 1), (2, 3)])
def test_arrays_whose_form_does_not_tell_their_gpu_are_looked_at_in_each_call_if_there_are_several(
    context, monkeypatch, devices, calls
):
    def read(array, stream):
        return array.ctypes.data, ("interface", array.shape, array.dtype, None)

    monkeypatch.setitem(forms.READERS, OnGpu, read)
    context.engine.device.number_of_devices = devices
    x, y, found = on_gpu(image()), target(), checks(context, monkeypatch)
    for _ in range(3):
        context.enqueue({"data": x}, {"y": y})
    assert len(found) == calls


def graphs(monkeypatch):
    """The graphs that calls are given for arrays at their addresses, from here on."""
    made, capture = [], CudaContext._with_copies

    def counted(self, queue):
        made.append(capture(self, queue))
        return made[-1]

    monkeypatch.setattr(CudaContext, "_with_copies", counted)
    return made


def test_arrays_that_come_often_get_a_graph_that_copies_them_too(context, monkeypatch):
    made, pairs = graphs(monkeypatch), [(on_gpu(image(seed=seed)), target()) for seed in (1, 2)]
    for call in range(60):
        x, y = pairs[call % 2]
        x[...] = image(seed=call)
        assert_right(context, x, y, 7)
    assert len(made) == 2
    launched: list[SimpleNamespace] = []
    for graph in made:
        monkeypatch.setattr(graph, "launch", launched.append)
    (x, y), (other, _) = pairs
    for arrays in ((x, y), (other, y), (x, target())):
        context.enqueue({"data": arrays[0]}, {"y": arrays[1]}, 7)
    assert [stream.ptr for stream in launched] == [7]


def test_an_array_in_the_memory_of_one_that_had_a_graph_is_looked_at_itself(context, monkeypatch):
    made, memory, result = graphs(monkeypatch), on_gpu(image(2)), target(2)
    for _ in range(20):
        context.enqueue({"data": memory}, {"y": result})
    assert len(made) == 1
    x, y = memory[:1], result[:1]
    assert (x.ctypes.data, y.ctypes.data) == (memory.ctypes.data, result.ctypes.data)
    result[...] = 0
    assert_right(context, x, y)
    assert not result[1].any()
    with pytest.raises(BindingError):
        context.enqueue({"data": memory[:, :, ::-1]}, {"y": result})


def test_arrays_that_are_always_others_get_no_graphs_and_few_get_one(context, monkeypatch):
    made, kept = graphs(monkeypatch), [(on_gpu(image(seed=seed)), target()) for seed in range(100)]
    for count, expected in ((100, 0), (6, 4)):
        for call in range(300):
            x, y = kept[call % count]
            context.enqueue({"data": x}, {"y": y})
        assert len(made) == expected
        np.testing.assert_array_equal(y, wanted(context, x))


class Foreign:
    """An array that has the two protocols, or one of them.

    Args:
        array: Where it lies.
        stream: What its interface names; 0: it has no interface.
    """

    def __init__(self, array, stream=0):
        self.array = array
        if stream != 0:
            self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3, "stream": stream}


class Exported(Foreign):
    asked: ClassVar[list[int]] = []

    def __dlpack__(self, stream):
        self.asked.append(stream)
        return on_cuda(self.array)


@pytest.mark.parametrize("make_foreign", [lambda x: Foreign(x, 3), Exported, lambda x: Exported(x, None), Exchanged])
def test_arrays_of_any_library_are_checked_once_and_waited_for_each_time(context, monkeypatch, make_foreign):
    found, check = [], CudaContext._check_on_gpu

    def given(self, call, *arrays):
        found.append(call)
        return check(self, call, *({name: each.array for name, each in named.items()} for named in arrays))

    monkeypatch.setattr(CudaContext, "_check_on_gpu", given)
    monkeypatch.setattr(Exchanged, "current", [3])
    order = context.engine.device.order
    for seed in (1, 2, 3):
        x, y = on_gpu(image(seed=seed)), target()
        ours = make_foreign(x), make_foreign(y)
        del order[:], Exported.asked[:]
        context.enqueue({"data": ours[0]}, {"y": ours[1]}, 7)
        np.testing.assert_array_equal(y, wanted(context, x))
    assert len(found) == 1
    if make_foreign(y).__class__ is Exported:
        assert Exported.asked == [7, 7]
        assert [what for what, *_ in order] == ["wait", "record"]
    else:
        begun = context._begun.ptr
        assert order[:2] == [("record", begun, 3), ("wait", begun, 7)]
