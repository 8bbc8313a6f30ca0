"""What ``pytrt`` prints."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import PytrtpluginsError
from ..model.decompose import infer_shapes
from ..model.fit import node_type
from ..model.proto import node_name, numpy_type
from ..model.skeleton import nodes_beyond_onnx, signature, unknown_nodes
from ..plugin.onnx_node import is_plugin_node, node_attributes
from ..utils.optional import require
from ..validation.dataflow import given_inputs, walk

if TYPE_CHECKING:
    import onnx
    from rich.console import Console

    from ..bench import Benchmark
    from ..doctor import Report
    from ..engines.base.engine import Engine
    from ..engines.base.types import Availability
    from ..engines.cuda.conv.selector import LayerKernel
    from ..models import Evaluation
    from ..tensor import Array

__all__ = [
    "console",
    "print_benchmark",
    "print_devices",
    "print_engine",
    "print_error",
    "print_evaluation",
    "print_kernels",
    "print_model",
    "print_nodes",
    "print_outputs",
    "print_report",
    "print_unsupported",
]


def console(*, error: bool = False) -> Console:
    """A rich console; as wide as needed where the output is not a terminal."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else 160
    made: Console = require("rich.console", extra="cli").Console(stderr=error, width=width, highlight=False)
    return made


def print_error(kind: str, message: str) -> None:
    """An error: its kind in red, then the message as it is."""
    escape = require("rich.markup", extra="cli").escape
    console(error=True).print(f"[bold red]{escape(kind)}[/]: {escape(message)}", soft_wrap=True)


def print_devices(engines: Iterable[Availability], auto: str) -> None:
    """One row per engine: whether it can be used here, and why not; ``auto`` is the one that ``auto`` takes."""
    rows = []
    for engine in engines:
        can = ("[green]yes, auto[/]" if engine.name == auto else "[green]yes[/]") if engine.available else "[red]no[/]"
        rows.append((engine.name, can, _escape(engine.reason or engine.details)))
    _print_table(("engine", "available", "details"), rows)


def print_report(report: Report) -> None:
    """What `pytrt doctor` found: the machine, the package's extras, the engines."""
    _print_table(("", "here"), [(name, _escape(text)) for name, text in report.machine.items()])
    rows = []
    for extra in report.extras:
        state = "[yellow]missing: " + ", ".join(extra.missing) + "[/]" if extra.missing else "[green]installed[/]"
        here = ", ".join(f"{name} {version}" for name, version in extra.installed)
        rows.append((extra.name, extra.purpose, state, _escape(here), _escape(extra.command)))
    _print_table(("extra", "for", "packages", "here", "Do"), rows)
    engines = []
    for engine in report.engines:
        works = f"[green]right[/]; built in {engine.build_s:.2f} s, {engine.run_us:.0f} µs a run"
        if engine.failure:
            works = f"[bold red]fails[/]: {_escape(engine.failure)}"
        elif engine.reason or not engine.run_us:
            works = "–"
        can = "[yellow]no[/]" if engine.reason else "[green]yes[/]"
        engines.append((engine.name, can, works, _escape(engine.reason or engine.details)))
    _print_table(("engine", "available", "a small network", "details"), engines)


def print_benchmark(found: Benchmark) -> None:
    """One row per engine: latency, throughput, memory, and how far its outputs are from the first one's."""
    rows, others = [], []
    for row in found.rows:
        if row.reason:
            others.append((_escape(row.name), _escape(row.reason)))
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
        rows.append((_escape(row.name), *times, *measured))
    dims = ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in found.inputs.items())
    console().print(f"{_escape(dims)}; {found.machine['processor']}; load {found.load:.1f}", soft_wrap=True)
    rate = f"runs/s, {found.slots} at a time"
    _print_table(("", "p50 ms", "p90 ms", "p99 ms", "speed", rate, "memory", "build s", "error", "runs"), rows)
    if others:
        _print_table(("not timed", "reason"), others)


def print_model(model: onnx.ModelProto, name: str) -> None:
    """Inputs, outputs, operators and plugins of an ONNX model."""
    graph = model.graph
    out = console()
    out.print(
        f"[bold]{_escape(name)}[/]: {_escape(graph.name)}, by {_escape(model.producer_name or 'unknown')}",
        soft_wrap=True,
    )
    opsets = ", ".join(f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in model.opset_import)
    weights = sum(int(np.prod(tensor.dims)) for tensor in graph.initializer)
    out.print(
        f"opsets: {opsets}; {len(graph.node)} nodes, {weights:,} parameters, {model.ByteSize():,} bytes", soft_wrap=True
    )
    rows = [("input", value.name, *_type(value)) for value in given_inputs(graph)]
    rows += [("output", value.name, *_type(value)) for value in graph.output]
    _print_table(("", "name", "type", "dims"), rows)
    counts = Counter(node.op_type if not node.domain else f"{node.domain}.{node.op_type}" for node in graph.node)
    out.print("operators: " + ", ".join(f"{kind} {count}" for kind, count in counts.most_common()), soft_wrap=True)
    plugins = [
        (node.name, f"{node.domain}.{node.op_type}", _fields(node)) for node in graph.node if is_plugin_node(node)
    ]
    if plugins:
        _print_table(("plugin node", "class", "fields"), plugins)
    unknown = unknown_nodes(model)
    if beyond := Counter(map(node_type, nodes_beyond_onnx(model))) - Counter(map(node_type, unknown)):
        kinds = ", ".join(f"{kind} {count}" for kind, count in beyond.most_common())
        out.print(
            f"not ONNX's own: {_escape(kinds)}; pytrt inspect MODEL --engine NAME asks an engine for them",
            soft_wrap=True,
        )
    if unknown:
        _print_lacking("unknown node", model, unknown)
        out.print("No engine knows these: pytrt run ends with a plugin class to begin with.", soft_wrap=True)


def print_unsupported(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], engine: str) -> None:
    """One row per node whose operator an engine lacks, and how many nodes each operator has."""
    if not nodes:
        console().print(f"Engine {_escape(engine)} has all operators of this model.", soft_wrap=True)
        return
    _print_lacking(f"node that engine {engine} lacks", model, nodes)
    counts = Counter(map(node_type, nodes)).most_common()
    listed = ", ".join(f"{kind} {count}" for kind, count in counts)
    console().print(f"Engine {_escape(engine)} lacks {_escape(listed)}", soft_wrap=True)
    console().print(
        f"Do: pytrt run MODEL --engine {_escape(engine)}, which ends with a plugin class to begin with", soft_wrap=True
    )


def _print_lacking(title: str, model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> None:
    try:
        typed = infer_shapes(model)
    except PytrtpluginsError:
        typed = model
    twins = {id(node): twin for node, twin in zip(walk(model.graph.node), walk(typed.graph.node), strict=False)}
    found = [
        (node_name(node), f"{node.domain}.{node.op_type}".lstrip("."), signature(typed, twins.get(id(node), node)))
        for node in nodes
    ]
    _print_table((title, "operator", "reads → gives"), [tuple(map(_escape, row)) for row in found])


def print_nodes(model: onnx.ModelProto) -> None:
    """One row per node: what it is found by, its operator, and what it reads and gives."""
    with contextlib.suppress(PytrtpluginsError):
        model = infer_shapes(model)
    rows = [(node_name(node), node_type(node), signature(model, node)) for node in model.graph.node]
    _print_table(("node", "operator", "reads → gives"), [tuple(map(_escape, row)) for row in rows])


def print_engine(engine: Engine, name: str) -> None:
    """Precision, inputs and outputs of an engine."""
    console().print(
        f"[bold]{_escape(name)}[/]: engine {_escape(engine.name)}, {engine.precision}, model {engine.model_digest[:8]}",
        soft_wrap=True,
    )
    rows = [("input", desc.name, str(desc.dtype), _dims(desc.dims)) for desc in engine.inputs]
    rows += [("output", desc.name, str(desc.dtype), _dims(desc.dims)) for desc in engine.outputs]
    _print_table(("", "name", "type", "dims"), rows)
    for about, choice in engine.choices.items():
        console().print(f"{_escape(about)}: {_escape(choice)}", soft_wrap=True)


def print_kernels(kernels: Iterable[LayerKernel]) -> None:
    """One row per convolution that differs: its layers, the kernel that was chosen, its time, and how many it beat."""
    rows = []
    for row in kernels:
        choice, layers = row.choice, [*row.layers[:3], *([f"and {len(row.layers) - 3} more"] if row.layers[3:] else [])]
        time = f"{choice.microseconds:.2f}" if choice.microseconds else ""
        rows.append((_escape(", ".join(layers)), _escape(row.problem), _escape(choice.title), time, str(choice.rivals)))
    _print_table(("layers", "convolution", "kernel", "µs", "rivals"), rows)


def print_outputs(outputs: Mapping[str, Array]) -> None:
    """One row per array: dims, type and a few figures."""
    rows = []
    for name, array in outputs.items():
        values = np.asarray(array, np.float64)
        figures = [f"{function(values):.6g}" for function in (np.min, np.max, np.mean)] if values.size else ["", "", ""]
        rows.append((name, str(array.dtype), _dims(array.shape), *figures))
    _print_table(("output", "type", "dims", "min", "max", "mean"), rows)


def print_evaluation(result: Evaluation) -> None:
    """One row per class, one for all."""
    print(result.table())
    print(f"{result.images} images in {result.seconds:.1f} s")
    if result.ignored:
        print(f"not known to the detector, left out: {', '.join(result.ignored)}")


def _print_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    table = require("rich.table", extra="cli").Table(box=require("rich.box", extra="cli").SIMPLE)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def _fields(node: onnx.NodeProto) -> str:
    hidden = ("plugin_namespace", "plugin_version")
    values = {key: value for key, value in node_attributes(node).items() if key not in hidden}
    return _escape(", ".join(f"{key}={_short(value)}" for key, value in values.items()))


def _short(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"array{value.shape}"
    if isinstance(value, list):
        shown = ", ".join(f"{item:.6g}" if isinstance(item, float) else str(item) for item in value[:10])
        return f"({shown}{', ...' if len(value) > 10 else ''})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _type(value: onnx.ValueInfoProto) -> tuple[str, str]:
    tensor = value.type.tensor_type
    dims = " x ".join(dim.dim_param or str(dim.dim_value) for dim in tensor.shape.dim)
    return numpy_type(tensor.elem_type).name, _escape(dims)


def _dims(dims: Iterable[object]) -> str:
    return _escape(" x ".join(str(dim) for dim in dims))


def _escape(text: str) -> str:
    return str(require("rich.markup", extra="cli").escape(text))
