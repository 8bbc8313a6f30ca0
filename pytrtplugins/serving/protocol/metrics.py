"""Counts of what was served, in Prometheus's text form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..service import Service
from ..statistics import BUCKETS_S

__all__ = ["CONTENT_TYPE", "text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_COUNTERS = (
    ("pytrt_rows_total", "Rows of batches that were computed for requests.", "rows", 1.0),
    ("pytrt_batches_total", "Batches that were computed.", "batches", 1.0),
    ("pytrt_queue_seconds_total", "Seconds that requests waited before they were computed.", "queue_ns", 1e-9),
    ("pytrt_compute_seconds_total", "Seconds that the batches of requests took, for each request.", "compute_ns", 1e-9),
)
_OUTCOMES = ("succeeded", "failed", "refused", "late")


def text(services: Iterable[Service]) -> str:
    """All metrics."""
    return "".join(f"{line}\n" for line in _lines(list(services)))


def _lines(services: list[Service]) -> Iterator[str]:
    totals = [(service.name, service.statistics.total()) for service in services]
    yield from _head("pytrt_requests_total", "counter", "Requests that were answered, by outcome.")
    for name, total in totals:
        for outcome in _OUTCOMES:
            yield f'pytrt_requests_total{{model="{name}",outcome="{outcome}"}} {total[outcome]}'
    for metric, about, field, unit in _COUNTERS:
        yield from _head(metric, "counter", about)
        for name, total in totals:
            yield f'{metric}{{model="{name}"}} {total[field] * unit:.10g}'
    yield from _head("pytrt_ready", "gauge", "Whether the model takes requests.")
    for service in services:
        yield f'pytrt_ready{{model="{service.name}"}} {int(service.ready)}'
    yield from _head("pytrt_request_seconds", "histogram", "Seconds from a request's tensors to its outputs.")
    for service, (name, total) in zip(services, totals, strict=True):
        seen = 0
        for bound, count in zip((*BUCKETS_S, "+Inf"), service.statistics.durations(), strict=True):
            seen += count
            yield f'pytrt_request_seconds_bucket{{model="{name}",le="{bound}"}} {seen}'
        yield f'pytrt_request_seconds_sum{{model="{name}"}} {total["total_ns"] * 1e-9:.10g}'
        yield f'pytrt_request_seconds_count{{model="{name}"}} {seen}'


def _head(metric: str, kind: str, about: str) -> tuple[str, str]:
    return f"# HELP {metric} {about}", f"# TYPE {metric} {kind}"
