"""Photos a second of a training step on one device, in each precision, layout and way to launch it, and in other libraries' loops.

Every step draws its photos from those on the device, augments, and updates the network and its average. The losses of each row's first
steps are compared with those of FP32 before it is timed. Of the engine's own rows the record also has the parts of a step, what the
host needs to launch it, and its longest kernels. The rows that matter most come first, of both networks in turn.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pytrtplugins.errors import PytrtpluginsError
from pytrtplugins.utils.numbers import Whole
from pytrtplugins.utils.optional import require

from . import padding, page, parts, subject

NETWORKS = ("compact", "voc")
CLOSE = {"fp32": 1e-2, "tf32": 2e-2, "bf16": 0.1, "fp16": 0.1}  # relative difference of the first losses


@dataclass(frozen=True)
class Subject:
    """A row.

    Fields:
        name: On the page.
        settings: Of the engine.
        peer: Another library's loop.
        change: Is done to the network before.
        sizes: Of the network's input, in pixels, beside the size that was asked for; one is drawn a step.
    """

    name: str
    settings: dict[str, Any]
    peer: Callable[[Any, str], Callable[[], None]] | None = None
    change: Callable[[Any], None] | None = None
    sizes: tuple[int, ...] = (0,)


@dataclass
class Row:
    """Figures of a row; ``reason`` says why there are none."""

    network: str
    name: str
    rate: float = 0.0
    step_ms: float = 0.0
    host_ms: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    kernels: list[tuple[str, float, float]] = field(default_factory=list)
    memory_gb: float = 0.0
    ready_s: float = 0.0
    difference: float = 0.0
    own: bool = True
    reason: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


def subjects() -> list[Subject]:
    """The rows, in the order in which they are measured."""
    nhwc = {"data_format": "NHWC"}
    bf16, compiled, graphs = {**nhwc, "precision": "bf16"}, {"compile": True}, {"cuda_graphs": True}
    best = "BF16, NHWC, compiled, CUDA graphs"
    return [
        Subject(best, bf16 | compiled | graphs),
        Subject("BF16, NHWC, compiled", bf16 | compiled),
        Subject("BF16, NHWC, CUDA graphs", bf16 | graphs),
        Subject("BF16, NHWC", bf16),
        Subject("BF16, NHWC, compiled, two sizes", bf16 | compiled, sizes=(-32, 32)),
        Subject("FP16, NHWC, compiled, CUDA graphs", {**nhwc, "precision": "fp16"} | compiled | graphs),
        Subject("Lightning Fabric, BF16, NHWC, compiled", bf16 | compiled, peer=fabric),
        Subject("accelerate, BF16, NHWC, compiled", bf16 | compiled, peer=accelerate),
        Subject("TF32, NHWC", {**nhwc, "precision": "tf32"}),
        Subject("FP16, NHWC", {**nhwc, "precision": "fp16"}),
        Subject("BF16, NCHW", {**bf16, "data_format": "NCHW"}),
        Subject("BF16, NHWC, batch norm of separate operations", bf16, change=separate_batch_norm),
        Subject("Lightning Fabric, BF16, NHWC", bf16, peer=fabric),
        Subject("accelerate, BF16, NHWC", bf16, peer=accelerate),
        Subject("FP32, NHWC", nhwc),
        Subject("FP32, NCHW", {"data_format": "NCHW"}),
        Subject(f"{best}, first convolution of 8 channels", bf16 | compiled | graphs, change=padding.pad_first),
        Subject(
            f"{best}, first convolution as a matrix product", bf16 | compiled | graphs, change=padding.unfold_first
        ),
        Subject(f"{best}, last convolution of 8n channels", bf16 | compiled | graphs, change=padding.pad_last),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or write the page of a record."""
    given = _parse(arguments)
    return page.measure(
        "steps",
        given,
        arguments,
        lambda device, _: _rows(given, device),
        _line,
        _write,
        batch=given.batch,
        input=given.input,
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training steps", description=__doc__)
    page.add_common(parser)
    add = parser.add_argument
    add("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="compact, voc (default: both)")
    add("--batch", type=Whole(1, 4096), default=64, help="photos a step (default: %(default)s)")
    add("--input", type=Whole(32, 4096), default=416, help="of the network, in pixels (default: %(default)s)")
    return parser.parse_args(arguments)


def _rows(given: argparse.Namespace, device: Any) -> Iterator[Row]:
    begin, expected = time.monotonic(), dict[Any, list[float]]()
    for each in subjects():
        if given.k.lower() not in each.name.lower():
            continue
        for network in given.networks:
            if time.monotonic() - begin > given.until:
                print(f"the rest is left out: {given.until:g} s are over", file=sys.stderr)
                return
            row = Row(network, each.name, own=each.peer is None, settings=each.settings)
            try:
                if (network, each.sizes) not in expected:
                    plain = Subject("", {"precision": "fp32"}, sizes=each.sizes)
                    loop = _prepared(given, network, plain, device)
                    expected[network, each.sizes] = subject.first_losses(loop, loop.advance)
                    del loop
                _measure(given, network, each, device, row, expected[network, each.sizes])
            except PytrtpluginsError as error:  # a package or a GPU is missing
                row.reason = str(error).split("\n")[0]
            except Exception as error:  # of a library below; the other rows are measured
                row.reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            yield row


def _prepared(given: argparse.Namespace, network: str, each: Subject, device: Any) -> Any:
    """The loop of a row; what the rows before it left in memory is gone."""
    import torch

    from training.ranks import Ranks
    from training.settings import Settings

    Settings(**each.settings).check(device.type, 1, joined=False)
    torch.backends.cudnn.benchmark = True
    torch._dynamo.reset()  # it compiles a function only so many times
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    sizes = [given.input + more for more in each.sizes]
    loop = subject.make_loop(network, given.batch, sizes, Ranks(0, 1, device, False), **each.settings)
    torch._dynamo.config.suppress_errors = False  # what does not compile must not be timed as compiled
    if each.change is not None:
        each.change(loop.task.network)
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
    row.rate, row.step_ms = steps * given.batch / seconds, 1e3 * seconds / steps
    if device.type == "cuda":
        row.memory_gb = torch.cuda.max_memory_allocated(device) / 1e9
    row.host_ms = parts.host_time(advance, wait)
    if each.peer is None:
        row.parts = parts.parts_of(loop, wait)
    with suppress(RuntimeError):  # where the GPU's counters may not be read
        row.kernels = parts.kernels_of(advance, wait, device)


# --- other ways to do the same ---------------------------------------------------------------------------------------------


def separate_batch_norm(network: Any) -> None:
    """Put batch norms in a network that are made of elementwise operations and means, as before they were fused."""
    import torch

    class Separate(torch.nn.BatchNorm2d):
        def forward(self, x: Any) -> Any:
            wide = x.float()
            mean, variance = wide.mean((0, 2, 3)), wide.var((0, 2, 3), unbiased=False)
            with torch.no_grad():
                count = x.numel() / x.shape[1]
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * count / (count - 1), self.momentum)
            scale = (self.weight * (variance + self.eps).rsqrt())[:, None, None]
            return ((wide - mean[:, None, None]) * scale + self.bias[:, None, None]).to(x.dtype)

    for module in network.modules():
        if type(module) is torch.nn.BatchNorm2d:
            module.__class__ = Separate


def fabric(loop: Any, precision: str) -> Callable[[], None]:
    """The same step in Lightning Fabric's words."""
    kind = "lightning_fabric"
    library = require(kind, extra="", package="lightning-fabric", feature="this row")
    names = {"bf16": "bf16-mixed", "fp16": "16-mixed", "fp32": "32-true"}
    place = "cuda" if loop.ranks.device.type == "cuda" else "cpu"
    run = library.Fabric(accelerator=place, devices=1, precision=names[precision])
    module, optimizer = run.setup(loop.task.module, loop.optimizer)

    def step(inputs: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        loss, figures = module(*inputs)
        run.backward(loss)
        norm = run.clip_gradients(module, optimizer, max_norm=loop.clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss, figures, norm

    return lambda: _as_loop(loop, step)


def accelerate(loop: Any, precision: str) -> Callable[[], None]:
    """The same step in accelerate's words."""
    library = require("accelerate", extra="", feature="this row")
    names = {"bf16": "bf16", "fp16": "fp16", "fp32": "no"}
    run = library.Accelerator(mixed_precision=names[precision], cpu=loop.ranks.device.type != "cuda")
    module, optimizer = run.prepare(loop.task.module, loop.optimizer)

    def step(inputs: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        loss, figures = module(*inputs)
        run.backward(loss)
        norm = run.clip_grad_norm_(module.parameters(), loop.clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss, figures, norm

    return lambda: _as_loop(loop, step)


def _as_loop(loop: Any, step: Callable[[tuple[Any, ...]], tuple[Any, Any, Any]]) -> None:
    """What surrounds a step in the engine's loop: drawing, the rate, the average, the figures."""
    import torch

    shape, inputs = loop.task.inputs(loop.loader.next(), loop.step)
    loop._sow(loop.step)
    for group in loop.optimizer.param_groups:
        group["lr"] = loop.schedule.rate(loop.step)
    loss, figures, norm = step(loop.task.draw(shape, *inputs))
    loop.average.update(loop.step)
    loop._measure(torch.cat([loss.detach()[None], figures.detach()]), norm)
    loop.step += 1


# --- the page --------------------------------------------------------------------------------------------------------------


def _line(row: Row) -> str:
    if row.reason:
        return f"{row.network}, {row.name}: {row.reason}"
    return (
        f"{row.network}, {row.name}: {row.rate:,.0f} photos/s, {row.step_ms:.2f} ms a step ({_parts(row.parts)}); "
        f"the host needs {row.host_ms:.2f} ms; {row.memory_gb:.1f} GB"
    )


def _parts(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in found.items()) or "–"


def table(rows: page.Rows) -> str:
    """The rows of each network, fastest first, and the longest kernels of the fastest."""
    lines = [
        "| network | step | photos/s | ms | its parts, ms | host ms | memory GB | ready s | first losses against FP32 |",
        "|---|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    good = sorted((row for row in rows if not row["reason"]), key=lambda each: (each["network"], -each["rate"]))
    for row in good:
        lines.append(
            f"| {row['network']} | {row['name']} | {row['rate']:,.0f} | {row['step_ms']:.2f} | {_parts(row['parts'])} "
            f"| {row['host_ms']:.2f} | {row['memory_gb']:.1f} | {row['ready_s']:.0f} | {row['difference']:.1e} |"
        )
    fastest = {row["network"]: row for row in reversed(good) if row["own"] and row["kernels"]}
    return "\n\n".join([page.listed(lines, rows), *map(_kernels, fastest.values())])


def _kernels(row: dict[str, Any]) -> str:
    lines = [
        f"The longest kernels of {row['network']}, {row['name']}:",
        "",
        "| kernel | ms a step | launches a step |",
        "|---|---:|---:|",
    ]
    return "\n".join(
        [*lines, *(f"| `{name[:90]}` | {spent:.3f} | {count:g} |" for name, spent, count in row["kernels"])]
    )


def _write(given: argparse.Namespace, record: dict[str, Any]) -> int:
    bars = [
        page.Bar(f"{row['network']}, {row['name']}", row["rate"], f"{row['rate']:,.0f}", row["own"])
        for row in record["rows"]
        if not row["reason"]
    ]
    return page.write(given, record, table, bars, "photos/s")
