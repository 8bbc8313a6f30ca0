"""Measure a table: build every variant, then measure accuracy, times (interleaved) and memory."""

from __future__ import annotations

import datetime
import functools
import itertools
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...bench import bench
from ...calibration import CALIBRATORS
from ...doctor import machine
from ...engines import Engine, build, calibrate, load_engine
from ...engines.base.arithmetic import Arithmetic
from ...engines.calibrate import network_digest
from ...engines.registry import available_class
from ...errors import PytrtpluginsError, UsageError
from ...model.proto import info_dims, info_dtype
from ...passes import CODES, prepare
from ...tensor import TensorDesc
from ...utils.files import sha256_hex
from ...utils.journal import Journal
from ...utils.numbers import LARGEST_BATCH, check_int
from ...utils.optional import onnx
from ...utils.progress import ProgressBar, progress_bar
from ...validation.dataflow import given_inputs
from ...version import __version__
from .memory import Memory, measure_memory
from .rows import Latency, Table, TableRow, Variant
from .tasks import Task

__all__ = ["TablePlan", "make_table"]

_MIB = 1 << 20
_SLOTS = 2


@dataclass(frozen=True)
class TablePlan:
    """The rows of a table, and settings of the measurement.

    Attributes:
        engines: Names of engines.
        precisions: Names of precisions, or paths of precision files; each is tried on each engine. The first row is compared with.
        algorithms: Of the calibration, for INT8 and FP8.
        samples: Numbers of images that calibration sees; each with each algorithm.
        batches: Rows of the runs that are timed, in the order of the columns.
        rounds: Turns of each engine.
        seconds: About how long the runs of each engine take, for each batch.
        threads: Of a run; None: all cores.
        settings: Of the engines.
        plugins: Forms in which plugins run.
        modules: Modules with plugins, for processes in which memory is measured.
    """

    engines: tuple[str, ...] = ("auto",)
    precisions: tuple[str, ...] = ("fp32", "int8")
    algorithms: tuple[str, ...] = ("minmax",)
    samples: tuple[int, ...] = (200,)
    batches: tuple[int, ...] = (1, 8)
    rounds: int = 5
    seconds: float = 2.0
    threads: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    plugins: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.engines and self.precisions and self.algorithms and self.samples and self.batches):
            raise UsageError("table: expected at least one engine, precision, algorithm, number of samples and batch")
        for batch in self.batches:
            check_int("table: batches", batch, 1, LARGEST_BATCH)
        unknown = [name for name in self.algorithms if name not in CALIBRATORS]
        if unknown:
            raise UsageError(f"table: algorithm {unknown[0]!r}: expected one of {', '.join(CALIBRATORS)}")

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The rows, in order."""
        rows = []
        for engine, precision in itertools.product(self.engines, self.precisions):
            if precision not in CODES:
                rows.append(Variant(engine, precision))
                continue
            rows += [
                Variant(engine, precision, algorithm, count)
                for algorithm, count in itertools.product(self.algorithms, self.samples)
            ]
        return tuple(dict.fromkeys(rows))


def make_table(
    model: onnx.ModelProto,
    task: Task,
    plan: TablePlan | None = None,
    *,
    name: str = "network",
    data: str = "",
    work: Path,
    progress: bool = True,
) -> Table:
    """Measure a network's speed, memory and accuracy in each variant.

    Every variant is built and saved first. Accuracy is measured variant by variant; times are measured in turns, so that load from other
    programs slows all of them; memory in a process of its own. What was measured is kept in the folder, so that the same call goes on
    where it was interrupted.

    Args:
        model: The network; its only free dim may be the batch.
        task: What it is for.
        plan: What is measured; None: the first engine of this machine in FP32 and INT8.
        name: Of the network, for readers.
        data: What is measured on, for readers.
        work: A folder for engines and results.
        progress: Show a progress bar where standard error is a terminal.

    Raises:
        UsageError: the network and the task do not fit together, or there are too few images to calibrate on.
        PytrtpluginsError: of the first variant, where none could be built.
    """
    plan = plan or TablePlan()
    work.mkdir(parents=True, exist_ok=True)
    identity = {
        "model": sha256_hex(model.SerializeToString(deterministic=True)),
        "task": task.name,
        "version": __version__,
        "machine": machine(),
        **task.identity,
        **{
            key: value
            for key, value in asdict(plan).items()
            if key in ("threads", "settings", "plugins", "rounds", "seconds")
        },
    }
    journal = Journal(work / "results.json", identity)
    with progress_bar("table", 3 * len(plan.variants) + len(plan.batches), progress) as bar:
        maker = _TableMaker(model, task, plan, work, journal, bar)
        rows = maker.rows()
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    notes = tuple(dict.fromkeys((*maker.notes, *task.notes)))
    return Table(rows, task.figures, maker.batches, task.name, name, data, machine(), date, notes)


@dataclass
class _TableMaker:
    """Makes one table."""

    model: onnx.ModelProto
    task: Task
    plan: TablePlan
    work: Path
    journal: Journal
    bar: ProgressBar
    notes: list[str] = field(default_factory=list)
    _compared: tuple[dict[str, float], Any] | None = None

    @functools.cached_property
    def batches(self) -> tuple[int, ...]:
        """The batch sizes that the network takes."""
        first = inputs_of(self.model)[0].dims[0]
        if not isinstance(first, int):
            return self.plan.batches
        left_out = [batch for batch in self.plan.batches if batch != first]
        if left_out:
            self.notes.append(f"the network takes batches of {first} only: {', '.join(map(str, left_out))} left out")
        return (first,)

    def rows(self) -> tuple[TableRow, ...]:
        """Build, then measure."""
        rows: dict[Variant, TableRow] = {}
        first_error: PytrtpluginsError | None = None
        for variant in self.plan.variants:
            self.bar.update(0, f"building {variant.name}")
            try:
                rows[variant] = self._build(variant)
            except UsageError:
                raise
            except PytrtpluginsError as error:
                first_error = first_error or error
                rows[variant] = _without_figures(variant, error)
            self.bar.update()
        usable = [variant for variant, row in rows.items() if not row.reason]
        if not usable and first_error is not None:
            raise first_error
        for variant in usable:
            rows[variant] = self._measure_row(rows[variant], usable[0])
        for variant, times in self._latency([variant for variant in usable if not rows[variant].reason]).items():
            rows[variant] = replace(rows[variant], latency=times)
        return tuple(rows.values())

    def _key(self, variant: Variant) -> str:
        """Cache key of a variant's results: the variant and its engine's settings."""
        settings = self._settings(variant)
        return f"{self._named(variant)} {json.dumps(settings)}" if settings else self._named(variant)

    def _named(self, variant: Variant) -> str:
        """The variant's name, with a digest of its precision file's contents."""
        path = Path(variant.precision)
        return (
            f"{variant.name} {sha256_hex(path)[:12]}"
            if _is_file(variant.precision) and path.is_file()
            else variant.name
        )

    def _path(self, variant: Variant) -> Path:
        """Path of its engine file; engines with other settings, such as other batches, have other paths."""
        settings = self._settings(variant)
        suffix = f"-{sha256_hex(json.dumps(settings).encode())[:8]}" if settings else ""
        return self.work / f"{_plain(self._named(variant))}{suffix}.engine"

    def _build(self, variant: Variant) -> TableRow:
        """Build and save a variant, unless that was done before."""
        path = self._path(variant)

        def make() -> dict[str, Any]:
            began = time.perf_counter()
            engine = self._build_engine(variant)
            took = time.perf_counter() - began
            engine.save(path)
            return {"build_s": took, "bytes": path.stat().st_size, "computed": asdict(engine.arithmetic)}

        facts = self.journal.get(f"build {self._key(variant)}", make)
        if not path.is_file() or "computed" not in facts:  # somebody removed it, or another version wrote the journal
            facts = make()
        computed = Arithmetic(**facts["computed"])
        if str(computed) != variant.precision:
            self.notes.append(f"{variant.name}: {computed}")
        return TableRow(variant, computed=computed, build_s=facts["build_s"], file_mib=facts["bytes"] / _MIB)

    def _settings(self, variant: Variant) -> dict[str, Any]:
        """Settings of the variant's engine."""
        settings = dict(self.plan.settings)
        cls = available_class(variant.engine, "fp32" if _is_file(variant.precision) else variant.precision)
        if "batch" in cls.settings and "batch" not in settings and self.batches == self.plan.batches:
            settings["batch"] = list(self.batches)  # kernels for each are chosen while building
        return {**cls.always(variant.precision), **settings}  # a row says what it costs, also where float32 is faster

    def _build_engine(self, variant: Variant) -> Engine:
        return build(
            self.model,
            engine=variant.engine,
            precision=variant.precision,
            calibration=self._calibrate(variant) if variant.algorithm else None,
            threads=self.plan.threads,
            settings=self._settings(variant),
            plugins=self.plan.plugins,
            progress=False,
        )

    def _calibrate(self, variant: Variant) -> Path:
        """Calibration cache, shared by engines and precisions; calibrates unless it exists."""
        name = f"{variant.algorithm} on {variant.samples}"
        path = self.work / f"{_plain(name)}.cache"

        def make() -> None:
            batches = self.task.calibration(inputs_of(self.model), variant.samples)
            calibrator = CALIBRATORS[variant.algorithm](batches, cache=path)
            table = calibrate(
                self.model, calibrator, threads=self.plan.threads, plugins=self.plan.plugins, progress=False
            )
            calibrator.store_table(table, network=network_digest(prepare(self.model)))

        self.journal.get(f"calibration {name}", make)
        if not path.is_file():  # somebody removed it
            make()
        return path

    def _measure_row(self, row: TableRow, first: Variant) -> TableRow:
        """Measure a row's accuracy and memory."""
        name, key = row.variant.name, self._key(row.variant)
        try:
            self.bar.update(0, f"accuracy of {name}")
            beside = f"accuracy {key} beside {self._key(first)}"
            figures = self.journal.get(beside, lambda: self._accuracy(row.variant, first))
            self.bar.update(1, f"memory of {name}")
            memory = f"memory {key}, batch {self.batches[0]}"
            used = Memory(**self.journal.get(memory, lambda: asdict(self._memory(row.variant))))
            self.bar.update()
        except UsageError:
            raise
        except PytrtpluginsError as error:
            return _without_figures(row.variant, error)
        return replace(
            row,
            figures=figures,
            host_mib=used.host,
            gpu_mib=used.gpu,
            weights_mib=used.weights,
            activations_mib=used.activations,
        )

    def _accuracy(self, variant: Variant, first: Variant) -> dict[str, float]:
        if variant == first:
            return self._first(first)[0]
        return self.task.measure(load_engine(self._path(variant)), self._first(first)[1], max(self.batches))[0]

    def _first(self, first: Variant) -> tuple[dict[str, float], Any]:
        """Figures of the first row, and what the others are compared with."""
        if self._compared is None:
            self._compared = self.task.measure(load_engine(self._path(first)), None, max(self.batches))
        return self._compared

    def _memory(self, variant: Variant) -> Memory:
        return measure_memory(self._path(variant), self.batches[0], self.plan.modules)

    def _latency(self, variants: Sequence[Variant]) -> dict[Variant, dict[int, Latency]]:
        """Times of the first variant of each engine and precision, measured interleaved."""
        firsts: dict[tuple[str, str], Variant] = {}
        for variant in variants:
            firsts.setdefault((variant.engine, variant.precision), variant)
        latencies: dict[Variant, dict[int, Latency]] = {variant: {} for variant in firsts.values()}
        names = {variant.name: variant for variant in latencies}
        for batch in self.batches:
            self.bar.update(0, f"times, batch {batch}")
            key = f"times {batch} {' '.join(map(self._key, names.values()))}"
            times = self.journal.get(key, functools.partial(self._times, names, batch))
            for name, row in times.items():
                if row["reason"]:
                    self.notes.append(f"{name}, batch {batch}, was not timed: {row['reason']}")
                else:
                    times_of_row = {key: value for key, value in row.items() if key != "reason"}
                    latencies[names[name]][batch] = Latency(**times_of_row)
            self.bar.update()
        return latencies

    def _times(self, names: Mapping[str, Variant], batch: int) -> dict[str, Any]:
        benchmark = bench(
            {name: functools.partial(load_engine, self._path(variant)) for name, variant in names.items()},
            lambda engine: self.task.inputs(engine.inputs, batch),
            rounds=self.plan.rounds,
            seconds=self.plan.seconds,
            slots=_SLOTS,
            progress=False,
        )
        return {
            row.name: {
                "reason": row.reason,
                "p50_ms": row.p50_ms,
                "p99_ms": row.p99_ms,
                "rate": row.rate * batch,
                "speed": row.speed,
            }
            for row in benchmark.rows
        }


def inputs_of(model: onnx.ModelProto) -> list[TensorDesc]:
    """Descriptions of a network's inputs."""
    return [TensorDesc(info.name, info_dims(info), info_dtype(info)) for info in given_inputs(model.graph)]


def _plain(name: str) -> str:
    """A name as a file's."""
    return re.sub("[^A-Za-z0-9.]+", "-", name)


def _is_file(precision: str) -> bool:
    return precision.endswith((".yaml", ".yml"))


def _without_figures(variant: Variant, error: PytrtpluginsError) -> TableRow:
    return TableRow(variant, reason=str(error).partition("\n")[0])
