"""``pytrt inspect --fused``: show which nodes of a network an engine fuses into one kernel."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ..engines import Engine
from ..engines.base.arithmetic import Arithmetic
from ..engines.base.fusion import Fusion, fusion_of
from ..engines.base.fusion_chart import draw_fusion
from ..utils.atomic import check_target
from ..utils.optional import require
from .shared import loading, tables
from .shared.results import Result

__all__ = ["FusedFacts", "KernelFacts", "inspect_fused"]


@dataclass(frozen=True)
class KernelFacts:
    """A kernel and the nodes that it computes.

    Attributes:
        name: As the engine calls it.
        kind: Likewise.
        nodes: Names of the nodes.
        operators: Their operators.
    """

    name: str
    kind: str
    nodes: tuple[str, ...]
    operators: tuple[str, ...]


@dataclass(frozen=True)
class FusedFacts:
    """The kernels of an engine and their nodes.

    Attributes:
        engine: The engine's name.
        precision: The precision that the engine was built for.
        computed: In which precision its layers compute.
        nodes: How many nodes the network has.
        kernels: What computes them, in the engine's order.
        added: How many parts the engine has beside them, such as casts and changes of layout.
        without: Names of the nodes that no kernel computes: they are computed while the engine is built, or change nothing.
        file: The picture; empty where none was asked for.
    """

    engine: str
    precision: str
    computed: Arithmetic
    nodes: int
    kernels: tuple[KernelFacts, ...]
    added: int
    without: tuple[str, ...]
    file: str = ""


def inspect_fused(
    path: Path, weights: Path | None, engine: str, precision: str, cache: Path | None, graph: Path | None
) -> Result[FusedFacts]:
    """Build or load the network's engine, and list its fused kernels; draw a picture if requested."""
    target = None if graph is None else check_target(graph, "--graph", (".svg",))
    built = loading.open_engine(path, weights=weights, engine=engine, precision=precision, cache=cache, as_asked=True)
    model = built.model_without_weights if loading.is_engine_file(path) else loading.open_model(path, weights)
    fusion = fusion_of(model, built.parts(), built.model_without_weights)
    if target is not None:
        draw_fusion(fusion, target, f"{path.name} on engine {built.name}, {built.arithmetic}")
    return Result(_facts(fusion, built, target), _print)


def _facts(fusion: Fusion, engine: Engine, target: Path | None) -> FusedFacts:
    kernels = tuple(
        KernelFacts(
            kernel.name,
            kernel.kind,
            tuple(fusion.names[place] for place in kernel.nodes),
            tuple(fusion.operators[place] for place in kernel.nodes),
        )
        for kernel in fusion.computing
    )
    added = len(fusion.kernels) - len(kernels)
    without = tuple(fusion.names[place] for place in fusion.before)
    ran = engine.name, engine.precision, engine.arithmetic
    return FusedFacts(*ran, len(fusion.names), kernels, added, without, str(target or ""))


def _print(facts: FusedFacts) -> None:
    escape = require("rich.markup", extra="cli").escape
    table = require("rich.table", extra="cli").Table("kernel", "kind", "nodes")
    for kernel in facts.kernels:
        nodes = ", ".join(f"{name} ({operator})" for name, operator in zip(kernel.nodes, kernel.operators, strict=True))
        table.add_row(escape(kernel.name), escape(kernel.kind), escape(nodes))
    tables.console().print(table)
    print(f"{facts.nodes} nodes become {len(facts.kernels)} kernels on engine {facts.engine}, {facts.computed}")
    if facts.added:
        print(f"the engine added {facts.added} parts, such as changes of layout and of type")
    if facts.without:
        print(f"{len(facts.without)} nodes are computed while the engine is built, or change nothing")
    forms = Counter(" + ".join(kernel.operators) for kernel in facts.kernels if len(kernel.operators) > 1)
    for form, count in forms.most_common():
        print(f"{count:5d} x {form}")
    if facts.file:
        print(f"written: {facts.file}")
