"""The load of a server between two readings of its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from ..utils.optional import require

__all__ = ["GpuLoad", "ModelLoad", "Reading", "ServerLoad", "load_between"]


@dataclass(frozen=True)
class ModelLoad:
    """The load of a version of a model; None in fields without finished requests.

    Attributes:
        name: In addresses.
        version: In addresses.
        ready: Whether it takes requests.
        succeeded: Requests that got outputs, a second.
        failed: Requests that got an error, were refused or were late, a second.
        batch: Mean rows of a batch.
        queue: Requests that wait in queues, at the end.
        in_flight: Requests without an answer, at the end; those in queues are among them.
        p50_ms: Half of the requests took at most this from their tensors to their outputs, in ms; a histogram says so, which is coarse.
        p99_ms: The same of 99 % of the requests.
        waiting: Share of that time in a queue, 0..1.
        computing: Share of that time in a batch that was computed, 0..1.
        preprocess_ms: Mean of the time in the model's ``preprocess``, in ms.
        postprocess_ms: The same of its ``postprocess``.
    """

    name: str
    version: str
    ready: bool
    succeeded: float
    failed: float
    batch: float | None
    queue: int
    in_flight: int
    p50_ms: float | None
    p99_ms: float | None
    waiting: float | None
    computing: float | None
    preprocess_ms: float | None
    postprocess_ms: float | None


@dataclass(frozen=True)
class GpuLoad:
    """A GPU of the server's machine, at the end of the interval.

    Attributes:
        index: As nvidia-smi numbers it.
        name: Of the product.
        utilization: Share of the last sampling period in which it computed, 0..1.
        used_bytes: Memory in use, by every process.
        total_bytes: Memory.
    """

    index: str
    name: str
    utilization: float
    used_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class ServerLoad:
    """The load of a server.

    Attributes:
        url: Where its metrics were read.
        seconds: Between the two readings.
        models: In the order in which the server names them.
        processes: That run at the end, by role.
        restarts: Processes that were started again since the server started, by role.
        gpus: Of its machine.
    """

    url: str
    seconds: float
    models: tuple[ModelLoad, ...]
    processes: Mapping[str, int]
    restarts: Mapping[str, int]
    gpus: tuple[GpuLoad, ...]


class Reading:
    """A server's metrics at one time.

    Args:
        text: What ``/metrics`` answered.
        time_s: When; any clock that goes on evenly.

    Raises:
        UsageError: these are not the metrics of ``pytrt serve``.
    """

    def __init__(self, text: str, time_s: float) -> None:
        parser = require(
            "prometheus_client.parser", extra="serve", package="prometheus-client", feature="pytrt serve-top"
        )
        try:
            samples = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
        except ValueError as error:
            raise UsageError(f"these are no metrics: {str(error)[:200]}") from None
        self.time_s = time_s
        self._values = {_key(sample.name, sample.labels): float(sample.value) for sample in samples}
        self.labels: dict[str, list[dict[str, str]]] = {}
        for sample in samples:
            self.labels.setdefault(sample.name, []).append(sample.labels)
        if "pytrt_ready" not in self.labels:
            raise UsageError("these are not the metrics of pytrt serve: pytrt_ready is missing")

    def value(self, name: str, /, **labels: str) -> float:
        """A number; 0 where there is none."""
        return self._values.get(_key(name, labels), 0.0)

    def values(self, name: str, label: str) -> dict[str, int]:
        """The numbers of a metric by a label that it alone has."""
        return {labels[label]: int(self.value(name, **labels)) for labels in self.labels.get(name, [])}


def _key(name: str, labels: Mapping[str, str]) -> tuple[Any, ...]:
    return (name, *sorted(labels.items()))


def load_between(before: Reading, after: Reading, url: str) -> ServerLoad:
    """The load of a server between two readings."""
    seconds = max(after.time_s - before.time_s, 1e-9)
    return ServerLoad(
        url,
        seconds,
        tuple(_model(entry, before, after, seconds) for entry in after.labels["pytrt_ready"]),
        after.values("pytrt_processes", "role"),
        after.values("pytrt_process_restarts_total", "role"),
        tuple(_gpu(after, entry) for entry in after.labels.get("pytrt_gpu_utilization_ratio", [])),
    )


def _model(model: dict[str, str], before: Reading, after: Reading, seconds: float) -> ModelLoad:
    def more(metric: str, **labels: str) -> float:
        """The increase of a counter; a restarted server counts from 0."""
        now, then = after.value(metric, **model, **labels), before.value(metric, **model, **labels)
        return now - then if now >= then else now

    def stage(metric: str) -> float | None:
        return _ratio(
            1000 * more("pytrt_stage_seconds_sum", stage=metric), more("pytrt_stage_seconds_count", stage=metric)
        )

    bucket_labels = after.labels.get("pytrt_request_seconds_bucket", [])
    bounds = [bucket["le"] for bucket in bucket_labels if bucket.items() >= model.items()]
    buckets = [(float(bound), more("pytrt_request_seconds_bucket", le=bound)) for bound in bounds]
    total = more("pytrt_request_seconds_sum")
    return ModelLoad(
        model.get("model", ""),
        model.get("version", ""),
        after.value("pytrt_ready", **model) == 1,
        more("pytrt_requests_total", outcome="succeeded") / seconds,
        sum(more("pytrt_requests_total", outcome=outcome) for outcome in ("failed", "refused", "late")) / seconds,
        _ratio(more("pytrt_rows_total"), more("pytrt_batches_total")),
        int(after.value("pytrt_queue_length", **model)),
        int(after.value("pytrt_requests_in_flight", **model)),
        _quantile(0.5, buckets),
        _quantile(0.99, buckets),
        _ratio(more("pytrt_stage_seconds_sum", stage="queue"), total),
        _ratio(more("pytrt_stage_seconds_sum", stage="compute"), total),
        stage("preprocess"),
        stage("postprocess"),
    )


def _ratio(part: float, total: float) -> float | None:
    return part / total if total > 0 else None


def _quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    """Milliseconds that this share of durations are at most, from counts up to each bound in seconds.

    As Prometheus's histogram_quantile does: within a bucket durations count as spread evenly; the last finite bound stands for longer ones.
    """
    if not buckets or not buckets[-1][1]:
        return None
    rank, lower, below = share * buckets[-1][1], 0.0, 0.0
    for bound, count in buckets:
        if count >= rank and count > below:
            inside = lower if bound == float("inf") else lower + (bound - lower) * (rank - below) / (count - below)
            return 1000 * inside
        lower, below = bound, count
    return 1000 * lower


def _gpu(reading: Reading, labels: dict[str, str]) -> GpuLoad:
    used, total = (int(reading.value(f"pytrt_gpu_memory_{kind}_bytes", **labels)) for kind in ("used", "total"))
    utilization = reading.value("pytrt_gpu_utilization_ratio", **labels)
    return GpuLoad(labels["gpu"], labels["name"], utilization, used, total)
