"""Benchmarks of engines: latency, throughput and memory, measured in turns after their outputs agree."""

from __future__ import annotations

import datetime
import itertools
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .doctor import machine
from .engines import availability
from .engines.base.arithmetic import Arithmetic
from .engines.base.context import Arrays, ExecutionContext
from .engines.base.engine import Engine
from .engines.host.timing import sample_inputs
from .errors import PytrtpluginsError, UsageError
from .utils.figures import INK, check_figure, drawing, save
from .utils.notebook import object_html
from .utils.numbers import MAX_SLOTS, check_int
from .utils.optional import require
from .utils.progress import progress_bar

__all__ = ["Benchmark", "Row", "bench", "stream_rate"]

_WARM_UPS, _FEWEST, _MOST = 3, 3, 100_000  # runs of a turn
_LARGEST_ROUNDS = 10_000
_MIB = 1 << 20
_LIMITS = {"fp32": 1e-3, "tf32": 1e-2, "fp16": 5e-2, "bf16": 1e-1}  # of `Row.error`; INT8 and FP8 have none
_ON_GPU = ("cuda", "tensorrt")


@dataclass(frozen=True)
class Row:
    """Measurements of one engine.

    Attributes:
        name: What it is called in the table, such as ``"cpu fp32"``.
        engine: The engine's name.
        precision: The precision that the engine was built for.
        computed: In which precision its layers compute; None where it could not be built.
        details: Versions and devices of the engine.
        reason: Why it was not timed: it could not be built, or its outputs differ; empty where it was.
        error: Distance of its outputs from the first engine's, over the norm of those; the largest of all outputs.
        build_s: Seconds of the build, or of loading.
        p50_ms: Latency of a run, host to host: the median of the rounds' medians.
        p90_ms: The 90th percentile of all runs.
        p99_ms: The 99th percentile of all runs.
        speed: The first engine's ``p50_ms`` over this one's.
        runs: Runs that were timed one by one.
        rate: Runs a second with several at a time; the median of the rounds.
        host_mib: Growth of the process's memory while the engine was built and first run, in MiB.
        gpu_mib: Growth of the GPU's used memory in that time.
    """

    name: str
    engine: str = ""
    precision: str = ""
    computed: Arithmetic | None = None
    details: str = ""
    reason: str = ""
    error: float = 0.0
    build_s: float = 0.0
    p50_ms: float = 0.0
    p90_ms: float = 0.0
    p99_ms: float = 0.0
    speed: float = 0.0
    runs: int = 0
    rate: float = 0.0
    host_mib: float = 0.0
    gpu_mib: float = 0.0


@dataclass(frozen=True)
class Benchmark:
    """All rows, and where and how they were measured.

    Attributes:
        rows: One for each engine, as they were given.
        rounds: Turns of each engine.
        slots: Runs at a time where ``rate`` was measured.
        inputs: Dims of the inputs, by name.
        machine: Versions, processor, GPU and driver, by what they are called.
        load: The system's load (tasks that ran or waited, in the last minute) when the benchmark began.
        date: When it began, in UTC.
    """

    rows: tuple[Row, ...]
    rounds: int
    slots: int
    inputs: dict[str, tuple[int, ...]]
    machine: dict[str, str] = field(repr=False)
    load: float
    date: str

    @property
    def agree(self) -> bool:
        """Whether the outputs of all engines that could be run agree."""
        return not any(row.engine and row.reason for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        values = asdict(self)
        for row in values["rows"]:
            row["error"] = row["error"] if np.isfinite(row["error"]) else None
        return values

    def _repr_html_(self) -> str:
        columns = ("", "p50 ms", "p90 ms", "p99 ms", "speed", f"runs/s, {self.slots} at a time", "memory MiB", "error")
        rows = [
            (row.name, *(f"{time:.3f}" for time in (row.p50_ms, row.p90_ms, row.p99_ms)), f"{row.speed:.2f}",
             f"{row.rate:.1f}", f"{row.host_mib:.0f}{f', GPU {row.gpu_mib:.0f}' * bool(row.gpu_mib)}", f"{row.error:.1e}")
            for row in self.rows if not row.reason
        ]  # fmt: skip
        notes = [f"{row.name} was not timed: {row.reason}" for row in self.rows if row.reason]
        notes += [
            f"{row.name}: {row.computed}" for row in self.rows if str(row.computed or row.precision) != row.precision
        ]
        return object_html(f"benchmark, {self.date}", columns, rows, [*notes, self.machine.get("processor", "")])

    def draw(self, path: str | Path, title: str = "") -> None:
        """Draw a bar for each row's median, from zero, with marks at p90 and p99.

        Raises:
            UsageError: the suffix is not .png, .svg or .pdf, or the folder does not exist.
            MissingExtraError: matplotlib is missing.
        """
        path = check_figure(path)
        rows = [row for row in self.rows if not row.reason]
        with drawing(8, 0.45 * len(rows) + 1.6) as figure:
            axes = figure.add_subplot()
            places = range(len(rows))
            marks: list[Any] = [axes.barh(places, [row.p50_ms for row in rows], height=0.6, color="C0", label="p50")]
            for name, mark, color in (("p90_ms", "|", INK), ("p99_ms", "d", "C1")):
                times = [getattr(row, name) for row in rows]
                marks.append(axes.scatter(times, places, marker=mark, s=60, color=color, label=name[:3], zorder=3))
            axes.set_yticks(places, [row.name for row in rows])
            axes.invert_yaxis()
            axes.set_xlim(left=0)
            axes.set_xlabel("latency of a run, ms")
            axes.set_title("\n".join(filter(None, (title, self.machine.get("processor")))))
            figure.legend(handles=marks, loc="outside right upper")
            save(figure, path)


@dataclass
class _Subject:
    """An engine that is timed, and its measurements so far."""

    row: Row
    engine: Engine
    context: ExecutionContext
    outputs: Arrays
    count: int = 0
    rounds: list[list[float]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)


def bench(
    engines: Mapping[str, Callable[[], Engine]],
    inputs: Callable[[Engine], Arrays] | None = None,
    *,
    rounds: int = 5,
    seconds: float = 2.0,
    slots: int = 2,
    progress: bool = True,
) -> Benchmark:
    """Benchmark engines in this process, taking turns.

    Every engine is built and run first, and its outputs are compared with the first one's: an engine whose outputs differ is not
    timed. Then every round gives each engine a turn, so that load from other programs slows all of them. The first run of a
    turn is not counted, since threads and caches still belong to the other engine.

    Args:
        engines: What builds or loads each engine, by the name that it has in the table; the first is compared with.
        inputs: Makes the inputs of all runs for the first engine; by default noise, with one sample where the batch is free.
        rounds: Turns of each engine.
        seconds: About how long the runs of one engine take that are timed one by one; those for ``rate`` are as many again.
        slots: Runs at a time where ``rate`` is measured.
        progress: Show a progress bar where standard error is a terminal.

    Raises:
        UsageError: a number is outside its limits, or an input has free dims besides the batch and no inputs are given.
        PytrtpluginsError: of the first engine, where none could be built.

    Example:
        >>> found = bench({name: functools.partial(ptp.build, model, engine=name) for name in ("cpu", "onnxruntime")})  # doctest: +SKIP
        >>> [(row.name, row.p50_ms) for row in found.rows]  # doctest: +SKIP
        [('cpu', 11.2), ('onnxruntime', 17.5)]
    """
    check_int("bench: rounds", rounds, 1, _LARGEST_ROUNDS)
    check_int("bench: slots", slots, 1, MAX_SLOTS)
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    load, cupy = os.getloadavg()[0], _cupy()
    rows: dict[str, Row] = {}
    subjects: list[_Subject] = []
    first_error: PytrtpluginsError | None = None
    arrays: Arrays = {}
    make = inputs or _sample_inputs
    with ExitStack() as stack, progress_bar("bench", len(engines) * (1 + rounds), progress) as bar:
        for name, build in engines.items():
            bar.update(0, f"building {name}")
            try:
                before, begin = _memory_use(cupy), time.perf_counter()
                engine = build()
                build_s = time.perf_counter() - begin
                arrays = arrays or make(engine)
                context = stack.enter_context(engine.create_context())
                outputs = {name: np.array(array) for name, array in context.run(arrays).items()}
            except UsageError:
                raise
            except PytrtpluginsError as error:
                first_error = first_error or error
                rows[name] = Row(name, reason=str(error).partition("\n")[0])
            else:
                engine_facts = engine.name, engine.precision, engine.arithmetic
                row = Row(name, *engine_facts, engine.availability().details, build_s=build_s)
                subject = _Subject(row, engine, context, outputs)
                _warm_up(subject, arrays, seconds / rounds)
                memory_growth = [
                    max(0.0, (now - then) / _MIB) for now, then in zip(_memory_use(cupy), before, strict=True)
                ]
                rows[name] = subject.row = _row_with_error(
                    replace(row, host_mib=memory_growth[0], gpu_mib=memory_growth[1]),
                    outputs,
                    subjects[0] if subjects else subject,
                )
                if not rows[name].reason:
                    subjects.append(subject)
            bar.update()
        if not subjects and first_error is not None:
            raise first_error
        for _ in range(rounds):
            for subject in subjects:
                bar.update(0, f"timing {subject.row.name}")
                _take_turn(subject, arrays, slots)
                bar.update()
    for subject in subjects:
        rows[subject.row.name] = _row_with_times(subject, subjects[0])
    dims = {name: tuple(array.shape) for name, array in arrays.items()}
    return Benchmark(tuple(rows.values()), rounds, slots, dims, machine(), load, date)


def stream_rate(engine: Engine, inputs: Arrays, count: int, slots: int) -> tuple[Arrays, float]:
    """Measure the throughput with several runs at a time, after a warm-up run on each slot.

    Returns:
        The last outputs, and runs a second.
    """
    results = engine.stream(itertools.repeat(inputs, slots + count), slots=slots)
    for _ in range(slots):
        next(results)
    begin = time.perf_counter()
    last = deque(results, maxlen=1)
    return last[0], count / (time.perf_counter() - begin)


# -- inside --------------------------------------------------------------------------------------------------------------


def _sample_inputs(engine: Engine) -> Arrays:
    inputs = sample_inputs(engine)
    if inputs is None:
        raise UsageError(f"bench: dims besides the batch are free: {engine!r}.\nDo: give the inputs")
    return inputs


def _warm_up(subject: _Subject, inputs: Arrays, seconds: float) -> None:
    """Run a few times, and set the number of runs that fill a turn."""
    times = [_seconds_of_run(subject.context, inputs) for _ in range(_WARM_UPS)]
    subject.count = min(max(round(seconds / max(float(np.median(times)), 1e-7)), _FEWEST), _MOST)


def _take_turn(subject: _Subject, inputs: Arrays, slots: int) -> None:
    subject.context.run(inputs)
    subject.rounds.append([_seconds_of_run(subject.context, inputs) for _ in range(subject.count)])
    subject.rates.append(stream_rate(subject.engine, inputs, subject.count, slots)[1])


def _seconds_of_run(context: ExecutionContext, inputs: Arrays) -> float:
    begin = time.perf_counter()
    context.run(inputs)
    return time.perf_counter() - begin


def _row_with_times(subject: _Subject, first: _Subject) -> Row:
    p50, base = (_median_ms(item.rounds) for item in (subject, first))
    times = np.concatenate(subject.rounds)
    p90, p99 = 1000 * np.percentile(times, (90, 99), method="inverted_cdf")
    return replace(
        subject.row,
        p50_ms=p50,
        p90_ms=float(p90),
        p99_ms=float(p99),
        speed=base / p50,
        runs=len(times),
        rate=float(np.median(subject.rates)),
    )


def _median_ms(rounds: Sequence[Sequence[float]]) -> float:
    return 1000 * float(np.median([np.median(times) for times in rounds]))


def _row_with_error(row: Row, outputs: Arrays, first: _Subject) -> Row:
    """Return the row with its error relative to the first engine, and with a reason if the outputs differ too much."""
    if set(outputs) != set(first.outputs):
        return replace(
            row, reason=f"it has the outputs {sorted(outputs)}, and {first.row.name} {sorted(first.outputs)}"
        )
    error = max((_distance(outputs[name], expected) for name, expected in first.outputs.items()), default=0.0)
    limit = max(_LIMITS.get(precision, sys.float_info.max) for precision in (row.precision, first.row.precision))
    reason = "" if error <= limit else f"its outputs are not those of {first.row.name}: {error:.1e} of their norm off"
    return replace(row, error=error, reason=reason)


def _distance(actual: Any, expected: Any) -> float:
    a, b = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if a.shape != b.shape:
        return float("inf")
    is_same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = float(np.linalg.norm(np.where(is_same, 0.0, a - b)))
        norm = float(np.linalg.norm(np.where(is_same & ~np.isfinite(b), 0.0, b)))
    if difference == 0:
        return 0.0
    return difference / norm if norm and np.isfinite(difference) else float("inf")


def _cupy() -> Any:
    """Return CuPy if an engine on a GPU is available, else None."""
    if any(engine.available for engine in availability() if engine.name in _ON_GPU):
        return require("cupy", extra="cuda")
    return None


def _memory_use(cupy: Any) -> tuple[int, int]:
    """Return the bytes of this process in memory, and the bytes in use on the GPU; 0 where unknown."""
    on_gpu = 0
    if cupy is not None:
        free, total = cupy.cuda.runtime.memGetInfo()
        on_gpu = total - free
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return 0, on_gpu
    return pages * os.sysconf("SC_PAGE_SIZE"), on_gpu
