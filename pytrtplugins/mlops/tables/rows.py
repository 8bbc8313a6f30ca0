"""The table of a network's speed, memory and accuracy, by engine and precision."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ...engines.base.arithmetic import Arithmetic
from ...utils.notebook import object_html
from .tasks import Figure

__all__ = ["Latency", "Table", "TableRow", "Variant"]

_PARTS = ("weights MiB", "activations MiB")


@dataclass(frozen=True)
class Variant:
    """One engine and precision to measure the network with.

    Attributes:
        engine: Name of the engine.
        precision: Of its arithmetic.
        algorithm: Of the calibration; empty for floats.
        samples: How many images it saw; 0 for floats.
    """

    engine: str
    precision: str
    algorithm: str = ""
    samples: int = 0

    @property
    def name(self) -> str:
        """The name, such as ``"cpu int8, minmax on 200"``."""
        calibrated = f", {self.algorithm} on {self.samples}" if self.algorithm else ""
        return f"{self.engine} {self.precision}{calibrated}"


@dataclass(frozen=True)
class Latency:
    """Times of runs with one batch size, from host arrays to host arrays.

    Attributes:
        p50_ms: Median of a run, in milliseconds.
        p99_ms: 99th percentile.
        rate: Rows (images) a second with two runs at a time.
        speed: The first row's ``p50_ms`` over this one's.
    """

    p50_ms: float
    p99_ms: float
    rate: float
    speed: float


@dataclass(frozen=True)
class TableRow:
    """Measurements of one variant.

    Attributes:
        variant: Engine, precision and calibration.
        reason: Why it has no figures; empty where it has.
        computed: In which precision its layers compute; None where it could not be built.
        build_s: Seconds of the build.
        file_mib: Size of the engine file, most of which are weights.
        latency: By batch. Of variants that differ in calibration only the first one was timed.
        host_mib: Highest use of the host's memory while the engine is loaded and run with the first batch; libraries are left out.
        gpu_mib: Growth of the GPU's used memory in that time.
        weights_mib: Constants as the engine keeps them, on its device; None: unknown.
        activations_mib: What a context needs to run the first batch, on the engine's device; None: unknown.
        figures: Accuracy, by key; `Table.figures` has the titles.
    """

    variant: Variant
    reason: str = ""
    computed: Arithmetic | None = None
    build_s: float = 0.0
    file_mib: float = 0.0
    latency: dict[int, Latency] = field(default_factory=dict)
    host_mib: float = 0.0
    gpu_mib: float = 0.0
    weights_mib: float | None = None
    activations_mib: float | None = None
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """All rows, and the conditions of the measurement.

    Attributes:
        rows: One for each variant, in the order in which they were asked for.
        figures: What the keys in `TableRow.figures` mean.
        batches: Rows of the runs that were timed.
        task: Name of the task.
        model: Name of the network.
        data: What it was measured on.
        machine: Versions, processor, GPU and driver, by what they are called.
        date: When it was finished, in UTC.
        notes: What else a reader has to know.
    """

    rows: tuple[TableRow, ...]
    figures: tuple[Figure, ...]
    batches: tuple[int, ...]
    task: str
    model: str
    data: str
    machine: dict[str, str] = field(repr=False)
    date: str
    notes: tuple[str, ...] = ()

    @property
    def measured(self) -> tuple[TableRow, ...]:
        """The rows that have figures."""
        return tuple(row for row in self.rows if not row.reason)

    @property
    def on_gpu(self) -> bool:
        """Whether a row uses GPU memory."""
        return any(row.gpu_mib for row in self.rows)

    @property
    def _parts(self) -> list[str]:
        """Heads of the columns of parts of the memory that are known of a row."""
        return [title for title in _PARTS if any(_part(row, title) is not None for row in self.rows)]

    def to_dict(self) -> dict[str, Any]:
        """All of it as values for JSON."""
        return asdict(self)

    def columns(self) -> list[str]:
        """Heads of the columns."""
        times = [title for batch in self.batches for title in _times_of(batch, len(self.batches) > 1)]
        memory = ["host MiB", *(["GPU MiB"] if self.on_gpu else []), *self._parts, "file MiB"]
        return ["", *times, *memory, "build s", *(figure.title for figure in self.figures)]

    def cells(self, row: TableRow) -> list[str]:
        """A row as texts, one per column; missing figures are dashes."""
        texts = [row.variant.name]
        for batch in self.batches:
            at = row.latency.get(batch)
            texts += (
                ["–"] * 4
                if at is None
                else [f"{at.p50_ms:.3f}", f"{at.p99_ms:.3f}", f"{at.rate:,.1f}", f"{at.speed:.2f}"]
            )
        texts += [f"{row.host_mib:,.0f}", *([f"{row.gpu_mib:,.0f}"] if self.on_gpu else [])]
        texts += ["–" if (size := _part(row, title)) is None else f"{size:,.1f}" for title in self._parts]
        texts.append(f"{row.file_mib:,.1f}")
        texts.append(f"{row.build_s:.1f}")
        for figure in self.figures:
            value = row.figures.get(figure.key)
            texts.append("–" if value is None else f"{value:.{figure.digits}f}")
        return texts

    def remarks(self) -> list[str]:
        """Remarks below the table: rows without figures, notes, machine."""
        missing = [f"{row.variant.name} has no figures: {row.reason}" for row in self.rows if row.reason]
        machine = self.machine["processor"] + (f", {self.machine['GPU']}" if self.on_gpu else "")
        return [*missing, *self.notes, f"{self.task} on {self.data}; {machine}; {self.date}"]

    def _repr_html_(self) -> str:
        return object_html(f"{self.model}: {self.task}", self.columns(), map(self.cells, self.measured), self.remarks())


def _part(row: TableRow, title: str) -> float | None:
    return row.weights_mib if title == _PARTS[0] else row.activations_mib


def _times_of(batch: int, several: bool) -> list[str]:
    suffix = f", batch {batch}" if several or batch > 1 else ""
    return [f"p50 ms{suffix}", f"p99 ms{suffix}", f"images/s{suffix}", f"speed{suffix}"]
