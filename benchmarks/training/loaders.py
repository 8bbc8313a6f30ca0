"""Photos a second and ``data_time`` of each loader: with a step that uses the batches, and alone.

Each loader's first batches are compared with those of `resident` before it is timed. The step is a training step of the compact network
on a GPU; ``--step 5`` is a stand-in that takes 5 ms of the device.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytrtplugins.errors import PytrtpluginsError
from pytrtplugins.utils.numbers import FloatRange, IntList, IntRange

from .measuring import add_common, is_chosen, measure
from .photos import open_photos

CHECKED = 3  # batches that are compared
CLOSE = 3.0  # mean difference of pixels that another decoder and another filter may give
SYNC = 20  # steps that a device is given before the host waits for it
_ENDLESS = 1 << 40
_SIDES = IntRange(8, 8192)


@dataclass(frozen=True)
class Subject:
    """A loader with its options."""

    name: str
    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    exact: bool = True


@dataclass
class Row:
    """Figures of a loader; ``reason`` says why there are none.

    Fields:
        rate: Photos a second, with the step.
        step_ms: Time of a step, with what it waits.
        data_ms: What the device waits for data in a step.
        share: The same as a share of the time.
        busy: How busy each stage is, with the step.
        alone: Photos a second, without a step.
        ready_s: Seconds until the first batch.
        same: How its batches compare with those of `resident`.
    """

    name: str
    rate: float = 0.0
    step_ms: float = 0.0
    data_ms: float = 0.0
    share: float = 0.0
    busy: dict[str, float] = field(default_factory=dict)
    alone: float = 0.0
    ready_s: float = 0.0
    same: str = ""
    reason: str = ""


def subjects(workers: Sequence[int]) -> list[Subject]:
    """The rows, in the order of the table."""
    return [
        Subject("resident", "resident"),
        *(Subject(f"DataLoader, {n} workers", "dataloader", {"workers": n}) for n in workers),
        Subject("SPDL, CPU", "spdl-cpu"),
        Subject("SPDL, nvJPEG (torchvision)", "spdl-gpu", {"decoder": "torchvision"}, exact=False),
        Subject("SPDL, nvImageCodec", "spdl-gpu", {"decoder": "nvimgcodec"}, exact=False),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or write the page of a record."""
    given = _parse(arguments)
    return measure("loaders", given, arguments, lambda *known: _rows(given, *known), _line)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training loaders", description=__doc__)
    add_common(parser)
    add = parser.add_argument
    add("--data", type=Path, metavar="SHARDS", help="folder that pytrt shards make wrote; default: photos are drawn")
    add("--samples", type=IntRange(1, 10_000_000), default=2048, help="photos that are drawn (default: %(default)s)")
    add("--photo-size", type=_size, default="500x375", metavar="WxH", help="of drawn photos (default: %(default)s)")
    add("--side", type=IntRange(32, 4096), default=352, help="of stored photos, in pixels (default: %(default)s)")
    add("--batch", type=IntRange(1, 4096), default=64, help="photos a step (default: %(default)s)")
    add("--input", type=IntRange(32, 4096), default=416, help="of the network, in pixels (default: %(default)s)")
    add("--workers", type=IntList(IntRange(0, 256)), default=(0, 4, 15), help="of the DataLoader, a row each (0,4,15)")
    add(
        "--decoders",
        type=IntRange(0, 1024),
        default=0,
        help="decoding threads of SPDL (default: one a core, 8 at most)",
    )
    add("--readers", type=IntRange(1, 1024), default=8, help="reading threads of SPDL (default: %(default)s)")
    add("--ahead", type=IntRange(1, 1024), default=6, help="batches in work or ready (default: %(default)s)")
    add("--step", type=_step, default="compact", metavar="compact|MS", help="the network, or a stand-in's milliseconds")
    return parser.parse_args(arguments)


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    return _SIDES(width), _SIDES(height)


def _step(text: str) -> float | None:
    return None if text == "compact" else FloatRange(0, 60_000)(text)


def _rows(given: argparse.Namespace, device: Any, record: dict[str, Any]) -> Iterator[Row]:
    begin = time.monotonic()
    data = open_photos(given.data, given.samples, given.photo_size)
    record["photos"] = f"{data.title}; stored at {given.side} pixels; batches of {given.batch}"
    step = _make_step(given, device, data)
    record["step"] = step.title
    expected = None
    for subject in subjects(given.workers):
        if not is_chosen(given, subject.name) and expected is not None:
            continue
        if time.monotonic() - begin > given.until:
            print(f"the rest is left out: {given.until:g} s are over", file=sys.stderr)
            return
        try:
            make = _maker(given, subject, data, device)
            found = _first_batches(make)
            expected = expected or found
            if is_chosen(given, subject.name):
                yield _measure(given, subject, make, step, _compare(expected, found, subject))
        except PytrtpluginsError as error:  # a package or a GPU is missing
            yield Row(subject.name, reason=str(error).split("\n")[0])
        except Exception as error:  # a library below; the other rows are measured
            yield Row(
                subject.name, reason=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            )


def _maker(given: argparse.Namespace, subject: Subject, data: Any, device: Any) -> Callable[[], Any]:
    """What makes the loader, from step 0 on."""
    from training.loader import Options, make_loader
    from training.sampler import StepSampler

    sampler = StepSampler(len(data), given.batch, seed=0)
    options = Options(decoders=given.decoders, readers=given.readers, ahead=given.ahead, **subject.options)
    return lambda: make_loader(subject.kind, data, sampler, device, size=given.side, stop=_ENDLESS, options=options)


def _first_batches(make: Callable[[], Any]) -> list[Any]:
    with make() as loader:
        return [_on_host(loader.next()) for _ in range(CHECKED)]


def _on_host(batch: Any) -> dict[str, Any]:
    names = ("pixels", "size", "boxes", "valid")
    return {"step": batch.step, "keys": batch.keys, **{name: getattr(batch, name).cpu() for name in names}}


def _compare(expected: list[dict[str, Any]], found: list[dict[str, Any]], subject: Subject) -> str:
    """How the batches compare; what must be equal and is not ends the row."""
    import torch

    worst, mean = 0, 0.0
    for a, b in zip(expected, found, strict=True):
        for name in ("step", "keys"):
            if a[name] != b[name]:
                raise ValueError(f"{name} of step {a['step']} differ from those of resident")
        for name in ("size", "boxes", "valid"):
            if not torch.equal(a[name], b[name]):
                raise ValueError(f"{name} of step {a['step']} differ from those of resident")
        difference = (a["pixels"].int() - b["pixels"].int()).abs()
        worst, mean = max(worst, int(difference.max())), max(mean, difference.float().mean().item())
    if (subject.exact and worst) or mean > CLOSE:
        raise ValueError(f"pixels differ from those of resident: by {worst}, on average {mean:.2f}")
    return "equal" if not worst else f"mean difference {mean:.2f}, largest {worst}"


def _measure(given: argparse.Namespace, subject: Subject, make: Callable[[], Any], step: Any, same: str) -> Row:
    """The two rates of a loader: with the step, then without; `resident` is loaded once."""
    row, begin = Row(subject.name, same=same), time.monotonic()
    loader = make()
    try:
        loader.next()
        step.wait()
        row.ready_s = time.monotonic() - begin
        step.take(loader)
        lap = _timed(given, loader, step.advance, step.wait)
        row.rate = lap.steps * given.batch / lap.seconds
        row.step_ms, row.data_ms, row.share = 1e3 * lap.step_time, 1e3 * lap.data_time, lap.share
        row.busy = {stage.name: round(lap.occupancy(stage.name), 4) for stage in lap.stages}
        lap = _timed(given, loader, loader.next, step.wait)
        row.alone = lap.steps * given.batch / lap.seconds
    finally:
        loader.close()
    return row


def _timed(given: argparse.Namespace, loader: Any, advance: Callable[[], Any], wait: Callable[[], None]) -> Any:
    """A lap of ``--seconds``, after as many steps as fill the queues, twice, and are compiled in."""
    for _ in range(2 * given.ahead):
        advance()
    wait()
    loader.clock.lap()
    end, count = time.monotonic() + given.seconds, 0
    while time.monotonic() < end:
        advance()
        count += 1
        if count % SYNC == 0:  # as in the engine's loop
            wait()
    wait()
    return loader.clock.lap()


class StandIn:
    """Takes so many milliseconds of the device, and nothing else."""

    def __init__(self, milliseconds: float, device: Any) -> None:
        self.title = f"a stand-in of {milliseconds:g} ms"
        self._seconds, self._device = milliseconds / 1e3, device
        self._loader: Any = None
        self._cycles = self._calibrate() if device.type == "cuda" else 0

    def _calibrate(self) -> int:
        import torch

        trial, (begin, end) = 10_000_000, (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(2):  # the first one wakes the device up
            begin.record()
            torch.cuda._sleep(trial)
            end.record()
            end.synchronize()
        return int(trial * 1e3 * self._seconds / begin.elapsed_time(end))

    def take(self, loader: Any) -> None:
        """Use this loader from now on."""
        self._loader = loader

    def advance(self) -> None:
        """One step."""
        import torch

        self._loader.next()
        with self._loader.clock.stage("step"):
            if self._cycles:
                torch.cuda._sleep(self._cycles)
            else:
                time.sleep(self._seconds)

    def wait(self) -> None:
        """Wait for the device."""
        import torch

        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class Compact(StandIn):
    """A training step of the engine: augmentation, the compact network, its loss, the optimizer."""

    def __init__(self, given: argparse.Namespace, device: Any, data: Any) -> None:
        import torch

        from training.loop import Loop
        from training.ranks import join
        from training.schedule import Schedule
        from training.settings import Settings
        from yolov2_training.recipe import Recipe
        from yolov2_training.task import Detection

        cuda = device.type == "cuda"
        fast = {"precision": "bf16", "data_format": "NHWC", "compile": True, "cuda_graphs": True}
        settings = Settings(**fast if cuda else {})
        recipe = Recipe(steps=_ENDLESS, batch=given.batch, sizes=(given.input,))
        anchors = torch.tensor([[1.0, 1.0], [2.0, 3.0], [4.0, 3.0], [5.0, 7.0], [9.0, 9.0]])
        self._device, ranks = device, join(str(device), settings)
        self._task = Detection(recipe, data.classes, anchors, settings, device)
        self._loop = Loop(
            self._task,
            None,
            settings,
            ranks,
            Schedule(recipe.steps, recipe.learning_rate),
            optimizer=(torch.optim.AdamW, {"fused": True} if cuda else {}),
        )
        self.title = (
            f"the compact network at {given.input} pixels{', BF16, NHWC, compiled, CUDA graphs' if cuda else ''}"
        )

    def take(self, loader: Any) -> None:
        """Use this loader from now on."""
        self._loop.loader = loader
        self._task.draw_from(loader.pool)

    def advance(self) -> None:
        """One step."""
        self._loop.advance()


def _make_step(given: argparse.Namespace, device: Any, data: Any) -> Any:
    return Compact(given, device, data) if given.step is None else StandIn(given.step, device)


def _line(row: Row) -> str:
    if row.reason:
        return f"{row.name}: {row.reason}"
    return (
        f"{row.name}: {row.rate:,.0f} photos/s, {row.step_ms:.1f} ms a step, data_time {row.data_ms:.2f} ms ({row.share:.1%}); "
        f"alone {row.alone:,.0f} photos/s; {row.same}"
    )


if __name__ == "__main__":
    sys.exit(main())
