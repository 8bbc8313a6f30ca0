"""Find the nodes that cannot be planned, because their dims are data-dependent, and the nodes after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....errors import BuildError, DimsError
from ....model.ir import array_of, constant, dims_of, dtype_of, names_of, operand
from ....model.proto import node_name
from ....plugin.onnx_node import is_plugin_node
from ....tensor import evaluate_dims
from ....utils.optional import ir, onnx
from ..lower.data_dependent import CONTROL_FLOW, SIZED, values_read_by
from ..lower.rewrite import DOMAIN
from ..operators import HOST_INPUTS, OPS, unsupported_reason
from ..operators.attributes import operator_attributes

__all__ = ["Tail", "check_operator", "check_operators", "check_types", "outer_reads", "unplannable_nodes"]

_FUSED = ("Attention", "Conv")
"""Fused nodes that mean more than operators of ONNX's that are called alike."""
_OWN = ("Attention", "PaddedNonZero", "PaddedUnique", "Patches", "Recurrent", "SqueezeExcite", "Suppress", "VolumePool")
"""Operators of this engine's domain that have kernels and no function of arrays."""


@dataclass(frozen=True)
class Tail:
    """Nodes that run one by one after all steps, with the dims that their inputs have then.

    Attributes:
        nodes: In order.
        reads: The tensors that they read and do not make → where in the plan each is: a tensor or a constant.
        outputs: The network's outputs that they give, by name.
        version: Of ONNX's operators.
        requested: Plugin → the form that the user asks for.
    """

    nodes: tuple[ir.Node, ...]
    reads: Mapping[ir.Value, str]
    outputs: Mapping[str, ir.Value]
    version: int
    requested: Mapping[str, str]


def unplannable_nodes(graph: ir.Graph, bindings: Mapping[str, int]) -> list[ir.Node]:
    """Find the nodes that cannot be planned: If, Loop, Scan, nodes whose dims are unknown or only declared, and all nodes after these.

    Args:
        graph: Of a lowered model; all that is known before the run was computed.
        bindings: Sizes of the free dims.
    """
    nodes: list[ir.Node] = []
    late: set[ir.Value] = set()
    for node in graph:
        control = node.op_type in CONTROL_FLOW and not node.domain
        has_known_dims = all(
            _has_known_dims(value, bindings) for value in node.outputs if value.name
        ) and not _is_sized_by_values(node)
        if control or not has_known_dims or not late.isdisjoint(values_read_by(node)):
            nodes.append(node)
            late.update(node.outputs)
    return nodes


def _is_sized_by_values(node: ir.Node) -> bool:
    """Whether a node's output dims are computed in the run, so that dims declared in the file are not reliable."""
    if node.domain or node.op_type not in SIZED or all(constant(value) is not None for value in node.outputs):
        return False
    sizes = (operand(node, place) for place in HOST_INPUTS.get(node.op_type, ()))
    return any(value is not None and constant(value) is None for value in sizes)


def _has_known_dims(value: ir.Value, bindings: Mapping[str, int]) -> bool:
    if constant(value) is not None:
        return True
    dims = dims_of(value)
    if dims is None or dtype_of(value) is None or any(dim is None for dim in dims):
        return False
    try:
        evaluate_dims(dims, bindings)
    except DimsError:
        return False
    return True


def outer_reads(nodes: Sequence[ir.Node]) -> list[ir.Value]:
    """The values that nodes read and none of them computes."""
    computed = {value for node in nodes for value in node.outputs}
    return list(dict.fromkeys(value for node in nodes for value in values_read_by(node) if value not in computed))


def check_operator(node: ir.Node) -> None:
    """Require that the engine has a node's operator, for a step of a plan or for its tail.

    Raises:
        BuildError: it has not.
    """
    known = node.domain in ("", DOMAIN) and node.op_type in (
        *OPS,
        *CONTROL_FLOW,
        *(_OWN if node.domain else ("Constant",)),
    )
    if not known and not is_plugin_node(node):
        raise BuildError(
            f"engine 'cuda' does not have the operator {node.domain or 'ai.onnx'}::{node.op_type} (node {node_name(node)!r}).\n"
            'Do: write it as a plugin, or build with engine="cpu"',
            engine="cuda",
            op=node.op_type,
        )


def check_types(graph: ir.Graph) -> None:
    """Require that the engine knows the element type of every tensor.

    Raises:
        BuildError: it does not.
    """
    for node in graph:
        for value in node.outputs:
            if value.dtype is not None and dtype_of(value) is None:
                raise BuildError(
                    f"engine 'cuda' cannot compute node {node_name(node)!r} ({node.op_type}): it has no tensors of the element type of "
                    f'{value.name!r}, {value.dtype.name.lower()}.\nDo: build with engine="reference"',
                    engine="cuda",
                    op=node.op_type,
                    tensor=value.name,
                )


def check_operators(nodes: Sequence[ir.Node], version: int) -> None:
    """Require that every node of a tail can run, those in branches and bodies too.

    Raises:
        BuildError: there is no function for one.
    """
    for node in nodes:
        if node.domain == DOMAIN and (node.op_type not in OPS or node.op_type in _FUSED):
            raise BuildError(
                f"engine 'cuda': the dims of tensor {node.outputs[0].name!r} are known only when the network runs.\n"
                'Do: build with engine="cpu"',
                engine="cuda",
                tensor=node.outputs[0].name,
            )
        if why := _unsupported_reason(node, version):
            raise BuildError(
                f"engine 'cuda' {why} (node {node_name(node)!r}).\nDo: build with engine=\"cpu\"",
                engine="cuda",
                op=node.op_type,
            )
        for attribute in node.attributes.values():
            if attribute.type.name == "GRAPH":
                check_operators(list(attribute.as_graph()), version)


def _unsupported_reason(node: ir.Node, version: int) -> str:
    """Why a node of a tail cannot run; empty where it can."""
    op = node.op_type
    if is_plugin_node(node) or (not node.domain and op in (*CONTROL_FLOW, "Constant")):
        if op == "Scan" and version < 9:
            return "does not run Scan of opset 8"
        return ""
    if node.domain in ("", DOMAIN) and op in OPS:
        known = {name: array_of(value) for name, value in zip(names_of(node.inputs), node.inputs, strict=True)}
        why = unsupported_reason(op, operator_attributes(node), names_of(node.inputs), known)
        return f"does not run {op} {why}" if why else ""
    try:
        schema: Any = onnx.defs.get_schema(op, version, node.domain)
    except onnx.defs.SchemaError:
        schema = None
    if schema is None or not (schema.has_function or schema.has_context_dependent_function):
        return f"does not have the operator {node.domain or 'ai.onnx'}::{op}"
    return ""
