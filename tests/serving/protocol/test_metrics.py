"""What Prometheus reads."""

import asyncio
import re

import pytest

from tests.serving.conftest import Client, spec, until
from tests.serving.served import Slow

parser = pytest.importorskip("prometheus_client.parser", reason='pip install "pytrtplugins[serve]"')

UNITS = ("seconds", "bytes", "ratio")
INFER, BODY = "/v2/models/{}/infer", {"inputs": [{"name": "x", "shape": [3, 2], "datatype": "FP32", "data": [1] * 6}]}


def read(client):
    return {each.name: each for each in parser.text_string_to_metric_families(client.get("/metrics").body.decode())}


def value(metrics, sample, **labels):
    (found,) = (
        each.value
        for family in metrics.values()
        for each in family.samples
        if (each.name, each.labels) == (sample, labels)
    )
    return found


def test_prometheus_reads_what_was_counted(client):
    before = read(client)
    client.post(INFER.format("double"), BODY)
    client.post("/v1/models/double:predict", b"1 2")
    answer, after = client.get("/metrics"), read(client)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"

    def more(sample, **labels):
        return value(after, sample, model="double", version="1", **labels) - value(
            before, sample, model="double", version="1", **labels
        )

    assert more("pytrt_requests_total", outcome="succeeded") == 2
    assert more("pytrt_request_seconds_bucket", le="+Inf") == more("pytrt_request_seconds_count") == 2
    assert (more("pytrt_rows_total"), more("pytrt_batches_total")) == (4, 2)
    bounds = [more("pytrt_batch_rows_bucket", le=bound) for bound in ("1.0", "2.0", "4.0", "+Inf")]
    assert bounds == [1, 1, 2, 2]
    assert (more("pytrt_batch_rows_sum"), more("pytrt_batch_rows_count")) == (4, 2)
    counts = {
        stage: more("pytrt_stage_seconds_count", stage=stage)
        for stage in ("preprocess", "queue", "compute", "postprocess")
    }
    assert counts == {"preprocess": 1, "queue": 2, "compute": 2, "postprocess": 1}
    assert 0 < more("pytrt_stage_seconds_sum", stage="compute") <= more("pytrt_request_seconds_sum")
    assert value(after, "pytrt_ready", model="double", version="1") == 1
    assert value(after, "pytrt_processes", role="cpu") == 1
    assert value(after, "pytrt_process_restarts_total", role="engine") == 0


def test_names_and_series_follow_prometheus_rules(client):
    text = client.get("/metrics").body.decode()
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))
    for family in parser.text_string_to_metric_families(text):
        assert re.fullmatch(r"pytrt(_[a-z]+)+", family.name)
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge", "histogram", "summary")
        assert not [unit for unit in UNITS if unit in family.name and not family.name.endswith(unit)]
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            assert sample.value >= 0


def test_requests_in_flight_and_in_the_queue_are_counted_while_they_are(held):
    with Client([spec("slow", "Slow")]) as busy:

        def now():
            metrics = read(busy)
            return tuple(
                value(metrics, f"pytrt_{name}", model="slow", version="1")
                for name in ("requests_in_flight", "queue_length")
            )

        async def begin():
            tasks = [asyncio.create_task(busy.call("POST", "/v1/models/slow:predict", b"1 2"))]
            await until(Slow.entered.is_set)
            tasks += [asyncio.create_task(busy.call("POST", "/v1/models/slow:predict", b"1 2")) for _ in range(2)]
            while len(busy.backend._replicas[0].queue) < 2:
                await asyncio.sleep(0.001)
            return tasks

        tasks = busy.loop.run_until_complete(begin())
        assert now() == (3, 2)
        Slow.go.set()
        busy.loop.run_until_complete(asyncio.gather(*tasks))
        assert now() == (0, 0)
