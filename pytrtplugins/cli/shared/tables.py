"""What ``pytrt`` prints."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...utils.optional import require
from ...utils.terminal import is_quiet
from .results import to_json

if TYPE_CHECKING:
    from rich.console import Console

    from ...bench import Benchmark
    from ...doctor import Report
    from ..facts import Built, Devices, Evaluated, Offers, WrittenFile
    from ..model_facts import EngineFacts, ModelFacts, NodeFacts, Nodes, TensorFacts
    from ..run_facts import Detected, Ran
    from .config import Defaults

__all__ = [
    "console",
    "escape",
    "print_benchmark",
    "print_built",
    "print_defaults",
    "print_detected",
    "print_devices",
    "print_engine",
    "print_error",
    "print_evaluation",
    "print_file",
    "print_model",
    "print_nodes",
    "print_offers",
    "print_ran",
    "print_report",
    "print_table",
    "print_texts",
]


def console(*, error: bool = False) -> Console:
    """A rich console; as wide as needed where the output is not a terminal."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else 160
    made: Console = require("rich.console", extra="cli").Console(stderr=error, width=width, highlight=False)
    return made


def print_error(kind: str, message: str) -> None:
    """An error: its kind in red, then the message as it is."""
    console(error=True).print(f"[bold red]{escape(kind)}[/]: {escape(message)}", soft_wrap=True)


def print_defaults(found: Defaults) -> None:
    """One row per default of an option."""
    if not found.file:
        console().print("No pytrt.toml here or in a folder above: every option has its own default.", soft_wrap=True)
        return
    console().print(f"[bold]{escape(found.file)}[/]", soft_wrap=True)
    rows = [
        (f"pytrt {each.command}", f"--{each.option}", json.dumps(to_json(each.value)), str(each.line or ""))
        for each in found.defaults
    ]
    print_table(("command", "option", "value", "line"), [tuple(map(escape, row)) for row in rows])


def print_report(report: Report) -> None:
    """What `pytrt doctor` found: the machine, the package's extras, the engines."""
    print_table(("", "here"), [(name, escape(text)) for name, text in report.machine.items()])
    rows = []
    for extra in report.extras:
        state = "[yellow]missing: " + ", ".join(extra.missing) + "[/]" if extra.missing else "[green]installed[/]"
        here = ", ".join(f"{name} {version}" for name, version in extra.installed)
        rows.append((extra.name, extra.purpose, state, escape(here), escape(extra.command)))
    print_table(("extra", "for", "packages", "here", "Do"), rows)
    engines = []
    for engine in report.engines:
        works = f"[green]right[/]; built in {engine.build_s:.2f} s, {engine.run_us:.0f} µs a run"
        if engine.failure:
            works = f"[bold red]fails[/]: {escape(engine.failure)}"
        elif engine.builds and engine.build_s:
            works = f"[green]built[/] in {engine.build_s:.2f} s; runs elsewhere"
        elif engine.reason or not engine.run_us:
            works = "–"
        can = "[yellow]builds only[/]" if engine.builds else "[yellow]no[/]" if engine.reason else "[green]yes[/]"
        engines.append((engine.name, can, works, escape(engine.reason or engine.details)))
    print_table(("engine", "available", "a small network", "details"), engines)


def print_benchmark(found: Benchmark) -> None:
    """One row per engine: latency, throughput, memory, and how far its outputs are from the first one's."""
    rows, others = [], []
    for row in found.rows:
        if row.reason:
            others.append((escape(row.name), escape(row.reason)))
            continue
        memory = f"{row.host_mib:.0f} MiB" + (f", GPU {row.gpu_mib:.0f} MiB" if row.gpu_mib else "")
        times = [f"{time:.3f}" for time in (row.p50_ms, row.p90_ms, row.p99_ms)]
        measured = (
            f"{row.speed:.2f}",
            f"{row.rate:.1f}",
            memory,
            f"{row.build_s:.2f}",
            f"{row.error:.1e}",
            str(row.runs),
        )
        rows.append((escape(row.name), *times, *measured))
    dims = ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in found.inputs.items())
    console().print(f"{escape(dims)}; {found.machine['processor']}; load {found.load:.1f}", soft_wrap=True)
    rate = f"runs/s, {found.slots} at a time"
    print_table(("", "p50 ms", "p90 ms", "p99 ms", "speed", rate, "memory", "build s", "error", "runs"), rows)
    for row in found.rows:
        if row.computed is not None and str(row.computed) != row.precision:
            print(f"{row.name}: {row.computed}")
    if others:
        print_table(("not timed", "reason"), others)


def print_devices(found: Devices) -> None:
    """One row per engine: whether it can be used here, and why not."""
    rows = []
    for engine in found.engines:
        can = "[green]yes[/]" if not engine.reason else "[red]no[/]"
        can = "[green]yes, auto[/]" if engine.name == found.auto else can
        can = "builds only" if engine.builds and not engine.available else can
        rows.append((engine.name, can, escape(engine.reason or engine.details)))
    print_table(("engine", "available", "details"), rows)


def print_model(model: ModelFacts) -> None:
    """Inputs, outputs, operators and plugins of an ONNX model."""
    out = console()
    out.print(
        f"[bold]{escape(model.file)}[/]: {escape(model.name)}{f', by {escape(model.producer)}' if model.producer else ''}",
        soft_wrap=True,
    )
    opsets = ", ".join(f"{domain} {version}" for domain, version in model.opsets.items())
    sizes = f"{model.nodes} nodes, {model.parameters:,} parameters, {model.bytes:,} bytes"
    out.print(f"opsets: {escape(opsets)}; {sizes}", soft_wrap=True)
    _print_tensors(model.tensors)
    out.print(f"operators: {escape(_counts(model.operators))}", soft_wrap=True)
    if model.plugins:
        print_table(
            ("plugin node", "class", "fields"),
            [tuple(map(escape, (each.name, each.plugin, each.fields))) for each in model.plugins],
        )
    if model.beyond_onnx:
        out.print(
            f"not ONNX's own: {escape(_counts(model.beyond_onnx))}; pytrt inspect MODEL --engine NAME asks an engine for them",
            soft_wrap=True,
        )
    if model.unknown:
        _print_nodes("unknown node", model.unknown)
        out.print(
            "No engine knows these operators: the error of pytrt run shows a plugin class to start from.\n"
            "They stay as they are in pytrt calibrate, quantize and convert; --shape says the dims of what they give.",
            soft_wrap=True,
        )


def print_nodes(found: Nodes) -> None:
    """One row per node: what it is found by, its operator, and what it reads and gives."""
    if not found.engine:
        _print_nodes("node", found.nodes)
    elif not found.nodes:
        console().print(f"Engine {escape(found.engine)} has all operators of this model.", soft_wrap=True)
    else:
        _print_nodes(f"node that engine {escape(found.engine)} lacks", found.nodes)
        counts = Counter(node.operator for node in found.nodes)
        listed = _counts(dict(counts.most_common()))
        console().print(f"Engine {escape(found.engine)} lacks {escape(listed)}", soft_wrap=True)
        console().print(
            f"Do: pytrt run MODEL --engine {escape(found.engine)}; its error shows a plugin class to start from",
            soft_wrap=True,
        )


def print_engine(engine: EngineFacts) -> None:
    """Precision, inputs and outputs of an engine."""
    console().print(
        f"[bold]{escape(engine.file)}[/]: engine {escape(engine.engine)}, {escape(str(engine.computed))}, model {engine.model_digest[:8]}",
        soft_wrap=True,
    )
    _print_tensors(engine.tensors)
    for about, choice in engine.choices.items():
        name = "precision chosen" if about == "int8" else about  # whose values begin with int8 or float32
        console().print(f"{escape(name)}: {escape(choice)}", soft_wrap=True)


def print_built(built: Built) -> None:
    """An engine that was built, and on engine cuda its kernels: one row per convolution that differs."""
    print_engine(built.engine)
    rows = []
    for row in built.kernels:
        layers = [*row.layers[:3], *([f"and {len(row.layers) - 3} more"] if row.layers[3:] else [])]
        time = f"{row.microseconds:.2f}" if row.microseconds else ""
        rows.append((escape(", ".join(layers)), escape(row.problem), escape(row.kernel), time, str(row.rivals)))
    if rows:
        print_table(("layers", "convolution", "kernel", "µs", "rivals"), rows)
    print(f"built in {built.seconds:.1f} s, {built.bytes:,} bytes")


def print_file(found: WrittenFile) -> None:
    """A file that was written."""
    print(f"{found.file}: {found.bytes:,} bytes")


def print_offers(found: Offers) -> None:
    """One row per model that can be fetched."""
    rows = []
    for each in found.models:
        size = f"{sum(file.bytes for file in each.model.files) / 1e6:.1f} MB"
        rows.append((each.model.name, each.model.about, each.model.licence, size, each.file or "–"))
    print_table(("model", "what it does", "licence", "size", "here"), [tuple(map(escape, row)) for row in rows])


def print_ran(found: Ran) -> None:
    """One row per output: dims, type and a few figures; how long runs took goes to standard error."""
    rows = []
    for each in found.outputs:
        figures = ["" if value is None else f"{value:.6g}" for value in (each.min, each.max, each.mean)]
        rows.append((escape(each.name), each.type, _dims(each.dims), *figures))
    print_table(("output", "type", "dims", "min", "max", "mean"), rows)
    if found.median_ms is not None:
        time = (
            f"{found.median_ms:.2f} ms" if found.runs == 1 else f"median {found.median_ms:.2f} ms of {found.runs} runs"
        )
    else:
        time = f"{found.runs_per_second:.1f} runs a second of {found.runs} runs, {found.slots} at a time"
    if not is_quiet():
        print(f"engine {found.engine}, {found.computed}: {time}", file=sys.stderr)


def print_detected(found: Detected) -> None:
    """What was written, how long it took and what ran; what was found on each image is printed as it comes."""
    print(
        *(f"saved {each}" for each in found.saved), found.summary, f"engine {found.engine}, {found.computed}", sep="\n"
    )


def print_evaluation(found: Evaluated, name: str) -> None:
    """One row per class, one for all."""
    result = found.figures
    print(f"{name}: engine {found.engine}, {result.computed}")
    print(result.table())
    print(f"{result.images} images in {result.seconds:.1f} s")
    if result.ignored:
        print(f"not known to the detector, left out: {', '.join(result.ignored)}")


def print_texts(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """A table whose texts are shown as they are."""
    print_table(map(escape, columns), [tuple(map(escape, row)) for row in rows])


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Rows below the names of columns; texts of users are to be escaped."""
    table = require("rich.table", extra="cli").Table(box=require("rich.box", extra="cli").SIMPLE)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def _print_tensors(tensors: Iterable[TensorFacts]) -> None:
    rows = [(each.side, escape(each.name), each.type, _dims(each.dims)) for each in tensors]
    print_table(("", "name", "type", "dims"), rows)


def _print_nodes(title: str, nodes: Iterable[NodeFacts]) -> None:
    rows = [tuple(map(escape, (node.name, node.operator, node.signature))) for node in nodes]
    print_table((title, "operator", "reads → gives"), rows)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in counts.items())


def _dims(dims: Iterable[object] | None) -> str:
    return "any rank" if dims is None else escape(" x ".join(str(dim) for dim in dims))


def escape(text: str) -> str:
    """A text as rich prints it unchanged."""
    return str(require("rich.markup", extra="cli").escape(text))
