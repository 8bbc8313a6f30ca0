"""What the library does without a server: photos decoded in threads while the engine runs. No server of it can do more."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pytrtplugins import load_engine
from pytrtplugins.models import Yolov2

from .rows import Row

_WARM = 8


def alone(engine: Path, jpegs: Sequence[bytes], seconds: float, kind: str) -> Row:
    """Photos a second from files, in this process."""
    row = Row("the library alone, no server", kind, processes=1)
    with tempfile.TemporaryDirectory() as name:
        paths = []
        for number, jpeg in enumerate(jpegs):
            paths.append(Path(name) / f"{number}.jpg")
            paths[-1].write_bytes(jpeg)
        detector = Yolov2(load_engine(engine), engine.with_suffix(".names"))
        begun = time.perf_counter()
        list(detector.stream(itertools.islice(itertools.cycle(paths), _WARM)))
        row.cold_s = time.perf_counter() - begun
        done, until = 0, time.perf_counter() + seconds
        begun, cpu = time.perf_counter(), sum(os.times()[:2])
        for _ in detector.stream(itertools.takewhile(lambda _: time.perf_counter() < until, itertools.cycle(paths))):
            done += 1
        took = time.perf_counter() - begun
    row.rate, row.cpu_us = done / took, 1e6 * (sum(os.times()[:2]) - cpu) / done
    row.p50_ms = row.p99_ms = None
    return row
