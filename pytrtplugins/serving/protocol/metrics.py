"""Metrics in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...utils.optional import require
from ..backends.backend import Backend
from ..backends.service import Service
from ..shared.statistics import BATCHES, BUCKETS_S
from .gpu_metrics import gpus

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["CONTENT_TYPE", "text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LABELS = ("model", "version")
_OUTCOMES = ("succeeded", "failed", "refused", "late")
_STAGES = {"preprocess": "plain", "queue": "succeeded", "compute": "succeeded", "postprocess": "plain"}  # who counts
_COUNTERS = (
    ("pytrt_rows", "Rows of batches that were computed for requests.", "rows"),
    ("pytrt_batches", "Batches that were computed.", "batches"),
)
_GAUGES = (
    ("pytrt_queue_length", "Requests that wait in queues now.", "waiting"),
    (
        "pytrt_requests_in_flight",
        "Requests that have tensors and no answer yet: waiting, or being computed.",
        "in_flight",
    ),
)


def text(backend: Backend) -> bytes:
    """All metrics; reading those of GPUs may take milliseconds."""
    library = require("prometheus_client", extra="serve", package="prometheus-client", feature="pytrt serve")
    written: bytes = library.generate_latest(_Collector(backend))
    return written


class _Collector:
    """Adapter for prometheus_client's writer."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def collect(self) -> Iterator[Metric]:
        """Return all metrics."""
        core = require("prometheus_client.core", extra="serve", package="prometheus-client")
        services = self._backend.services.every
        yield from _of_models(core, services, [service.statistics.total() for service in services])
        yield from _histograms(core, services)
        yield from _of_processes(core, self._backend)
        yield from _of_gpus(core)


def _labels(service: Service) -> list[str]:
    return [service.name, service.spec.version]


def _of_models(core: Any, services: Sequence[Service], totals: Sequence[dict[str, int]]) -> Iterator[Metric]:
    labelled_totals = [(_labels(service), total) for service, total in zip(services, totals, strict=True)]
    requests = core.CounterMetricFamily(
        "pytrt_requests", "Requests that were answered, by outcome.", labels=[*_LABELS, "outcome"]
    )
    for labels, total in labelled_totals:
        for outcome in _OUTCOMES:
            requests.add_metric([*labels, outcome], total[outcome])
    yield requests
    for family, rows in ((core.CounterMetricFamily, _COUNTERS), (core.GaugeMetricFamily, _GAUGES)):
        for metric, about, field in rows:
            metric_family = family(metric, about, labels=_LABELS)
            for labels, total in labelled_totals:
                metric_family.add_metric(labels, total[field])
            yield metric_family
    about = "Seconds that requests spent in each stage; a batch's whole time counts for each of its requests."
    stages = core.SummaryMetricFamily("pytrt_stage_seconds", about, labels=[*_LABELS, "stage"])
    for labels, total in labelled_totals:
        for stage, counted in _STAGES.items():
            stages.add_metric([*labels, stage], total[counted], total[f"{stage}_ns"] * 1e-9)
    yield stages
    images = core.CounterMetricFamily(
        "pytrt_images", "Images that detectors answered, by who decoded them.", labels=[*_LABELS, "decoder"]
    )
    for service, (labels, total) in zip(services, labelled_totals, strict=True):
        if service.ready and service.signature.detects:
            images.add_metric([*labels, "cpu"], total["plain"] - total["on_device"])
            images.add_metric([*labels, "gpu"], total["on_device"])
    yield images
    ready = core.GaugeMetricFamily("pytrt_ready", "Whether the model takes requests.", labels=_LABELS)
    for service in services:
        ready.add_metric(_labels(service), int(service.ready))
    yield ready
    sources = core.GaugeMetricFamily(
        "pytrt_model_source",
        "The version of a registry that is loaded of a version of the server: 1.",
        labels=[*_LABELS, "registry_version", "digest"],
    )
    for service in services:
        if service.source is not None:
            sources.add_metric([*_labels(service), service.source.version, service.source.digest], 1)
    yield sources


def _histograms(core: Any, services: Iterable[Service]) -> Iterator[Metric]:
    seconds = core.HistogramMetricFamily(
        "pytrt_request_seconds", "Seconds from a request's tensors to its outputs.", labels=_LABELS
    )
    batches = core.HistogramMetricFamily("pytrt_batch_rows", "Rows of the batches that were computed.", labels=_LABELS)
    for service in services:
        total = service.statistics.total()
        seconds.add_metric(
            _labels(service), _buckets(BUCKETS_S, service.statistics.durations()), total["total_ns"] * 1e-9
        )
        batches.add_metric(_labels(service), _buckets(BATCHES, service.statistics.batches()), total["rows"])
    yield seconds
    yield batches


def _buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, int]]:
    """Upper bounds with the counts up to each."""
    buckets, total = [], 0
    for bound, count in zip((*map(float, bounds), "+Inf"), counts, strict=True):
        total += count
        buckets.append((str(bound), total))
    return buckets


def _of_processes(core: Any, backend: Backend) -> Iterator[Metric]:
    running = core.GaugeMetricFamily("pytrt_processes", "Processes that run, by role.", labels=["role"])
    again = core.CounterMetricFamily(
        "pytrt_process_restarts", "Processes that were started in the place of one that died.", labels=["role"]
    )
    for gauge, counts in ((running, backend.processes.running), (again, backend.processes.restarts)):
        for role, count in counts.items():
            gauge.add_metric([role], count)
        yield gauge


def _of_gpus(core: Any) -> Iterator[Metric]:
    gpu_states = gpus()
    if not gpu_states:
        return
    for name, about, field in (
        ("pytrt_gpu_utilization_ratio", "Share of the last sampling period in which the GPU computed.", "utilization"),
        ("pytrt_gpu_memory_used_bytes", "Memory of the GPU in use, by every process.", "used_bytes"),
        ("pytrt_gpu_memory_total_bytes", "Memory of the GPU.", "total_bytes"),
    ):
        gauge = core.GaugeMetricFamily(name, about, labels=["gpu", "name"])
        for gpu in gpu_states:
            gauge.add_metric([str(gpu.index), gpu.name], getattr(gpu, field))
        yield gauge
