"""What the host adds to a network on a GPU, part by part: ``python -m benchmarks.gpu.host_split yolov2.engine``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.cuda import pinned_empty
from pytrtplugins.engines.cuda import CudaEngine
from pytrtplugins.errors import ModelError
from pytrtplugins.models import Yolov2

from . import host_calls
from .running import pinned_copy

CALLS, WARM_UP = 200, 20
SIZES = [(416, 416), (768, 576), (1920, 1080)]
DISTINCT, MANY = 20, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", help="an engine file of engine cuda")
    engine = ptp.load_engine(parser.parse_args().engine)
    if not isinstance(engine, CudaEngine):
        parser.error(f"expected a file of engine cuda, found one of {engine.name}")
    print(f"{engine!r}\nmicroseconds: median (10 %, 90 %) of {CALLS} calls after {WARM_UP}")
    split_run(engine)
    split_calls(engine)
    try:
        detector = Yolov2(engine)
    except ModelError:
        return  # no detector
    with detector:
        split_images(detector)


def split_run(engine: CudaEngine) -> None:
    """Arrays to arrays."""
    rng = np.random.default_rng(0)
    ordinary = {
        desc.name: rng.random([dim if isinstance(dim, int) else 1 for dim in desc.dims]).astype(desc.dtype.numpy)
        for desc in engine.inputs
    }
    pinned = {name: pinned_copy(array) for name, array in ordinary.items()}
    with engine.create_context() as context:
        outputs = context.run(ordinary)
        given = {name: pinned_empty(array.shape, array.dtype) for name, array in outputs.items()}
        row("network, on the GPU", [context.step_times(ordinary)[0]])  # type: ignore[attr-defined]
        row("run, page-locked arrays in and out", timed(lambda: context.run(pinned, given)))
        row("run, page-locked arrays in", timed(lambda: context.run(pinned)))
        row("run, ordinary arrays", timed(lambda: context.run(ordinary)))
        for name, inputs in (("page-locked", pinned), ("ordinary", ordinary)):
            begun: list[float] = []

            def in_two(inputs: dict[str, np.ndarray] = inputs, begun: list[float] = begun) -> None:
                begin = time.perf_counter()
                future = context.run_async(inputs)
                begun.append(1e6 * (time.perf_counter() - begin))
                future.result()

            timed(in_two)
            row(f"  of it until all is queued, {name}", begun[WARM_UP:])
        many = [{name: array.copy() for name, array in ordinary.items()} for _ in range(DISTINCT)]
        rate("ordinary arrays, one run after the other", (context.run(inputs) for inputs in around(many)))
    rate("ordinary arrays, stream", engine.stream(around(many)))


def split_calls(engine: CudaEngine) -> None:
    """What the host spends on calls that queue runs between arrays on the GPU."""
    cupy = engine.device.xp
    inputs = {
        desc.name: np.zeros([dim if isinstance(dim, int) else 1 for dim in desc.dims], desc.dtype.numpy)
        for desc in engine.inputs
    }
    print(f"the host's part of calls that queue a run: {host_calls.CALLS} calls after {host_calls.WARM_UP}")
    with engine.create_context() as context:
        outputs = context.run(inputs)
        steps = len(context.step_times(inputs, runs=1)[1])  # type: ignore[attr-defined]
        wait = cupy.cuda.Device(engine.device.number).synchronize
        for name, times in host_calls.call_rows(context, inputs, outputs, host_calls.libraries(), wait):
            row(name, times)
        replayed = host_calls.replay_row(steps)
        if replayed is not None:
            row(*replayed)


def split_images(detector: Yolov2) -> None:
    """Images to boxes."""
    context = detector.context
    for width, height in SIZES:
        image = np.random.default_rng(1).integers(0, 256, (height, width, 3)).astype(np.uint8)
        for name, given in (("ordinary", image), ("page-locked", pinned_copy(image))):
            spent: list[tuple[float, float, float]] = []

            def look(given: np.ndarray = given, spent: list[tuple[float, float, float]] = spent) -> None:
                context.detect([given])
                times = context.timings
                spent.append((times.preprocess_ms, times.network_ms, times.postprocess_ms))

            row(f"image {width} x {height} to boxes, {name}", timed(look))
            sent, network, rows = 1e3 * np.median(spent[WARM_UP:], axis=0)
            print(f"    copy {sent:.0f}, launch to end {network:.0f}, boxes to NumPy {rows:.0f}")
    images = [np.full((576, 768, 3), level, np.uint8) for level in range(DISTINCT)]
    rate("images 768 x 576, one call after the other", ([detector(image)] for image in around(images)))
    rate("images 768 x 576, stream", detector.stream(around(images)))


def around(items: list[Any]) -> Iterator[Any]:
    """The same ones again and again."""
    return (items[number % len(items)] for number in range(MANY))


def rate(name: str, results: Iterable[object]) -> None:
    """Results a second, once the first ones have come and contexts are made."""
    begin = 0.0
    for number, _ in enumerate(results):
        if number == MANY // 5:
            begin = time.perf_counter()
    print(f"{name}: {(MANY - 1 - MANY // 5) / (time.perf_counter() - begin):,.0f} a second", flush=True)


def timed(call: Callable[[], object]) -> list[float]:
    """Microseconds of each call."""
    return host_calls.spent(call, lambda: None, (CALLS, WARM_UP))


def row(name: str, times: list[float]) -> None:
    least, median, most = np.percentile(times, [10, 50, 90])
    print(f"{name:45} {median:7.1f} ({least:.1f}, {most:.1f})", flush=True)


if __name__ == "__main__":
    main()
