"""Runs from arrays on the GPU to arrays on the GPU, again and again, with NumPy in the GPU's place."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.cuda import bindings
from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.engines.cuda.run.context import CudaContext
from pytrtplugins.errors import BindingError, EngineError, ExecutionError
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
            context.enqueue({"data": x}, {"y": y}, Stream())
            np.testing.assert_array_equal(y, wanted(context, x))
    assert len(found) == 2


def test_streams_of_any_kind_are_taken(context):
    x, y = on_gpu(image()), target()
    for stream in (None, Stream(), SimpleNamespace(cuda_stream=0), SimpleNamespace(handle=0), 0):
        y[...] = 0
        context.enqueue({"data": x}, {"y": y}, stream)
        np.testing.assert_array_equal(y, wanted(context, x))


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
    y[...] = 0
    context.enqueue({"data": x}, {"y": y})
    np.testing.assert_array_equal(y, wanted(context, x))


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


def test_no_graph_is_launched_on_a_stream_that_is_captured(context, monkeypatch):
    x, y = on_gpu(image()), target()
    context.enqueue({"data": x}, {"y": y}, 7)
    wanted = y.copy()
    context.engine.device.capturing = True
    monkeypatch.setattr(Graph, "launch", lambda *_: pytest.fail("a graph inside of another"))
    y[...] = 7
    context.enqueue({"data": x}, {"y": y}, 7)
    np.testing.assert_array_equal(y, wanted)


def test_a_run_waits_for_the_stream_that_pytorch_writes_its_tensors_on(context, monkeypatch):
    def seen(array):
        return array.ctypes.data, ("torch", array.shape, array.dtype, "cuda:0")

    current = SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=3))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=current))
    monkeypatch.setitem(bindings._READERS, OnGpu, seen)
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
        context.enqueue({"data": x}, {"y": y})
        np.testing.assert_array_equal(y, wanted(context, x))
    assert len(found) == 10  # nine batches, of which eight are kept, and the first once more


def test_of_the_shapes_those_enqueued_last_are_kept(context):
    for batch in range(1, 9):
        context.enqueue({"data": on_gpu(image(batch))}, {"y": target(batch)})
    context.enqueue({"data": on_gpu(image(1))}, {"y": target(1)})
    context.enqueue({"data": on_gpu(image(9))}, {"y": target(9)})
    assert [shapes[0][0] for shapes in context._ready] == [3, 4, 5, 6, 7, 8, 1, 9]


def test_a_network_in_parts_is_checked_in_each_call(make, monkeypatch):
    context = make(conv_net(Affine(3.0), batch="N"))
    context.accept_host_arrays()
    found = checks(context, monkeypatch)
    for _ in range(2):
        x, y = on_gpu(image()), target()
        context.enqueue({"data": x}, {"y": y})
        np.testing.assert_array_equal(y, wanted(context, x))
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
    runtime, copy = context.engine.device.xp.cuda.runtime, context.engine.device.copy

    def refuse(*_):
        raise RuntimeError("cudaErrorInvalidValue")

    runtime.memcpyAsync = refuse
    with pytest.raises(ExecutionError, match="engine 'cuda' failed in the run: cudaErrorInvalidValue"):
        context.enqueue({"data": x}, {"y": y})
    runtime.memcpyAsync = copy
    context.enqueue({"data": x}, {"y": y})
    np.testing.assert_array_equal(y, wanted(context, x))
