"""The results of ``pytrt run``, on images and with arrays; the fields are keys of the JSON (docs/how-to/shell.md)."""

from __future__ import annotations

from dataclasses import dataclass

from ..engines.base.arithmetic import Arithmetic
from ..vision import Detection

__all__ = ["ArrayRun", "Detected", "ImageDetections", "OutputFacts"]


@dataclass(frozen=True)
class ImageDetections:
    """Detections on one image or frame.

    Attributes:
        file: The image's path or URL; of a video with ``frame`` and its number behind it.
        detections: What was found, best first.
    """

    file: str
    detections: tuple[Detection, ...]


@dataclass(frozen=True)
class Detected:
    """The results of a detector.

    Attributes:
        engine: The engine that ran it.
        precision: The precision that the engine was built for.
        computed: In which precision its layers computed.
        images: The images and frames that were looked at, in order.
        failures: What is wrong with the files that could not be read.
        saved: Files and folders that were written, one a line of text.
        summary: Images, detections and times.
    """

    engine: str
    precision: str
    computed: Arithmetic
    images: tuple[ImageDetections, ...]
    failures: tuple[str, ...]
    saved: tuple[str, ...]
    summary: str


@dataclass(frozen=True)
class OutputFacts:
    """One output array of a model.

    Attributes:
        name: Of the output.
        type: Of its elements.
        dims: Its dims.
        min: Its smallest value; null where it is empty.
        max: Its largest value.
        mean: The mean of its values.
    """

    name: str
    type: str
    dims: tuple[int, ...]
    min: float | None
    max: float | None
    mean: float | None


@dataclass(frozen=True)
class ArrayRun:
    """The result of runs on arrays.

    Attributes:
        engine: The engine.
        precision: The precision that the engine was built for.
        computed: In which precision its layers computed.
        outputs: What the last run gave.
        runs: How many runs were timed.
        slots: Runs at a time.
        median_ms: Of a run, where they ran one by one.
        runs_per_second: Where several ran at a time.
    """

    engine: str
    precision: str
    computed: Arithmetic
    outputs: tuple[OutputFacts, ...]
    runs: int
    slots: int
    median_ms: float | None
    runs_per_second: float | None
