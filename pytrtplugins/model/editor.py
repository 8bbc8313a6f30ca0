"""The editable network `Graph`: replace nodes by plugins, insert plugins after tensors, extract parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelError
from ..plugin.base import Plugin
from ..plugin.onnx_node import as_node
from ..tensor import Dims
from ..utils.optional import onnx
from ..utils.repeated import keep_items, set_items
from ..validation import validated
from ..validation.dataflow import constants, remove_dead_nodes, rename_reads, sort_nodes, tensors_read, walk
from .decompose import add_functions
from .extract import extract
from .files import read_onnx, write_onnx
from .fit import check_functions, check_tensor, checked_plugin, chosen_outputs, count_outputs, find_node, node_type
from .ir import unused_name
from .node_fields import plugin_from_node
from .proto import copy_of, info_dims, node_name
from .shapes import dims_text, import_domain, infer_after_change, infer_without_weights, known_infos, store

__all__ = ["Graph", "NodeInfo", "load_onnx"]


@dataclass(frozen=True)
class NodeInfo:
    """A node of a graph.

    Attributes:
        name: What `Graph.replace` finds it by: its name, or its first output where it has none.
        type: Operator, with its domain unless it is ONNX's own: ``"Conv"``, ``"acme::ChannelShuffle"``.
        inputs: Names of the tensors that it reads; empty where an optional one is left out.
        outputs: Names of the tensors that it writes.
    """

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name!r} ({self.type})"


def load_onnx(model: str | Path | onnx.ModelProto) -> Graph:
    """Open an ONNX network for editing.

    Args:
        model: An ONNX file, with its weights inside or beside it, or a model, which is not changed.

    Raises:
        FileNotFoundError: there is no such file.
        ModelError: it is not an ONNX model, it is broken, its weights cannot be read, or its shapes contradict each other.
        DimsError: a plugin in it refuses the dims of its inputs.
    """
    if isinstance(model, (str, Path)):
        loaded, external_data = read_onnx(model)
        return Graph(loaded, external_data=external_data)
    return Graph(model)


class Graph:
    """An ONNX network whose nodes can be replaced by plugins.

    Each change is checked and the shapes are inferred again before it is made; one that is refused leaves the graph as
    it was. Operators and plugins that nobody knows may stand in the graph: the dims behind them are what the file says.

    Nodes are those of the main graph. What the body of an If, Loop or Scan reads from around it counts as read by that
    node, and is renamed there too; nodes within bodies and within local functions cannot be replaced, and the error says
    so.

    Args:
        model: The network; it is copied.
        external_data: Save the weights in a file of their own, whatever their size.

    Example:
        >>> graph = load_onnx("model.onnx")  # doctest: +SKIP
        >>> graph.replace("Unsupported_12", ptp.layers.Reorg(stride=2))  # doctest: +SKIP
        >>> graph.save("edited.onnx")  # doctest: +SKIP
    """

    def __init__(self, model: onnx.ModelProto, *, external_data: bool = False) -> None:
        self._model = copy_of(validated(model))
        self._external_data = external_data
        store(self._model, known_infos(infer_without_weights(self._model)))

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def model(self) -> onnx.ModelProto:
        """The edited model itself, not a copy: later changes show in it too."""
        return self._model

    @property
    def external_data(self) -> bool:
        """Whether `save` always writes the weights to a separate file."""
        return self._external_data

    @property
    def nodes(self) -> tuple[NodeInfo, ...]:
        """The nodes in topological order."""
        return tuple(
            NodeInfo(node_name(node), node_type(node), tuple(node.input), tuple(node.output))
            for node in self._model.graph.node
        )

    @property
    def tensors(self) -> dict[str, Dims | None]:
        """Name → dims of each tensor: inputs, constants, then outputs of nodes; None where they are unknown."""
        graph, infos = self._model.graph, known_infos(self._model)
        weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        names = [*(info.name for info in graph.input), *weights, *(n for node in graph.node for n in node.output if n)]
        return {n: weights[n] if n in weights else info_dims(infos[n]) if n in infos else None for n in names}

    def save(self, path: str | Path, *, functions: bool = False) -> tuple[Path, ...]:
        """Write the model to a file, atomically.

        Args:
            path: The file. The weights go into ``PATH.DIGEST.data`` if they were in a file of their own, and above 2 GiB.
            functions: Give each plugin node its decomposition as a local function of the file. onnxruntime then runs the file without
                this package; TensorRT 10.7 and newer takes a registered plugin, and the function where there is none. Plugins without a
                decomposition, and nodes within branches and loops, stay as they are.

        Returns:
            The files written.
        """
        model = add_functions(self._model) if functions else self._model
        return write_onnx(model, path, external_data=self._external_data)

    def extract(self, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None) -> Graph:
        """Return the subgraph between tensors as a graph of its own: the nodes between inputs and outputs, and their constants.

        The graph stays as it is. Types and dims come along, free dims with their names.

        Args:
            inputs: Names of tensors where the part begins; by default the network's inputs that it needs.
            outputs: Names of tensors where it ends; by default the network's outputs.

        Raises:
            ModelError: there is no such tensor (the message has near ones), the outputs need more than these inputs or are not
                computed from one of them, or the type of a tensor is not known.
        """
        return Graph(extract(self._model, inputs, outputs), external_data=self._external_data)

    def __repr__(self) -> str:
        """Return the number of nodes, and inputs and outputs with their dims."""
        graph, tensors = self._model.graph, self.tensors
        sides = (
            ", ".join(f"{i.name} {dims_text(tensors[i.name])}" for i in side) for side in (graph.input, graph.output)
        )
        return f"<Graph of {len(graph.node)} nodes: {' -> '.join(sides)}>"

    # -- editing -----------------------------------------------------------------------------------------------------

    def replace(
        self,
        name: str,
        plugin: Plugin | type[Plugin],
        *,
        fields: str | Mapping[str, str] | None = None,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
    ) -> Plugin:
        """Replace a node by a plugin.

        What fed only that node goes with it, constants and nodes alike: to replace several nodes, replace the last and
        give the first one's ``inputs``.

        Args:
            name: The node's name, or one of its outputs' where names are missing or not unique.
            plugin: The layer; its class where ``fields`` says what becomes of the node's own values.
            fields: ``"from node"``: the node's attributes and constant inputs become the fields of their names; or a mapping of
                fields to names of attributes and inputs, which leaves out the others.
            inputs: Tensors that it reads; by default the node's inputs that are not constants, in their order.
            outputs: Tensors that it writes: the node's, and new ones where the plugin has more; by default the node's, less
                those at the end that nothing reads.

        Returns:
            The plugin, with the fields that it got.

        Raises:
            ModelError: there is no such node or tensor (the message has near ones), the name is not unique, the outputs do
                not fit, or a node behind cannot take the new shape.
            DimsError: the plugin, or another one behind it, does not accept its inputs.
            FieldError: a field finds no value in the node, or a value no field; the message lists what the node has.
        """
        graph, tensors = self._model.graph, self.tensors
        index = find_node(self._model, name)
        nodes = [copy_of(node) for node in graph.node]
        node = nodes[index]
        where = f"node {name!r} ({node_type(node)})"
        if fields is not None:
            plugin = plugin_from_node(self._model, node, plugin, fields, inputs or ())
        present = [] if inputs else [item for item in node.input if item]
        if inputs is None:
            constant_names = constants(graph)
            inputs = [item for item in present if item not in constant_names]
        names_read = {info.name for info in graph.output}.union(*map(tensors_read, nodes))
        plugin = checked_plugin(where, plugin)
        count = count_outputs(where, plugin, inputs, tensors, present)
        written_names = chosen_outputs(where, node, outputs, count, names_read, tensors)
        unique = node.name and [item.name for item in nodes].count(node.name) == 1
        nodes[index] = as_node(
            plugin, inputs, written_names, node.name if unique else self._unused_name(plugin.plugin_key().name)
        )
        self._commit(nodes, nodes[index], {item: item for item in written_names}, loose=tensors_read(node))
        return plugin

    def insert_after(self, tensor: str, plugin: Plugin) -> str:
        """Insert a plugin after a tensor: nodes that read the tensor then read the plugin's output.

        An output of the network keeps its name, which is then the plugin's output's.

        Args:
            tensor: An input, a constant, or what a node writes.
            plugin: A layer with one input and one output.

        Returns:
            Name of the plugin's output.

        Raises:
            ModelError: there is no such tensor (the message has near ones), the plugin has several outputs, or a node behind
                cannot take the new shape.
            DimsError: the plugin, or another one behind it, does not accept its input.
        """
        graph, where = self._model.graph, f"after {tensor!r}"
        check_tensor(self.tensors, tensor)
        count = count_outputs(where, checked_plugin(where, plugin), [tensor], self.tensors)
        if count not in (None, 1):
            raise ModelError(f"{where}: {plugin!r} has {count} outputs; only one can stand for {tensor!r}", found=count)
        nodes = [copy_of(node) for node in graph.node]
        producer = next((index for index, node in enumerate(nodes) if tensor in node.output), -1)
        type_name = plugin.plugin_key().name
        source, result = tensor, self._unused_name(f"{tensor}/{type_name}")
        if tensor in {info.name for info in graph.output}:
            if producer < 0:
                raise ModelError(f"{where}: it is an input and an output of the network; nothing fits between")
            source, result = self._unused_name(f"{tensor}/before_{type_name}"), tensor
            nodes[producer].output[:] = [source if name == tensor else name for name in nodes[producer].output]
        else:
            for node in nodes:
                rename_reads(node, tensor, result)
        new = as_node(plugin, [source], [result], self._unused_name(type_name))
        nodes.insert(producer + 1, new)
        self._commit(nodes, new, {result: tensor}, renamed={} if source == tensor else {source: tensor})
        return result

    # -- inside ------------------------------------------------------------------------------------------------------

    def _unused_name(self, name: str) -> str:
        graph = self._model.graph
        taken = set(self.tensors).union(*((node.name, *tensors_read(node), *node.output) for node in walk(graph.node)))
        return unused_name(name, taken, first=1)

    def _commit(
        self,
        nodes: Sequence[onnx.NodeProto],
        new: onnx.NodeProto,
        replaces: Mapping[str, str],
        *,
        renamed: Mapping[str, str] | None = None,
        loose: Collection[str] = (),
    ) -> None:
        """Check a change of the nodes and their new shapes, then write it into the model.

        Args:
            nodes: The nodes after the change.
            new: The new node, one of them.
            replaces: Each output of the new node → the tensor whose readers now read it.
            renamed: New name → old name of a tensor.
            loose: What a removed node read.
        """
        model, graph = self._model, self._model.graph
        outputs = {info.name for info in graph.output}
        nodes, cycle_nodes = sort_nodes(remove_dead_nodes(nodes, loose, outputs))
        if cycle_nodes:
            raise ModelError(f"node {new.name!r}: its inputs {list(new.input)} are computed from what it writes")
        check_functions(model, nodes, new)
        infos = infer_after_change(model, nodes, new, replaces, renamed or {})
        needed = outputs.union(*map(tensors_read, nodes))
        no_longer_read = {name for node in graph.node for name in tensors_read(node)} - needed
        domains = {node.domain for node in walk(graph.node)} - {node.domain for node in walk(nodes)}
        set_items(graph.node, nodes)
        weights = {tensor.name for tensor in graph.initializer} & no_longer_read
        keep_items(graph.initializer, lambda tensor: tensor.name not in weights)
        keep_items(graph.input, lambda info: info.name not in weights)
        keep_items(model.functions, lambda function: (function.domain, function.name) != (new.domain, new.op_type))
        domains -= {function.domain for function in model.functions}
        keep_items(model.opset_import, lambda item: item.domain not in domains or not item.domain)
        import_domain(model, new.domain)
        store(model, infos)
