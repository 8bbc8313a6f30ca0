"""A context's runs with NumPy in the GPU's place: what goes in, what comes out, and runs that are begun."""

import threading

import numpy as np
import pytest

from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.engines.cuda.run import context as module
from pytrtplugins.engines.cuda.run.context import CudaContext
from pytrtplugins.errors import BindingError, EngineError
from tests.engines.cuda.stand_in import Engine, OnGpu
from tests.engines.networks import image

pytestmark = pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")


@pytest.fixture
def context(monkeypatch):
    monkeypatch.setattr(module, "pinned_empty", np.empty)
    return CudaContext(Engine())


def wanted(context, batch=1):
    return context.run({"data": image(batch)})["y"]


def test_outputs_belong_to_the_caller(context):
    first = wanted(context)
    kept = first.copy()
    second = context.run({"data": 2 * image()})["y"]
    np.testing.assert_array_equal(first, kept)
    assert not np.array_equal(first, second)


def test_given_outputs_are_written_in_any_layout_and_byte_order(context):
    expected = wanted(context)
    for target in (np.empty_like(expected), np.empty((1, 4, 8, 16), np.float32)[..., ::2], expected.astype(">f4") * 0):
        assert context.run({"data": image()}, {"y": target})["y"] is target
        np.testing.assert_array_equal(target, expected)


def test_inputs_in_any_layout_and_byte_order_are_read_as_numpy_reads_them(context):
    expected = wanted(context)
    for data in (image().transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2), image().astype(">f4")):
        for _ in range(2):
            np.testing.assert_array_equal(context.run({"data": data})["y"], expected)


def test_inputs_that_do_not_fit_are_refused_behind_those_that_do(context):
    expected = wanted(context)
    for wrong in ({}, {"other": image()}, {"data": image().astype(np.float64)}, {"data": image()[0]}):
        with pytest.raises(BindingError):
            context.run(wrong)
        np.testing.assert_array_equal(wanted(context), expected)


def test_a_run_that_is_queued_is_finished_by_its_owner_or_by_close(context):
    expected = wanted(context)
    future = context.run_async({"data": image()})
    with pytest.raises(EngineError, match="another thread"):
        context.run({"data": image()})
    np.testing.assert_array_equal(future.result()["y"], expected)
    np.testing.assert_array_equal(wanted(context), expected)
    assert future.result() is future.result()
    future = context.run_async({"data": image()})
    context.close()
    np.testing.assert_array_equal(future.result()["y"], expected)
    with pytest.raises(EngineError, match="closed"):
        context.run_async({"data": image()})


def test_a_run_that_is_queued_behind_another_lets_that_end_first(context):
    expected = wanted(context)
    doubled = context.run({"data": 2 * image()})["y"]
    futures = [context.run_async({"data": factor * image()}) for factor in (1, 2, 1)]
    assert [future.done() for future in futures] == [True, True, False]
    for future, y in zip(futures, (expected, doubled, expected), strict=True):
        np.testing.assert_array_equal(future.result()["y"], y)


def test_no_thread_works_on_a_run_that_is_queued(context):
    before = threading.enumerate()
    future = context.run_async({"data": image()})
    assert threading.enumerate() == before
    future.result()
    assert threading.enumerate() == before


def test_what_fails_to_begin_leaves_the_context_free(context):
    expected = wanted(context)
    with pytest.raises(BindingError, match="its dims are"):
        context.run_async({"data": image()}, {"y": np.empty((2, 4, 8, 8), np.float32)})
    np.testing.assert_array_equal(wanted(context), expected)


def test_what_fails_while_it_is_queued_leaves_the_context_free(context, monkeypatch):
    expected = wanted(context)
    given = {"data": image().view(OnGpu)}
    target = {"y": expected.copy().view(OnGpu)}
    monkeypatch.setattr(context, "_array", lambda desc, value: value)
    monkeypatch.setattr(context, "_target", lambda desc, value: value)
    monkeypatch.setattr(context, "_enqueue", _fails)
    monkeypatch.setattr(module.np, "ndarray", ())  # nothing counts as an array on the host
    with pytest.raises(RuntimeError, match="no memory"):
        context.enqueue(given, target)
    monkeypatch.undo()
    np.testing.assert_array_equal(wanted(context), expected)


def _fails(*_):
    raise RuntimeError("no memory")


def test_arrays_on_the_host_are_not_enqueued(context):
    expected = wanted(context)
    with pytest.raises(BindingError, match="'data' is on the host"):
        context.enqueue({"data": image()}, {"y": np.empty_like(expected)})
    np.testing.assert_array_equal(wanted(context), expected)


def test_of_the_shapes_those_used_last_are_kept(context):
    made = []
    execution = context.engine.execution
    context.engine.execution = lambda sizes: made.append(sizes["N"]) or execution(sizes)
    for batch in (*range(1, 9), 1, 9, 1, 2):
        assert len(wanted(context, batch)) == batch
    assert made == [*range(1, 10), 2]
