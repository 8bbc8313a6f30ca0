"""Photos a second of a training step on one device, in each precision, layout and way to launch it, and in other libraries' loops.

Every step draws its photos from those on the device, augments, and updates the network and its average. The losses of each row's first
steps are compared with those of FP32 before it is timed. Of the engine's own rows the record also has the parts of a step, what the
host needs to launch it, and its longest kernels. The rows that matter most come first, of both networks in turn.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pytrtplugins.errors import PytrtpluginsError
from pytrtplugins.utils.numbers import FloatRange, IntRange

from . import parts, subject
from .group import compilers, end, forget_choices
from .measuring import ROOT, add_common, is_chosen, measure
from .step_rows import Subject, subjects

NETWORKS = ("compact", "voc")
CLASSIFIERS = ("resnet50", "inception_v3", "vgg16", "alexnet", "mobilenet_v3_large")
CLOSE = {"fp32": 1e-2, "tf32": 2e-2, "bf16": 0.1, "fp16": 0.1}  # relative difference of the first losses


@dataclass
class Row:
    """Figures of a row; ``reason`` says why there are none.

    Fields:
        network: Which.
        name: Of the row.
        batch: Photos a step.
        rate: Photos a second.
        step_ms: Time of a step.
        host_ms: What the host needs to launch it.
        parts: Milliseconds of its parts.
        launches: Kernels of its parts.
        kernels: The longest ones, with their milliseconds and their number.
        memory_gb: Of the GPU.
        ready_s: Seconds until the first losses, with compiling.
        difference: Of the first losses from those of FP32.
        own: Whether it is this project's.
        settings: Of the engine.
    """

    network: str
    name: str
    batch: int = 0
    rate: float = 0.0
    step_ms: float = 0.0
    host_ms: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    launches: dict[str, float] = field(default_factory=dict)
    kernels: list[tuple[str, float, float]] = field(default_factory=list)
    memory_gb: float = 0.0
    ready_s: float = 0.0
    difference: float = 0.0
    own: bool = True
    reason: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or write the page of a record; or compile a row, for another process."""
    given = _parse(arguments)
    if given.compile_row:
        return _compile(given)
    return measure(
        "steps", given, arguments, lambda device, _: _rows(given, device), _line, batch=given.batch, input=given.input
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training steps", description=__doc__)
    add_common(parser)
    add = parser.add_argument
    add(
        "--networks",
        nargs="+",
        choices=(*NETWORKS, *CLASSIFIERS),
        default=list(NETWORKS),
        help=f"compact, voc (default: both), of YOLOv2; {', '.join(CLASSIFIERS)}, of torchvision",
    )
    add("--batch", type=IntRange(1, 4096), default=64, help="photos a step (default: %(default)s)")
    add("--input", type=IntRange(32, 4096), default=416, help="of the network, in pixels (default: %(default)s)")
    add(
        "--ahead",
        type=IntRange(0, 64),
        default=0,
        metavar="N",
        help="compile N rows at a time, in processes of their own, before they are measured (default: each when it is)",
    )
    add("--longest", type=FloatRange(1, 86_400), default=240.0, help="seconds that these have to compile (%(default)s)")
    add("--compile-row", default="", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _rows(given: argparse.Namespace, device: Any) -> Iterator[Row]:
    begin, expected = time.monotonic(), dict[Any, list[float]]()
    pairs = [
        (each, network)
        for each in subjects()
        if is_chosen(given, each.name)
        for network in given.networks
        if network in NETWORKS or each.fits_any
    ]
    for number, (each, network) in enumerate(pairs):
        if time.monotonic() - begin > given.until:
            print(f"the rest is left out: {given.until:g} s are over", file=sys.stderr)
            return
        if given.ahead and number % given.ahead == 0:
            _compile_ahead(given, pairs[number : number + given.ahead])
        batch = each.batch or given.batch
        row = Row(network, each.name, batch, own=each.peer is None, settings=each.settings)
        try:
            if (network, batch, each.sizes) not in expected:
                plain = Subject("", {"precision": "fp32"}, sizes=each.sizes, batch=batch)
                loop = _prepared(given, network, plain, device)
                expected[network, batch, each.sizes] = subject.first_losses(loop, loop.advance)
                del loop
            with _compiler(each):
                _measure(given, network, each, device, row, expected[network, batch, each.sizes])
        except PytrtpluginsError as error:  # a package or a GPU is missing
            row.reason = str(error).split("\n")[0]
        except Exception as error:  # of a library below; the other rows are measured
            row.reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        yield row


def _compile_ahead(given: argparse.Namespace, pairs: Sequence[tuple[Subject, str]]) -> None:
    """Compile rows at the same time, so that what the compiler makes lies on the disk when they are measured.

    What fails here fails again where it is measured, and is told there.
    """
    pairs = [(each, network) for each, network in pairs if each.settings.get("compile")]
    begin = time.monotonic()
    running = []
    for each, network in pairs:
        options = ["--compile-row", each.name, "--networks", network, "--batch", given.batch, "--input", given.input]
        line = [sys.executable, "-m", "benchmarks.training", "steps", *map(str, options), "--device", given.device]
        running.append(
            subprocess.Popen(line, env=compilers(len(pairs)), cwd=ROOT, stdout=sys.stderr, stderr=sys.stderr)
        )
    try:
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, given.longest - (time.monotonic() - begin)))
    finally:
        end(running)
    forget_choices()
    print(f"{len(pairs)} rows compiled in {time.monotonic() - begin:.0f} s", file=sys.stderr)


def _compile(given: argparse.Namespace) -> int:
    """Do one step of a row, uncaptured: what the compiler makes for it stays on the disk."""
    import torch

    (each,) = (each for each in subjects() if each.name == given.compile_row)
    settings = {name: value for name, value in each.settings.items() if name != "cuda_graphs"}
    with _compiler(each):
        for more in each.sizes:
            once = Subject(each.name, settings, changes=each.changes, sizes=(more,), batch=each.batch)
            loop = _prepared(given, given.networks[0], once, torch.device(given.device), search=False)
            loop.advance()
    return 0


def _compiler(each: Subject) -> Any:
    """A context with a row's options of the compiler."""
    from torch._inductor import config

    return config.patch(each.compiler)


def _prepared(given: argparse.Namespace, network: str, each: Subject, device: Any, *, search: bool = True) -> Any:
    """The loop of a row; what the rows before it left in memory is gone. ``search``: cuDNN tries its algorithms."""
    import torch

    from training.ranks import Ranks
    from training.settings import Settings

    Settings(**each.settings).check(device.type, 1, joined=False)
    torch.backends.cudnn.benchmark = search
    torch._dynamo.reset()  # it compiles a function only so many times
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    sizes = [given.input + more for more in each.sizes]
    ranks = Ranks(0, 1, device, False)
    loop = subject.make_loop(network, each.batch or given.batch, sizes, ranks, **each.settings)
    torch._dynamo.config.suppress_errors = False  # what does not compile must not be timed as compiled
    for change in each.changes:
        change(loop.task.network)
    return loop


def _measure(
    given: argparse.Namespace, network: str, each: Subject, device: Any, row: Row, expected: list[float]
) -> None:
    """Compare the losses of a row, and time it."""
    import torch

    precision, wait, begin = each.settings.get("precision", "fp32"), subject.wait_for(device), time.monotonic()
    loop = _prepared(given, network, each, device)
    advance = loop.advance if each.peer is None else each.peer(loop, precision)
    losses = subject.first_losses(loop, advance)
    row.ready_s = time.monotonic() - begin
    row.difference = subject.largest_difference(losses, expected)
    if not row.difference < CLOSE[precision]:
        raise ValueError(f"its first losses differ from those of FP32 by {row.difference:.2g}")
    steps, seconds = subject.timed(advance, wait, given.seconds)
    loop.check()
    row.rate, row.step_ms = steps * row.batch / seconds, 1e3 * seconds / steps
    if device.type == "cuda":
        row.memory_gb = torch.cuda.max_memory_allocated(device) / 1e9
    row.host_ms = parts.host_time(advance, wait)
    if each.peer is None:
        row.parts = parts.parts_of(loop, wait)
    try:
        row.kernels = parts.kernels_of(advance, wait, device)
        if each.peer is None and network in NETWORKS:
            row.launches = parts.launches_of(loop, wait, device)
    except Exception as error:  # such as where the GPU's counters may not be read: the figures stay
        print(f"{row.name}: {type(error).__name__}: {error}", file=sys.stderr)


def _line(row: Row) -> str:
    if row.reason:
        return f"{row.network}, {row.name}: {row.reason}"
    found = ", ".join(f"{name} {ms:.2f}" for name, ms in row.parts.items())
    return (
        f"{row.network}, {row.name}: {row.rate:,.0f} photos/s, {row.step_ms:.2f} ms a step ({found}); "
        f"the host needs {row.host_ms:.2f} ms; {row.memory_gb:.1f} GB"
    )
