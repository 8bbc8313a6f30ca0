"""Facts that ``pytrt inspect`` finds in models, engine files and darknet's files; fields are keys of the JSON (docs/how-to/shell.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engines.base.arithmetic import Arithmetic

if TYPE_CHECKING:
    from darknet2caffe.inspect import Row

__all__ = [
    "DarknetFacts",
    "EngineFacts",
    "ModelFacts",
    "NodeFacts",
    "Nodes",
    "PluginFacts",
    "TensorFacts",
]


@dataclass(frozen=True)
class TensorFacts:
    """An input or output of a model.

    Attributes:
        side: ``input`` or ``output``.
        name: The tensor's name.
        type: Its element type.
        dims: Its dims: numbers, and names of free dims; None where the rank is unknown.
    """

    side: str
    name: str
    type: str
    dims: tuple[int | str, ...] | None


@dataclass(frozen=True)
class NodeFacts:
    """A node of a model.

    Attributes:
        name: What it is found by.
        operator: Its operator, behind the domain where that is not ONNX's.
        signature: Names, types and dims of what it reads and gives.
    """

    name: str
    operator: str
    signature: str


@dataclass(frozen=True)
class PluginFacts:
    """A plugin node.

    Attributes:
        name: The node's name.
        plugin: Namespace and name of the plugin's class.
        fields: Its fields, as text.
    """

    name: str
    plugin: str
    fields: str


@dataclass(frozen=True)
class ModelFacts:
    """An ONNX model, also one made from a darknet network.

    Attributes:
        file: The file.
        name: The graph's name.
        producer: What wrote it.
        opsets: Version of each domain.
        nodes: How many nodes it has.
        parameters: How many numbers its weights have.
        bytes: Its size.
        tensors: Its inputs and outputs.
        operators: How often each operator occurs.
        plugins: The nodes of plugins.
        beyond_onnx: How often other operators occur that are not ONNX's own.
        unknown: Nodes that no engine knows.
    """

    file: str
    name: str
    producer: str
    opsets: dict[str, int]
    nodes: int
    parameters: int
    bytes: int
    tensors: tuple[TensorFacts, ...]
    operators: dict[str, int]
    plugins: tuple[PluginFacts, ...]
    beyond_onnx: dict[str, int]
    unknown: tuple[NodeFacts, ...]


@dataclass(frozen=True)
class Nodes:
    """A list of nodes.

    Attributes:
        nodes: All nodes, or those that the engine lacks.
        engine: The engine that was asked; empty where none was.
    """

    nodes: tuple[NodeFacts, ...]
    engine: str = ""


@dataclass(frozen=True)
class EngineFacts:
    """An engine.

    Attributes:
        file: The file.
        engine: The engine's name.
        precision: The precision that it was built for.
        computed: In which precision its layers compute.
        model_digest: Of the model from which it was built.
        tensors: Its inputs and outputs.
        choices: What was decided while it was built, and how.
    """

    file: str
    engine: str
    precision: str
    computed: Arithmetic
    model_digest: str
    tensors: tuple[TensorFacts, ...]
    choices: dict[str, str]


@dataclass(frozen=True)
class DarknetFacts:
    """A darknet network.

    Attributes:
        name: The cfg's name.
        dialect: Whose darknet it is for.
        dialect_reason: Why that is assumed.
        dims: Channels, height and width of the input.
        outputs: Names of the layers that are outputs.
        layers: The layers.
        weights: What the weights' header says; empty without weights.
    """

    name: str
    dialect: str
    dialect_reason: str
    dims: tuple[int, ...]
    outputs: tuple[str, ...]
    layers: tuple[Row, ...]
    weights: str
