"""Print results of ``pytrt`` as tables."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...utils.listing import first_texts
from ...utils.optional import require
from ...utils.terminal import is_quiet
from .results import to_json

if TYPE_CHECKING:
    from rich.console import Console

    from ...bench import Benchmark
    from ...doctor import Report
    from ..facts import Built, Devices, Evaluated, Offers, WrittenFile
    from ..model_facts import EngineFacts, ModelFacts, NodeFacts, Nodes, TensorFacts
    from ..run_facts import ArrayRun, Detected
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
    console_: Console = require("rich.console", extra="cli").Console(stderr=error, width=width, highlight=False)
    return console_


def print_error(kind: str, message: str) -> None:
    """An error: its kind in red, then the message as it is."""
    console(error=True).print(f"[bold red]{escape(kind)}[/]: {escape(message)}", soft_wrap=True)


def print_defaults(config: Defaults) -> None:
    """Print one row per default of an option."""
    if not config.file:
        console().print("No pytrt.toml here or in a folder above: every option has its own default.", soft_wrap=True)
        return
    console().print(f"[bold]{escape(config.file)}[/]", soft_wrap=True)
    rows = [
        (f"pytrt {default.command}", f"--{default.option}", json.dumps(to_json(default.value)), str(default.line or ""))
        for default in config.defaults
    ]
    print_table(("command", "option", "value", "line"), [tuple(map(escape, row)) for row in rows])


def print_report(report: Report) -> None:
    """Print the findings of `pytrt doctor`: machine, extras of the package, engines."""
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


def print_benchmark(benchmark: Benchmark) -> None:
    """Print one row per engine: latency, throughput, memory, and difference of outputs from the first engine's."""
    rows, others = [], []
    for row in benchmark.rows:
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
    dims = ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in benchmark.inputs.items())
    console().print(f"{escape(dims)}; {benchmark.machine['processor']}; load {benchmark.load:.1f}", soft_wrap=True)
    rate = f"runs/s, {benchmark.slots} at a time"
    print_table(("", "p50 ms", "p90 ms", "p99 ms", "speed", rate, "memory", "build s", "error", "runs"), rows)
    for row in benchmark.rows:
        if row.computed is not None and str(row.computed) != row.precision:
            print(f"{row.name}: {row.computed}")
    if others:
        print_table(("not timed", "reason"), others)


def print_devices(devices: Devices) -> None:
    """Print one row per engine: whether it can be used on this machine, else why not."""
    rows = []
    for engine in devices.engines:
        can = "[green]yes[/]" if not engine.reason else "[red]no[/]"
        can = "[green]yes, auto[/]" if engine.name == devices.auto else can
        can = "builds only" if engine.builds and not engine.available else can
        rows.append((engine.name, can, escape(engine.reason or engine.details)))
    print_table(("engine", "available", "details"), rows)


def print_model(model: ModelFacts) -> None:
    """Print inputs, outputs, operators and plugins of an ONNX model."""
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
            [tuple(map(escape, (plugin.name, plugin.plugin, plugin.fields))) for plugin in model.plugins],
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


def print_nodes(nodes: Nodes) -> None:
    """Print one row per node: name, operator, inputs and outputs."""
    if not nodes.engine:
        _print_nodes("node", nodes.nodes)
    elif not nodes.nodes:
        console().print(f"Engine {escape(nodes.engine)} has all operators of this model.", soft_wrap=True)
    else:
        _print_nodes(f"node that engine {escape(nodes.engine)} lacks", nodes.nodes)
        counts = Counter(node.operator for node in nodes.nodes)
        listed = _counts(dict(counts.most_common()))
        console().print(f"Engine {escape(nodes.engine)} lacks {escape(listed)}", soft_wrap=True)
        console().print(
            f"Do: pytrt run MODEL --engine {escape(nodes.engine)}; its error shows a plugin class to start from",
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
        layers = first_texts(row.layers, 3, last=", and ")
        time = f"{row.microseconds:.2f}" if row.microseconds else ""
        rows.append((escape(layers), escape(row.problem), escape(row.kernel), time, str(row.rivals)))
    if rows:
        print_table(("layers", "convolution", "kernel", "µs", "rivals"), rows)
    print(f"built in {built.seconds:.1f} s, {built.bytes:,} bytes")


def print_file(written: WrittenFile) -> None:
    """Print the path and size of a written file."""
    print(f"{written.file}: {written.bytes:,} bytes")


def print_offers(offers: Offers) -> None:
    """Print one row per model that can be downloaded."""
    rows = []
    for offer in offers.models:
        size = f"{sum(file.bytes for file in offer.model.files) / 1e6:.1f} MB"
        rows.append((offer.model.name, offer.model.about, offer.model.licence, size, offer.file or "–"))
    print_table(("model", "what it does", "licence", "size", "here"), [tuple(map(escape, row)) for row in rows])


def print_ran(run: ArrayRun) -> None:
    """Print one row per output: dims, type and some figures; times go to standard error."""
    rows = []
    for each in run.outputs:
        figures = ["" if value is None else f"{value:.6g}" for value in (each.min, each.max, each.mean)]
        rows.append((escape(each.name), each.type, _dims(each.dims), *figures))
    print_table(("output", "type", "dims", "min", "max", "mean"), rows)
    if run.median_ms is not None:
        time = f"{run.median_ms:.2f} ms" if run.runs == 1 else f"median {run.median_ms:.2f} ms of {run.runs} runs"
    else:
        time = f"{run.runs_per_second:.1f} runs a second of {run.runs} runs, {run.slots} at a time"
    if not is_quiet():
        print(f"engine {run.engine}, {run.computed}: {time}", file=sys.stderr)


def print_detected(detected: Detected) -> None:
    """Print written files, times and the engine; detections of each image are printed as they come."""
    print(
        *(f"saved {path}" for path in detected.saved),
        detected.summary,
        f"engine {detected.engine}, {detected.computed}",
        sep="\n",
    )


def print_evaluation(evaluated: Evaluated, name: str) -> None:
    """Print one row per class, and one for all."""
    result = evaluated.figures
    print(f"{name}: engine {evaluated.engine}, {result.computed}")
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
    rows = [(tensor.side, escape(tensor.name), tensor.type, _dims(tensor.dims)) for tensor in tensors]
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
