"""The load of a server from two readings of its metrics."""

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving.server_load import Reading, load_between

pytest.importorskip("prometheus_client", reason='pip install "pytrtplugins[serve]"')

TEXT = """\
# TYPE pytrt_ready gauge
pytrt_ready{{model="a",version="1"}} 1
pytrt_ready{{model="idle",version="2"}} 0
# TYPE pytrt_requests_total counter
pytrt_requests_total{{model="a",version="1",outcome="succeeded"}} {succeeded}
pytrt_requests_total{{model="a",version="1",outcome="refused"}} 4
# TYPE pytrt_rows_total counter
pytrt_rows_total{{model="a",version="1"}} {rows}
# TYPE pytrt_batches_total counter
pytrt_batches_total{{model="a",version="1"}} {batches}
# TYPE pytrt_queue_length gauge
pytrt_queue_length{{model="a",version="1"}} 3
# TYPE pytrt_stage_seconds summary
pytrt_stage_seconds_sum{{model="a",version="1",stage="queue"}} {queue}
pytrt_stage_seconds_sum{{model="a",version="1",stage="compute"}} {compute}
pytrt_stage_seconds_sum{{model="a",version="1",stage="preprocess"}} {preprocess}
pytrt_stage_seconds_count{{model="a",version="1",stage="preprocess"}} {succeeded}
# TYPE pytrt_request_seconds histogram
pytrt_request_seconds_bucket{{model="a",version="1",le="0.01"}} {fast}
pytrt_request_seconds_bucket{{model="a",version="1",le="0.02"}} {medium}
pytrt_request_seconds_bucket{{model="a",version="1",le="+Inf"}} {succeeded}
pytrt_request_seconds_sum{{model="a",version="1"}} {total}
# TYPE pytrt_processes gauge
pytrt_processes{{role="cpu"}} 2
# TYPE pytrt_gpu_utilization_ratio gauge
pytrt_gpu_utilization_ratio{{gpu="0",name="NVIDIA H200"}} 0.5
"""
ZERO = dict.fromkeys(("succeeded", "rows", "batches", "queue", "compute", "preprocess", "fast", "medium", "total"), 0)
FIRST = {**ZERO, "succeeded": 100, "rows": 100, "batches": 50, "fast": 100, "medium": 100, "total": 1}
SECOND = {
    **FIRST,
    **{"succeeded": 300, "rows": 500, "batches": 150, "queue": 1, "compute": 2.5, "preprocess": 0.4},
    **{"fast": 200, "medium": 298, "total": 5},
}


def load(before, after, seconds=2.0):
    return load_between(Reading(TEXT.format(**before), 10.0), Reading(TEXT.format(**after), 10.0 + seconds), "here")


def test_rates_batches_and_shares_are_those_between_the_readings():
    found = load(FIRST, SECOND)
    model, idle = found.models
    assert (model.name, model.version, model.ready, model.succeeded, model.failed) == ("a", "1", True, 100, 0)
    assert (model.batch, model.queue) == (4, 3)
    assert (model.waiting, model.computing) == (0.25, 0.625)
    assert model.preprocess_ms == pytest.approx(2)
    assert (idle.ready, idle.succeeded, idle.batch, idle.p50_ms, idle.waiting) == (False, 0, None, None, None)
    assert (found.seconds, found.processes) == (2.0, {"cpu": 2})
    assert (found.gpus[0].name, found.gpus[0].utilization) == ("NVIDIA H200", 0.5)


def test_quantiles_lie_within_their_bucket_as_prometheus_says():
    model = load(FIRST, SECOND).models[0]
    assert model.p50_ms == pytest.approx(10)  # 100 of 200 took at most 10 ms
    assert model.p99_ms == pytest.approx(20)  # 198 of 200 took at most 20 ms
    later = load(FIRST, {**SECOND, "medium": 200}).models[0]
    assert later.p99_ms == pytest.approx(20)  # all that is known is that it is longer


@pytest.mark.parametrize(
    ("fast", "medium", "p50", "p99"),
    [
        (100, 100, 10, 20),  # exactly half took at most 10 ms, none 10 to 20, and the others longer than is known
        (99, 199, 10 + 10 * 1 / 100, 10 + 10 * 99 / 100),
        (101, 199, 10 * 100 / 101, 10 + 10 * 97 / 98),
        (0, 200, 15, 19.9),
        (200, 200, 5, 9.9),
        (0, 0, 20, 20),
    ],
)
def test_a_quantile_is_that_of_prometheus_also_where_its_rank_is_the_count_of_a_bucket(fast, medium, p50, p99):
    changed = {"fast": FIRST["fast"] + fast, "medium": FIRST["medium"] + medium}
    model = load(FIRST, {**SECOND, **changed}).models[0]
    assert (model.p50_ms, model.p99_ms) == pytest.approx((p50, p99))


def test_a_server_that_was_started_again_counts_from_0():
    assert load(SECOND, FIRST).models[0].succeeded == 50


@pytest.mark.parametrize("text", ["a {", "", "# TYPE up gauge\nup 1\n", "<!doctype html>"])
def test_other_texts_are_refused(text):
    with pytest.raises(UsageError, match="metrics"):
        Reading(text, 0.0)
