"""Batches of requests, joined, computed and parted."""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.errors import ImageError, RequestError
from pytrtplugins.serving.batching import batcher as module
from pytrtplugins.serving.batching.batcher import Batcher, client_error
from pytrtplugins.serving.batching.queue import BatchQueue, QueuedRequest
from tests.clock import Clock
from tests.serving.served import Double, Later, Lists, Lost, Wrong


def computed(model, rows, sizes=(), max_batch=8, lost=None, threaded=True):
    """Items of one batch, computed together: the queue is closed before the thread starts, or this one computes them."""
    queue = BatchQueue(max_batch, sizes)
    items = [QueuedRequest({"x": np.asarray(each)}, len(each)) for each in rows]
    for item in items:
        queue.put(item)
    queue.close()
    batcher = Batcher(model, queue, lambda items: None, lost, threaded=threaded)
    batcher.start()
    if not threaded:
        assert not batcher.join(0)
        batcher.compute()
    assert batcher.join(20)
    assert batcher.ended == threaded
    return items


def rows(*firsts):
    return np.array([[first, 0] for first in firsts], np.float32)


@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("cls", [Double, Later])
def test_requests_are_computed_together_and_each_gets_its_rows(cls, threaded):
    model = cls()
    items = computed(model, [rows(1), rows(2, 3), rows(4)], threaded=threaded)
    assert [item.outputs["y"][:, 0].tolist() for item in items] == [[2], [4, 6], [8]]
    assert [len(batch) for batch in model.batches] == [4]
    assert [item.batch_rows for item in items] == [4, 4, 4]
    assert [item.leads for item in items] == [True, False, False]


def test_a_batch_is_filled_with_zeros_to_a_size_of_the_engine():
    model = Double()
    (item,) = computed(model, [rows(1, 2, 3)], sizes=(4, 8))
    assert model.batches[0][:, 0].tolist() == [1, 2, 3, 0]
    assert item.outputs["y"].shape == (3, 2)


def test_a_batch_of_strings_is_filled_with_empty_ones():
    class Lengths(Double):
        def predict(self, batch):
            return {"y": np.array([len(text) for text in batch["x"].tolist()], np.int64), "x": batch["x"].astype(str)}

    (item,) = computed(Lengths(), [np.array([b"ab", b"c"], object)], sizes=(4,))
    assert item.outputs["y"].tolist() == [2, 1]
    assert item.outputs["x"].tolist() == [b"ab", b"c"]


@pytest.mark.parametrize(("cls", "asked"), [(Lost, 1), (Double, 0)])
def test_the_host_is_told_of_a_model_that_cannot_compute_any_more_before_the_batch_is_tried_again(cls, asked, caplog):
    model, batches = cls(), []
    computed(model, [rows(1), rows(-1)], lost=lambda: batches.append(len(model.batches)))
    assert batches == [1] * asked
    assert ("Lost cannot compute any more: poison" in caplog.text) == bool(asked)


def test_a_model_is_as_usable_as_its_engine():
    model = Double()
    assert model.usable()
    for usable in (True, False):
        model.engine = SimpleNamespace(usable=lambda usable=usable: usable)
        assert model.usable() is usable


@pytest.mark.parametrize("cls", [Double, Later])
def test_a_request_that_makes_a_batch_fail_fails_alone(cls, caplog):
    with caplog.at_level(logging.ERROR):
        good, bad, other = computed(cls(), [rows(1), rows(-1), rows(2)])
    assert (good.error, other.error) == (None, None)
    assert other.outputs["y"][0, 0] == 4
    assert bad.error.status == 500
    assert str(bad.error) == f"{cls.__name__}.predict: ValueError: poison"
    assert "served.py, line" in caplog.text


def test_requests_that_are_not_joined_reach_the_model_as_a_list():
    items = computed(Lists(), [np.arange(3), np.arange(5)])
    assert [int(item.outputs["sum"]) for item in items] == [3, 10]


@pytest.mark.parametrize(
    ("kind", "text"),
    [(0, "expected arrays by name, found NoneType"), (1, "expected 2 rows of 'y'"), (3, "expected 2 rows of 'y'")],
)
def test_outputs_of_a_wrong_form_are_the_models_error(kind, text):
    (item,) = computed(Wrong(), [rows(kind, kind)])
    assert item.error.status == 500
    assert text in str(item.error)


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ({"y": np.zeros((1, 2), np.complex64)}, "expected a type of the Open Inference Protocol for 'y'"),
        ({"y": np.zeros((1, 2), "M8[s]")}, "such as float32, found datetime64[s]"),
        ({"y": np.zeros((1, 2), np.longdouble)}, "expected a type of the Open Inference Protocol for 'y'"),
        ({7: np.zeros((1, 2))}, "expected names of outputs as text, 65,535 bytes at most, found int"),
        ({"\ud800": np.zeros((1, 2))}, "expected names of outputs as text"),
        ({65536 * "y": np.zeros((1, 2))}, "expected names of outputs as text"),
    ],
)
def test_outputs_that_no_answer_can_have_are_the_models_error(outputs, text):
    class Odd(Double):
        def predict(self, batch):
            return outputs

    (item,) = computed(Odd(), [rows(1)])
    assert item.error.status == 500
    assert str(item.error).startswith("Odd.predict: ")
    assert text in str(item.error)


@pytest.mark.parametrize("predicted", [[], [{"sum": np.int64(1)}] * 2, {"sum": np.int64(1)}, None])
def test_a_model_of_requests_that_are_not_joined_gives_a_list_of_as_many(predicted):
    class Short(Lists):
        def predict(self, batch):
            return predicted

    (item,) = computed(Short(), [np.arange(3)])
    assert item.error.status == 500
    assert "expected a list of 1, as many as it was given" in str(item.error)


def test_outputs_of_another_byte_order_keep_their_values():
    class Swapped(Double):
        def predict(self, batch):
            return {"y": batch["x"].astype(">f4")}

    (item,) = computed(Swapped(), [rows(1, 2)])
    assert item.outputs["y"].tobytes() == rows(1, 2).tobytes()


def test_an_image_that_cannot_be_decoded_is_the_clients_error():
    reply = client_error(Double(), "preprocess", ImageError("image: damaged\nDo: fetch it again"))
    assert (reply.status, str(reply)) == (400, "image: damaged")


def test_what_a_model_refuses_stays_as_it_is():
    error = RequestError("no", status=418)
    assert client_error(Double(), "predict", error) is error


def test_without_a_thread_all_batches_are_computed_and_late_requests_are_answered():
    done: list[QueuedRequest] = []
    queue = BatchQueue(2)
    items = [QueuedRequest({"x": rows(number)}, 1) for number in range(5)] + [
        QueuedRequest({"x": rows(9)}, 1, deadline=1.0)
    ]
    batcher = Batcher(Double(), queue, done.extend, threaded=False)
    for item in items:
        queue.put(item)
    batcher.compute()
    assert len(done) == 6
    assert [item.batch_rows for item in items[:5]] == [2, 2, 2, 2, 1]
    assert items[5].error.status == 504
    assert batcher.join(0)
    assert batcher.began == 0.0
    batcher.compute()  # nothing waits


def test_who_waits_for_the_end_without_a_thread_is_told_once_all_is_computed():
    queue = BatchQueue(8)
    batcher = Batcher(Double(), queue, lambda items: None, threaded=False)
    for deadline in (None, 1.0):  # the second is late, and computes nothing
        queue.put(QueuedRequest({"x": rows(1)}, 1, deadline=deadline))
        with ThreadPoolExecutor(1) as threads:
            waits = threads.submit(batcher.join, 20)
            with pytest.raises(TimeoutError):
                waits.result(0.05)
            batcher.compute()
            assert waits.result(20)


def test_a_run_is_known_by_the_oldest_that_is_not_done(monkeypatch):
    """A process whose second run begins all the time would never count as one that hangs."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)

    class Never(Double):
        def predict(self, batch):
            return Future()

    worker, began = Batcher(Never(), BatchQueue(8), list, threaded=False), []
    begun: deque = deque()
    for _ in range(3):
        worker._begin([QueuedRequest({"x": rows(1)}, 1)], begun)
        began.append(worker.began)
        clock.now += 5
    assert began == [1024.0] * 3
    assert [each[2] for each in begun] == [1024.0, 1029.0, 1034.0]
