"""The command ``pytrt inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from .. import engines
from ..errors import UsageError
from . import inspected
from .app import app
from .fused import FusedFacts, inspect_fused
from .model_facts import DarknetFacts, EngineFacts, ModelFacts, Nodes
from .opaque import Shapes, with_declared_dims
from .shared import loading, options, tables
from .shared.option import argument, choice, option
from .shared.results import Result

__all__ = ["inspect"]


@app.command()  # type: ignore[untyped-decorator]
def inspect(
    model: options.Model,
    weights: Annotated[Path | None, argument("[WEIGHTS]", "darknet's weights, to check that they fit.")] = None,
    nodes: Annotated[
        bool, choice("List the nodes, with the names, types and dims of their tensors.", "--nodes")
    ] = False,
    engine: Annotated[
        str | None, option("NAME", "Engine whose missing operators are listed; with --fused: the engine that fuses.")
    ] = None,
    fused: Annotated[
        bool, choice("Show which nodes the engine runs as one kernel; the network is built for it.", "--fused")
    ] = False,
    graph: Annotated[Path | None, option("FILE.svg", "Draw the network before and after, with --fused.")] = None,
    precision: options.Precision = "fp32",
    cache: options.Cache = None,
    shapes: Shapes = None,
    plugins: options.Plugins = None,
) -> Result[ModelFacts] | Result[Nodes] | Result[EngineFacts] | Result[DarknetFacts] | Result[FusedFacts]:
    """Show the inputs, outputs, layers and plugins of a model, and nodes that no engine knows, or that one engine lacks.

    Examples: pytrt inspect yolov2-voc.cfg yolov2-voc.weights

    pytrt inspect model.onnx --nodes

    pytrt inspect model.onnx --engine cpu

    pytrt inspect model.onnx --fused --graph fused.svg

    pytrt inspect detector.onnx --nodes --shape boxes=1x100x4
    """
    if fused:
        return inspect_fused(model, weights, engine or "auto", precision, cache, graph)
    if graph is not None:
        raise UsageError(f"--graph {graph} needs --fused.")
    if engine is not None:
        opened = loading.open_model(model, weights)
        unsupported = inspected.node_facts(opened, engines.unsupported_nodes(opened, engine))
        return Result(Nodes(unsupported, engine), tables.print_nodes)
    if nodes:
        return Result(
            Nodes(inspected.all_node_facts(with_declared_dims(loading.open_model(model, weights), shapes))),
            tables.print_nodes,
        )
    if model.suffix == ".cfg":
        return inspected.inspect_darknet(model, weights)
    if loading.is_engine_file(model):
        return Result(inspected.engine_facts(loading.open_engine(model), model), tables.print_engine)
    return Result(
        inspected.model_facts(with_declared_dims(loading.open_model(model, weights), shapes), str(model)),
        tables.print_model,
    )
