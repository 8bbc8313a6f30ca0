"""The commands ``pytrt replace``, ``extract`` and ``embed``: insert a plugin, extract a part, write plugins as functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

from ..errors import FieldError, UsageError
from ..model import Graph, read_onnx
from ..model.proto import node_name
from ..plugin.base import Plugin
from ..plugin.onnx_node import is_plugin_node
from ..utils.atomic import check_target
from ..utils.listing import first_names
from ..validation.dataflow import walk
from .app import app
from .facts import Edited
from .inspected import model_facts
from .model_facts import TensorFacts
from .shared import option_values, options
from .shared.fields import open_plugin
from .shared.groups import NetworkOptions, grouped
from .shared.option import argument, choice, option
from .shared.results import Result

__all__ = ["embed", "extract", "replace"]

OutputModel = Annotated[Path, option("FILE.onnx", "Write the model to this file.", "--output", "-o")]


@app.command("replace")  # type: ignore[untyped-decorator]
@grouped
def replace(
    network: NetworkOptions,
    node: Annotated[
        str,
        argument("NODE", "Name of the node, or of a tensor that it writes; `pytrt inspect MODEL --nodes` lists them."),
    ],
    plugin: options.PluginOrInstance,
    output: OutputModel,
    fields: options.Fields = None,
    from_node: Annotated[
        bool,
        choice("Take the fields from the node's attributes and constant inputs with the same names.", "--from-node"),
    ] = False,
    named: Annotated[
        list[str] | None,
        option(
            "FIELD=NAME",
            "Take this field from the node's attribute or constant input NAME; other fields keep their defaults; may be repeated.",
            "--field",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None, option("A,B", "Tensors that the plugin reads; default: the node's inputs without constants.")
    ] = None,
    outputs: Annotated[list[str] | None, option("C,D", "Tensors that the plugin writes; default: the node's.")] = None,
) -> Result[Edited]:
    """Replace a node by a plugin, and write the new network.

    What fed only that node goes with it. To replace several nodes by one plugin, name the last one here, and what the first one
    reads with --inputs. Whoever runs the result names the plugin's file: pytrt run OUT.onnx --plugins mylayers.py.

    Examples: pytrt replace model.onnx /head/Shuffle mylayers.py:ChannelShuffle --set groups=4 -o edited.onnx

    pytrt replace model.onnx /head/PRelu mylayers:PRelu --from-node -o edited.onnx

    pytrt replace model.onnx /head/PRelu mylayers:PRelu --field slope=onnx::PRelu_31 -o edited.onnx

    pytrt replace model.onnx Reshape_14 mylayers:ChannelShuffle --inputs a -o edited.onnx
    """
    check_target(output)
    used_options = [
        option for option, value in (("--from-node", from_node), ("--field", named), ("--set", fields)) if value
    ]
    if len(used_options) > 1:
        raise UsageError(f"{' and '.join(used_options)} both set the fields.\nDo: leave out all but one of them")
    new_plugin = open_plugin(plugin, fields)
    graph = network.open_graph()
    tensor_names, count = graph.tensors, len(graph.nodes)
    from_values = "from node" if from_node else option_values.read_pairs(named, "--field", "FIELD=NAME") or None
    layer = graph.replace(
        node,
        new_plugin if from_values or isinstance(new_plugin, Plugin) else _without_values(new_plugin),
        fields=from_values,
        inputs=_split_names(inputs, tensor_names),
        outputs=_split_names(outputs, tensor_names),
    )
    graph.save(output)
    summary = f"{node!r} is {layer!r} now"
    command = f"pytrt run {output} --plugins {plugin.rpartition(':')[0]}"
    edited = Edited(str(output), len(graph.nodes), count, _tensors(graph), summary, command)
    return Result(edited, lambda edited: print(f"{edited.file}: {edited.done}\nDo: {edited.next}"))


@app.command("extract")  # type: ignore[untyped-decorator]
@grouped
def extract(
    network: NetworkOptions,
    output: OutputModel,
    inputs: Annotated[
        list[str] | None, option("A,B", "Tensors where the extracted part begins; default: the network's inputs.")
    ] = None,
    outputs: Annotated[
        list[str] | None, option("C", "Tensors where the extracted part ends; default: the network's outputs.")
    ] = None,
) -> Result[Edited]:
    """Write the part of a network between tensors as a separate model, with its weights and shapes.

    It cuts at tensors, not at nodes. Use it to try one layer alone, to drop what comes before or after, or to find the layer where
    numbers go wrong.
    `pytrt inspect MODEL --nodes` lists the names of tensors.

    Examples: pytrt extract model.onnx --inputs /stem/Relu_output_0 --outputs /head/Shuffle_output_0 -o part.onnx

    pytrt extract detector.onnx --outputs features -o backbone.onnx
    """
    check_target(output)
    if not (inputs or outputs):
        raise UsageError(
            f"name --inputs, --outputs or both, to say which part of {network.model} to extract.\n"
            f"Do: pytrt extract {network.model} --inputs A,B --outputs C -o {output}; "
            f"`pytrt inspect {network.model} --nodes` lists the tensors"
        )
    graph = network.open_graph()
    tensor_names = graph.tensors
    part = graph.extract(_split_names(inputs, tensor_names), _split_names(outputs, tensor_names))
    part.save(output)
    summary = f"{len(part.nodes)} of {len(graph.nodes)} nodes"
    return Result(Edited(str(output), len(part.nodes), len(graph.nodes), _tensors(part), summary), _print_part)


@app.command("embed")  # type: ignore[untyped-decorator]
@grouped
def embed(
    network: NetworkOptions,
    output: OutputModel,
) -> Result[Edited]:
    """Write a network with the body of each plugin inside, so that onnxruntime runs the file without this package.

    Each plugin node stays, and calls a local function of the file: the decomposition of its class. TensorRT 10.7 and newer takes a
    plugin that is registered, and the function where there is none. Plugins without the method decompose stay without a body.

    Examples: pytrt embed model.onnx --plugins mylayers.py -o everywhere.onnx

    pytrt embed yolov2-voc.cfg -o yolov2-voc.onnx
    """
    check_target(output)
    graph = network.open_graph()
    graph.save(output, functions=True)
    nodes = [node for node in walk(graph.model.graph.node) if is_plugin_node(node)]
    functions = {(function.domain, function.name) for function in read_onnx(output)[0].functions}
    without = [node_name(node) for node in nodes if (node.domain, node.op_type) not in functions]
    summary = f"{len(nodes) - len(without)} of {len(nodes)} plugin nodes with a function body"
    if without:
        summary += f"; without: {first_names(without)}"
    edited = Edited(str(output), len(graph.nodes), len(graph.nodes), _tensors(graph), summary)
    return Result(edited, lambda edited: print(f"{edited.file}: {edited.done}"))


def _without_values(cls: type[Plugin]) -> Plugin:
    """An instance of a plugin class with default field values."""
    try:
        return cls()
    except FieldError as error:
        raise FieldError(
            f"{error}\nDo: --from-node, --field FIELD=NAME, or --set FIELD=VALUE", **error.facts
        ) from error


def _print_part(edited: Edited) -> None:
    print(f"{edited.file}: {edited.done}")
    for tensor in edited.tensors:
        print(f"  {tensor.side:<6} {tensor.name} {' x '.join(map(str, tensor.dims or ())) or 'of unknown dims'}")


def _tensors(graph: Graph) -> tuple[TensorFacts, ...]:
    """The inputs and outputs of a network."""
    return model_facts(graph.model, "").tensors


def _split_names(texts: Sequence[str] | None, tensor_names: Collection[str]) -> list[str] | None:
    """Split names of tensors, given in one word with commas or in several words."""
    if not texts:
        return None
    return [name for text in texts for name in ([text] if text in tensor_names else text.split(","))]
