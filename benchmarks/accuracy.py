"""Measure what FP16 and INT8 cost in mAP50, by calibrator, images, weights and equalization; write docs/lab/accuracy.md."""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.cli.shared.option_values import read_settings
from pytrtplugins.engines import Engine, build
from pytrtplugins.engines.calibrate import network_digest
from pytrtplugins.engines.registry import engine_class
from pytrtplugins.models import Yolov2, evaluate
from pytrtplugins.passes import Precisions, layer_names
from pytrtplugins.utils.cpu_features import describe_cpu
from pytrtplugins.utils.numbers import THREADS, IntList, IntRange

from .networks import NAMES, ROOT, float_model, input_of, network, samples
from .pages.machine import about
from .pages.results import DOCS, publish
from .tables import ALGORITHMS, Source, make_tables

IMAGES = IntRange(1, 1_000_000)

COMPARED = 50  # images: weights are compared with that many, equalization with up to that many
_PACKAGES = ("pytrtplugins", "openvino", "cupy-cuda13x", "numpy")
SIGNAL = 16  # images of which the noise is measured


@dataclass(frozen=True)
class Setup:
    """What is the same in all rows of a network."""

    name: str
    shared: Path
    folder: Path
    engine: str
    settings: tuple[str, ...]
    limit: int | None
    half: int


@dataclass(frozen=True)
class Row:
    """One configuration."""

    precision: str
    engine: str
    channels: str = "–"
    calibrator: str = "–"
    images: int = 0
    weights: str = "–"


@dataclass(frozen=True)
class Result:
    """What it gave: mAP50, signal to noise of the outputs in dB, and FP32's mAP50 where only a few images were looked at."""

    map50: float
    sqnr: float
    exact: float | None = None


def rows(setup: Setup, counts: Sequence[int]) -> Iterator[Row]:
    """Every configuration of a network."""
    yield Row("fp32", setup.engine)
    for precision in ("fp16", "bf16"):
        held = precision == "fp16" and precision in engine_class(setup.engine).precisions
        if held or setup.half:
            yield Row(precision, setup.engine if held else "reference")
    for count in counts:
        for calibrator in ALGORITHMS:
            yield Row("int8", setup.engine, "as trained", calibrator, count, "per channel")
            if count == COMPARED:
                yield Row("int8", setup.engine, "as trained", calibrator, count, "per tensor")
            if count <= COMPARED:
                yield Row("int8", setup.engine, "equalized", calibrator, count, "per channel")


def measure(setup: Setup, row: Row) -> Result:
    """Build and evaluate."""
    engine = _engine(setup, row)
    if row.engine == setup.engine:
        return Result(_map50(setup, engine, setup.limit), _sqnr(setup, engine))
    exact = _map50(setup, _engine(setup, Row("fp32", setup.engine)), setup.half)
    return Result(_map50(setup, engine, setup.half), _sqnr(setup, engine), exact)


def _engine(setup: Setup, row: Row) -> Engine:
    model = float_model(setup.name, setup.shared)
    settings = read_settings(setup.settings) if row.engine == setup.engine else {}
    if row.precision != "int8":
        settings = {**engine_class(row.engine).always(row.precision), **settings}
        return build(model, engine=row.engine, precision=row.precision, settings=settings)
    source = Source(setup.name, setup.shared, setup.folder, equalized=row.channels == "equalized")
    model = source.model()
    table = CalibrationTable.read(source.path(row.calibrator, row.images))
    scales = {tensor: float(scale) for tensor, scale in table.items()}
    shared = row.weights == "per tensor"
    precisions = Precisions("int8", network_digest(model), layer_names(model), scales=scales, per_tensor=shared)
    return build(model, engine=row.engine, precision=precisions, settings=settings)


def _map50(setup: Setup, engine: Engine, limit: int | None) -> float:
    found = network(setup.name, setup.shared)
    with Yolov2(engine, found.classes, mode=found.mode) as detector:
        return evaluate(detector, found.images, limit=limit, progress=False).map50


def _sqnr(setup: Setup, engine: Engine) -> float:
    expected = _exact_outputs(setup)
    signal = noise = 0.0
    for wanted, given in zip(expected, _outputs(setup, engine), strict=True):
        signal += float((wanted**2).sum())
        noise += float(((wanted - given) ** 2).sum())
    return 10 * float(np.log10(signal / noise)) if noise else float("inf")


@functools.cache
def _exact_outputs(setup: Setup) -> list[Any]:
    return _outputs(setup, _engine(setup, Row("fp32", setup.engine)))


def _outputs(setup: Setup, engine: Engine) -> list[Any]:
    """All outputs of each image in one array, as float64."""
    found = network(setup.name, setup.shared)
    name, size = input_of(float_model(setup.name, setup.shared))
    images = found.images.images("val.txt")[:SIGNAL]
    with engine.create_context() as context:
        return [
            np.concatenate([np.asarray(value, np.float64).ravel() for value in context.run(sample).values()])
            for sample in samples(found.images, images, size, name, found.mode)
        ]


def plain_rows(found: dict[Row, Result], half: int) -> Iterator[dict[str, Any]]:
    """The rows as a record has them; the first is FP32's."""
    (fp32, baseline), *_ = found.items()
    for row, result in found.items():
        exact = baseline.map50 if result.exact is None else result.exact
        lost = (
            {"difference": None, "sqnr": None}
            if row == fp32
            else {"difference": result.map50 - exact, "sqnr": result.sqnr}
        )
        yield {**asdict(row), "first": 0 if result.exact is None else half, "map50": result.map50, **lost}


def main() -> None:
    """Parse arguments, calibrate, measure, write."""
    given = _arguments()
    if given.pytorch is not None:
        pytorch(given.pytorch or None, given.threads, given.docs)
        return
    counts = list(given.images)
    given.tables.mkdir(parents=True, exist_ok=True)
    fields = (given.engine, tuple(given.setting), given.limit, given.half)
    setups = [Setup(name, given.shared, given.tables, *fields) for name in given.networks.split(",")]
    started = time.perf_counter()
    with ProcessPoolExecutor(given.processes, multiprocessing.get_context("spawn")) as pool:
        for setup in setups:
            source = Source(setup.name, setup.shared, setup.folder)
            make_tables(source, counts, pool)
            few = [count for count in counts if count <= COMPARED]
            make_tables(Source(setup.name, setup.shared, setup.folder, equalized=True), few, pool)
        print(f"calibrated: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
        if given.only_tables:
            return
        wanted = {setup.name: list(rows(setup, counts)) for setup in setups}
        futures = {pool.submit(measure, setup, row): (setup, row) for setup in setups for row in wanted[setup.name]}
        found: dict[str, dict[Row, Result]] = {setup.name: {} for setup in setups}
        for future in as_completed(futures):
            setup, row = futures[future]
            found[setup.name][row] = future.result()
            print(
                setup.name, row, future.result(), f"{time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True
            )
            if len(found[setup.name]) == len(wanted[setup.name]):
                ordered = {row: found[setup.name][row] for row in wanted[setup.name]}
                number = "all images" if setup.limit is None else f"the first {setup.limit} images"
                facts = about(_PACKAGES, _command(), f"The data are {number} of the list.")
                record = {"subject": "accuracy", **facts, "rows": list(plain_rows(ordered, setup.half))}
                publish(record, "accuracy", setup.name, given.docs)


def pytorch(families: Sequence[str] | None, threads: int, docs: Path) -> None:
    """Measure networks as others write them, and write their table where all families are measured."""
    from .pages.accuracy import pytorch as tables
    from .pytorch_networks import EXPORTERS, FAMILIES  # PyTorch is needed for these alone
    from .pytorch_rows import measure

    threads_text = "1 thread" if threads == 1 else f"{threads} threads"
    facts = about(("torch", "onnxruntime", "openvino"), _command(), processor=f"{describe_cpu()}, {threads_text}")
    record = {"subject": "pytorch", **facts, "rows": []}
    for family in families or FAMILIES:
        for exporter in EXPORTERS:
            for figures in measure(family, exporter, threads):
                print(figures, file=sys.stderr, flush=True)
                record["rows"].append(figures)
    print("\n\n".join(tables("pytorch", record)))
    if families is None:
        publish(record, "accuracy", "pytorch", docs)


def _command() -> str:
    return shlex.join(["python", "-m", "benchmarks.accuracy", *sys.argv[1:]])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    add = parser.add_argument
    add("--shared", type=Path, default=ROOT.parent / "shared", help="folder with data/ (default: %(default)s)")
    add("--networks", default=",".join(NAMES), help="(default: %(default)s)")
    add("--images", type=IntList(IMAGES), default="5,10,50,200,1000", help="calibration images (default: %(default)s)")
    add("--limit", type=IMAGES, default=None, help="evaluate the first images only")
    add("--engine", default="cpu", help="what computes: cpu, cuda, reference ... (default: %(default)s)")
    add("--setting", action="append", default=[], metavar="NAME=VALUE", help="of the engine; may be repeated")
    add(
        "--half",
        type=IntRange(0, IMAGES.maximum),
        default=16,
        help="images for FP16 and BF16 in NumPy; 0: leave out (default: %(default)s)",
    )
    add(
        "--processes",
        type=IntRange(1, 1024),
        default=os.cpu_count(),
        help="that calibrate and evaluate (default: %(default)s)",
    )
    add("--tables", type=Path, default=ROOT / "build" / "accuracy", help="folder of calibration tables, kept")
    add("--only-tables", action="store_true", help="calibrate, and end")
    add(
        "--pytorch",
        nargs="*",
        metavar="FAMILY",
        help="measure networks as PyTorch's exporters write them, instead; see pytorch_networks.py",
    )
    add("--threads", type=THREADS, default=1, help="with --pytorch: of a run (default: %(default)s)")
    add("--docs", type=Path, default=DOCS, help="folder of accuracy.md (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
