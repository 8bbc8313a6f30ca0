"""Calibration tables for several numbers of images and several algorithms, from one look at each image."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pytrtplugins.calibration import (
    CalibrationTable,
    Calibrator,
    ChannelMaximaCalibrator,
    EntropyCalibrator,
    Histogram,
    MinMaxCalibrator,
    PercentileCalibrator,
)
from pytrtplugins.calibration.calibrator import HistogramCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.calibrate import network_digest
from pytrtplugins.passes import CrossLayerEqualization, to_ir, to_proto

from .networks import calibration_images, float_model, input_of, samples

if TYPE_CHECKING:
    import onnx

ALGORITHMS: Mapping[str, tuple[type[Calibrator], str]] = {  # and how images are fitted: see calibration.ImageBatches
    "entropy": (EntropyCalibrator, "stretch"),
    "minmax": (MinMaxCalibrator, "letterbox"),
    "percentile": (PercentileCalibrator, "letterbox"),
}
EQUALIZED_WITH = 20  # images
_PIECE = 50  # images that a process looks at together


@dataclasses.dataclass(frozen=True)
class Source:
    """What the tables are made of.

    Attributes:
        name: The network.
        shared: Folder with data/.
        folder: Where tables are kept from run to run.
        equalized: Whether its channels are rescaled first.
    """

    name: str
    shared: Path
    folder: Path
    equalized: bool = False

    def model(self) -> onnx.ModelProto:
        """The network in float; what equalization needs to know is kept in the folder."""
        model = float_model(self.name, self.shared)
        if not self.equalized:
            return model
        path = self.folder / f"{self.name}-{network_digest(model)[:8]}-channels.npz"
        if not path.exists():
            data, images = calibration_images(self.shared, EQUALIZED_WITH)
            name, size = input_of(model)
            calibrator = ChannelMaximaCalibrator(samples(data, images, size, name, "letterbox"))
            calibrate(model, calibrator, progress=False)
            with path.open("wb") as file:
                np.savez(file, **calibrator.channels)  # type: ignore[arg-type]  # NumPy's own option comes first
        ir_model = to_ir(model)
        with np.load(path, allow_pickle=False) as maxima:
            CrossLayerEqualization(dict(maxima))(ir_model)
        return to_proto(ir_model)

    def path(self, algorithm: str, count: int) -> Path:
        """The file of a table."""
        return self.folder / f"{self.name}-{network_digest(self.model())[:8]}-{algorithm}-{count}.cache"


class _Counting(PercentileCalibrator):
    """Keeps the histograms; its own table is not looked at."""


def make_tables(source: Source, counts: Sequence[int], pool: Executor) -> None:
    """Make those tables that the folder lacks."""
    for mode in ("letterbox", "stretch"):
        wanted = [name for name, (_, fitted) in ALGORITHMS.items() if fitted == mode]
        missing = [n for n in counts if not all(source.path(name, n).exists() for name in wanted)]
        if missing:
            _make(source, mode, wanted, sorted(missing), pool)


def _make(source: Source, mode: str, algorithms: Sequence[str], counts: Sequence[int], pool: Executor) -> None:
    images = calibration_images(source.shared, max(counts))[1]
    steps = sorted({0, *counts, *range(0, len(images), _PIECE), len(images)})
    steps = [step for step in steps if step <= len(images)]
    pieces = list(itertools.pairwise(steps))
    parts = pool.map(_count, *zip(*[(source, mode, first, last) for first, last in pieces], strict=True))
    histograms: dict[str, Histogram] = {}
    for (_, last), part in zip(pieces, parts, strict=True):
        histograms = {name: histogram.merge(histograms.get(name, Histogram())) for name, histogram in part.items()}
        for name in algorithms if last in counts or last == len(images) else ():
            for count in [count for count in counts if min(count, len(images)) == last]:
                _table(source, name, histograms).write(source.path(name, count))


def _count(source: Source, mode: str, first: int, last: int) -> dict[str, Histogram]:
    """Histograms of all tensors over some of the images."""
    model = source.model()
    name, size = input_of(model)
    data, images = calibration_images(source.shared, last)
    calibrator = _Counting(samples(data, images[first:], size, name, mode))
    calibrate(model, calibrator, threads=1, progress=False)
    return calibrator.histograms


def _table(source: Source, algorithm: str, histograms: Mapping[str, Histogram]) -> CalibrationTable:
    calibrator = ALGORITHMS[algorithm][0]()
    name, (width, height) = input_of(source.model())
    calibrator.bind({name: (1, 3, height, width)})
    if isinstance(calibrator, MinMaxCalibrator):
        for tensor, histogram in histograms.items():
            calibrator.observe(tensor, [histogram.maximum])
    else:
        assert isinstance(calibrator, HistogramCalibrator)
        calibrator.histograms = dict(histograms)
    return calibrator.compute_table()
