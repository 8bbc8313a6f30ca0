"""``pytrt run`` without images: run a model on arrays, one run after another or several concurrently."""

from __future__ import annotations

import time
from array import array
from pathlib import Path

import numpy as np

from ...bench import stream_rate
from ...engines import Engine
from ...engines.base.context import Arrays
from ...utils.atomic import atomic_path

__all__ = ["one_by_one", "save_arrays", "side_by_side"]


def one_by_one(engine: Engine, inputs: Arrays, repeat: int) -> tuple[Arrays, float]:
    """Run one after the other, and once before; gives the outputs, and the median of a run in milliseconds."""
    with engine.create_context() as context:
        outputs = context.run(inputs)
        times = array("d")
        for _ in range(repeat):
            started = time.perf_counter()
            outputs = context.run(inputs)
            times.append(1000 * (time.perf_counter() - started))
    return outputs, float(np.median(times))


def side_by_side(engine: Engine, inputs: Arrays, repeat: int, slots: int) -> tuple[Arrays, float]:
    """Run on several contexts alternately, so that copies and computation of runs overlap; gives the outputs, and runs a second."""
    return stream_rate(engine, inputs, repeat, slots)


def save_arrays(path: Path, arrays: Arrays) -> None:
    """Write arrays as .npz."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
