"""Every place that tells how long a request took tells the same time, in the unit that it has there."""

import json
import os

import pytest

from pytrtplugins.errors import RequestError
from pytrtplugins.serving.access import access_log, exchange
from pytrtplugins.serving.access.access_log import AccessLog
from pytrtplugins.serving.access.gate import Gate
from pytrtplugins.serving.access.trace import Tracer
from pytrtplugins.serving.backends import service
from pytrtplugins.serving.batching import batcher, queue
from pytrtplugins.serving.protocol import plain
from pytrtplugins.serving.server_load import Reading, load_between
from tests.clock import Clock
from tests.serving.conftest import JSON, Client, spec
from tests.serving.rig import Rig, infer, x
from tests.serving.served import Timed

prometheus = pytest.importorskip("prometheus_client", reason='pip install "pytrtplugins[serve]"')

UPLOAD, PREPROCESS, QUEUE, COMPUTE, POSTPROCESS = 1 / 4, 1 / 32, 1 / 16, 1 / 8, 1 / 64
STAGES = {"preprocess": PREPROCESS, "queue": QUEUE, "compute": COMPUTE, "postprocess": POSTPROCESS}
TOTAL = UPLOAD + sum(STAGES.values())
INFER = "/v2/models/timed/infer"


@pytest.fixture
def clock(monkeypatch):
    """The clock of everything that measures requests; each batch leaves the queue 1/16 s after it was looked at."""
    clock, pop = Clock(), queue.BatchQueue._pop
    for module in (access_log, exchange, service, batcher, queue, plain):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(Timed, "clock", clock)

    def late(self, *given):
        clock.now += QUEUE
        return pop(self, *given)

    monkeypatch.setattr(queue.BatchQueue, "_pop", late)
    return clock


@pytest.fixture
def timed(clock):
    """A client whose requests need 1/4 s to come in; and an application around its own."""
    with Client([spec("timed", "Timed", max_delay_ms=62.5)]) as client:

        def slowly(app):
            async def slow(scope, receive, send):
                async def received():
                    clock.now += UPLOAD
                    return await receive()

                await app(scope, received, send)

            return slow

        client.app, client.slowly = slowly(client.app), slowly
        yield client


def milliseconds(stages):
    return {name: 1000 * seconds for name, seconds in stages.items()}


def test_the_answer_says_its_stages_in_milliseconds(timed):
    answer = timed.post("/v1/models/timed:predict", b"1 2")
    said = dict(each.split(";dur=") for each in answer.headers["server-timing"].split(", "))
    assert {name: float(value) for name, value in said.items()} == milliseconds(
        {"upload": UPLOAD, **STAGES, "total": TOTAL}
    )


def test_metrics_are_in_seconds_and_the_load_of_them_in_milliseconds(timed):
    before = Reading(timed.get("/metrics").body.decode(), 0.0)
    for _ in range(2):
        timed.post("/v1/models/timed:predict", b"1 2")
    timed.post(INFER, JSON)  # neither preprocess nor postprocess
    after = Reading(timed.get("/metrics").body.decode(), 2.0)
    labels = {"model": "timed", "version": "1"}
    counts = {"preprocess": 2, "queue": 3, "compute": 3, "postprocess": 2}
    for stage, count in counts.items():
        assert after.value("pytrt_stage_seconds_sum", stage=stage, **labels) == count * STAGES[stage]
        assert after.value("pytrt_stage_seconds_count", stage=stage, **labels) == count
    assert after.value("pytrt_request_seconds_sum", **labels) == 3 * (QUEUE + COMPUTE)
    buckets = {
        bound: after.value("pytrt_request_seconds_bucket", le=bound, **labels) for bound in ("0.1", "0.2", "+Inf")
    }
    assert buckets == {"0.1": 0, "0.2": 3, "+Inf": 3}  # each took 0.1875 s
    (model,) = load_between(before, after, "here").models
    assert (model.succeeded, model.failed, model.batch) == (1.5, 0, 1)
    assert (model.waiting, model.computing) == (1 / 3, 2 / 3)
    assert (model.preprocess_ms, model.postprocess_ms) == (31.25, 15.625)
    assert (model.p50_ms, model.p99_ms) == pytest.approx((150, 199))  # evenly between 100 and 200 ms


def test_tritons_statistics_are_in_nanoseconds(timed):
    for _ in range(2):
        timed.post(INFER, JSON)
    (found,) = timed.get("/v2/models/timed/stats").json["model_stats"]
    stats = found["inference_stats"]
    assert stats["queue"] == {"count": 2, "ns": 125_000_000}
    assert stats["compute_infer"] == {"count": 2, "ns": 250_000_000}
    assert stats["success"] == {"count": 2, "ns": 375_000_000}


@pytest.mark.parametrize("form", ["json", "plain"])
def test_the_log_of_requests_is_in_milliseconds(timed, clock, tmp_path, form):
    log = AccessLog(str(tmp_path / "log"), form)
    timed.app = Gate(None, [log]).before(timed.app)
    clock.now += 0.03125
    timed.post("/v1/models/timed:predict", b"1 2")
    log.close()
    (line,) = (tmp_path / "log").read_text().splitlines()
    expected = milliseconds({**STAGES, "total": TOTAL})
    if form == "json":
        found = json.loads(line)
        assert {name.removesuffix("_ms"): value for name, value in found.items() if name.endswith("_ms")} == expected
        assert found["time"] == "1970-01-01T00:17:04.031250Z"
    else:
        words = dict(word.split("=") for word in line.split() if word.endswith("ms"))
        assert {name: float(value.removesuffix("ms")) for name, value in words.items()} == expected
        assert line.startswith("1970-01-01T00:17:04.031250Z test - ")


def test_stages_of_one_name_are_added_up_in_the_log(clock, tmp_path):
    ended = exchange.Exchange("http", "POST", "/", {}, "")
    for begin, end in ((1, 1 + 1 / 16), (2, 2 + 1 / 8)):
        ended.add_stage("preprocess", begin, end)
    assert access_log._fields(ended)["preprocess_ms"] == 187.5


def test_spans_begin_and_end_when_the_stages_did(timed, clock):
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="pip install opentelemetry-sdk")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    tracer, begin = Tracer(provider), clock.time_ns()
    timed.app = Gate(None, [tracer]).before(timed.app)
    timed.post("/v1/models/timed:predict", b"1 2")
    *stages, request = exporter.get_finished_spans()
    tracer.close()
    found = {each.name: (each.start_time - begin, each.end_time - begin) for each in stages}
    assert found == {
        "preprocess": (250_000_000, 281_250_000),
        "queue": (281_250_000, 343_750_000),
        "compute": (343_750_000, 468_750_000),
        "postprocess": (468_750_000, 484_375_000),
    }
    assert request.start_time == begin


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux (memfd)")
def test_an_engine_process_tells_what_it_measured(clock):
    with Rig([spec("timed", "Timed")]) as rig:
        rig.engine()
        item = rig.do(infer(rig, x(1), "timed"))
        total = rig.backend.services["timed"].statistics.total()
    assert (item.queued_s, item.computed_s) == (QUEUE, COMPUTE)
    assert (total["queue_ns"], total["compute_ns"], total["total_ns"]) == (62_500_000, 125_000_000, 187_500_000)


@pytest.mark.parametrize(("timeout", "status"), [(62_500, 200), (62_499, 504)])
def test_the_timeout_of_a_request_is_in_microseconds_and_a_wait_as_long_is_allowed(timed, timeout, status):
    assert timed.post(INFER, {**JSON, "parameters": {"timeout": timeout}}).status == status


def test_the_delay_of_a_batch_is_the_same_in_the_queue_and_in_tritons_configuration(timed):
    assert timed.backend._replicas[0].queue.max_delay_s == 0.0625
    assert timed.get("/v2/models/timed/config").json["dynamic_batching"]["max_queue_delay_microseconds"] == 62_500


def test_each_request_of_a_batch_was_computed_as_long_as_the_batch(clock):
    waiting, done = queue.BatchQueue(8), list[queue.QueuedRequest]()
    for name in "ab":
        waiting.put(queue.QueuedRequest(x(1), 1, token=name))
        clock.now += 1 / 4
    waiting.close()
    worker = batcher.Batcher(Timed(), waiting, done.extend, threaded=False)
    worker.compute()
    assert [(each.token, each.queued_s, each.computed_s) for each in done] == [
        ("a", 1 / 2 + QUEUE, COMPUTE),
        ("b", 1 / 4 + QUEUE, COMPUTE),
    ]


def test_a_late_request_is_counted_as_one_that_failed(timed):
    timed.post(INFER, {**JSON, "parameters": {"timeout": 1}})
    with pytest.raises(RequestError, match="deadline"):
        timed.loop.run_until_complete(timed.backend.services["timed"].infer(x(1), timeout_s=0.001))
    (found,) = timed.get("/v2/models/timed/stats").json["model_stats"]
    assert found["inference_stats"]["fail"] == {"count": 2, "ns": 0}
