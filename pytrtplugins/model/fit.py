"""Checks that names, tensors and plugins fit together, with the errors if they do not."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..errors import DimsError, ModelError, UsageError
from ..plugin.base import Plugin
from ..tensor import Dims
from ..utils.listing import count_text
from ..utils.optional import onnx
from ..validation.dataflow import subgraphs, walk
from .proto import node_name

__all__ = [
    "check_functions",
    "check_tensor",
    "checked_plugin",
    "chosen_outputs",
    "count_outputs",
    "find_node",
    "node_type",
]


def node_type(node: onnx.NodeProto) -> str:
    """Return the operator's name, with its domain unless it is ONNX's own: ``"acme::ChannelShuffle"``."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def find_node(model: onnx.ModelProto, name: str) -> int:
    """Return the index of the node with a name, or that writes the tensor of that name.

    Raises:
        ModelError: there is none, or there are several.
    """
    nodes = model.graph.node
    matches = [index for index, node in enumerate(nodes) if name and name in (node.name, *node.output)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        others = ", ".join(repr(item) for index in matches for item in nodes[index].output if item not in ("", name))
        raise ModelError(
            f"{len(matches)} nodes have the name {name!r}.\nDo: name one by a tensor that it writes: {others}",
            name=name,
        )
    container_of = {
        inner.name: node_name(node) for node in nodes for body in subgraphs(node) for inner in walk(body.node)
    }
    container_of |= {inner.name: function.name for function in model.functions for inner in walk(function.node)}
    if name and name in container_of:
        raise ModelError(
            f"node {name!r} is within {container_of[name]!r}; only nodes of the main graph can be replaced.\n"
            "Do: onnx.inliner.inline_local_functions(model) first, if that is a function",
            name=name,
        )
    same_type = [node_name(node) for node in nodes if name in (node.op_type, node_type(node))]
    raise _unknown_name_error("node", name, [node_name(node) for node in nodes], same_type)


def check_tensor(tensors: Collection[str], name: str) -> None:
    """Require that the graph has a tensor."""
    if name not in tensors:
        raise _unknown_name_error("tensor", name, list(tensors), [])


def checked_plugin(where: str, plugin: object) -> Plugin:
    """Check that an argument is a plugin, and return it."""
    if isinstance(plugin, Plugin):
        return plugin
    is_class = isinstance(plugin, type) and issubclass(plugin, Plugin)
    also = f", or fields='from node' beside the class {plugin.__name__}" if is_class else ""  # type: ignore[attr-defined]
    raise UsageError(f"{where}: expected a plugin, such as Reorg(stride=2){also}, found {plugin!r}", found=plugin)


def count_outputs(
    where: str,
    plugin: Plugin,
    inputs: Sequence[str],
    tensors: Mapping[str, Dims | None],
    with_constants: Sequence[str] = (),
) -> int | None:
    """Return the number of a plugin's outputs for these inputs; None if their dims are unknown.

    Args:
        where: The node, for messages.
        plugin: The plugin.
        inputs: Names of the tensors that it is to read.
        tensors: Dims of the tensors that there are.
        with_constants: The inputs that it could read if constants counted, for messages.

    Raises:
        DimsError: it does not accept the number of inputs, or their dims.
        ModelError: there is no such tensor.
    """
    for name in inputs:
        check_tensor(tensors, name)
    expected = plugin.num_inputs
    if expected is not None and len(inputs) != expected:
        is_count_with_constants = len(with_constants) == expected
        advice = (
            f"inputs={list(with_constants)}) to read constants too"
            if is_count_with_constants
            else f"inputs=[...]) with {count_text(expected, 'name')}"
        )
        raise DimsError(
            f"{where}: {plugin!r} takes {count_text(expected, 'input')}, and there are {len(inputs)}, constants aside: "
            f"{', '.join(map(repr, inputs)) or 'none'}.\n"
            f"Do: graph.replace(..., {advice} (in a shell: --inputs {','.join(with_constants) if is_count_with_constants else 'A,B'})",
            expected=expected,
            found=len(inputs),
        )
    dims = [known for name in inputs if (known := tensors[name]) is not None]
    if len(dims) < len(inputs):
        return None
    try:
        return len(plugin.all_output_dims(dims))
    except DimsError as error:
        raise DimsError(f"{where}: {error}", **error.facts) from error


def chosen_outputs(
    where: str,
    node: onnx.NodeProto,
    outputs: Sequence[str] | None,
    count: int | None,
    read: Collection[str],
    tensors: Collection[str],
) -> list[str]:
    """Return the names of the outputs of a plugin that replaces a node.

    Args:
        where: The node, for messages.
        node: The node.
        outputs: What the caller wants; None: the node's own, less those at the end that nothing reads.
        count: How many the plugin gives; None where that is not known.
        read: All tensors that are read, or outputs of the network.
        tensors: All tensors.

    Raises:
        ModelError: the number is wrong, a tensor that is read would be lost, or one would be written twice.
    """
    names = list(node.output) if outputs is None else list(outputs)
    while outputs is None and len(names) > (count or 1) and names[-1] not in read:
        names.pop()
    if count is not None and len(names) != count:
        raise ModelError(
            f"{where}: the plugin gives {count_text(count, 'output')}, and there are {len(names)} to write: "
            f"{', '.join(map(repr, names))}.\nDo: graph.replace(..., outputs=[...]) with {count_text(count, 'name')}; "
            "a new name is a new tensor",
            expected=count,
            found=len(names),
        )
    lost_names = [name for name in node.output if name in read and name not in names]
    unusable_names = [
        name for name in names if not name or names.count(name) > 1 or (name in tensors and name not in node.output)
    ]
    if lost_names:
        raise ModelError(f"{where}: {lost_names[0]!r} is read, and the plugin would not write it", name=lost_names[0])
    if unusable_names:
        raise ModelError(
            f"{where}: {unusable_names[0]!r} is not a free name for an output of the plugin", name=unusable_names[0]
        )
    return names


def check_functions(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto], new: onnx.NodeProto) -> None:
    """Require that no other node calls a local function with the plugin's name, since it would become the plugin's body."""
    key = (new.domain, new.op_type)
    if all((function.domain, function.name) != key for function in model.functions):
        return
    inner = [node for function in model.functions for node in function.node]
    users = [node for node in walk([*nodes, *inner]) if (node.domain, node.op_type) == key and node is not new]
    if users:
        raise ModelError(
            f"{node_type(new)} is also a local function of the model, which node {node_name(users[0])!r} uses; it would "
            f"become the body of node {new.name!r} too.\nDo: model = onnx.inliner.inline_local_functions(model) first",
            name=node_name(users[0]),
        )


def _unknown_name_error(what: str, name: str, known: Sequence[str], same_type: Sequence[str]) -> ModelError:
    close = list(dict.fromkeys([*same_type, *difflib.get_close_matches(name, known, n=3)]))[:5]
    near = f"Near: {', '.join(map(repr, close))}." if close else f"The first are {', '.join(map(repr, known[:3]))}."
    return ModelError(
        f"none of the graph's {len(known)} {what}s has the name {name!r}.\n{near}\n"
        f"Do: print(*graph.{what}s, sep='\\n'), or pytrt inspect MODEL --nodes",
        name=name,
        near=close,
    )
