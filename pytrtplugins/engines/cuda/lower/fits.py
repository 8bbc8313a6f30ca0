"""Check that dims of operands agree: the model's before lowering, and those of a run before planning or launching."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....errors import DimsError
from ....model.ir import array_of
from ....model.proto import node_name
from ....plugin.onnx_node import is_plugin_node
from ....utils.optional import ir, onnx
from ....validation import infer_node
from .data_dependent import CONTROL_FLOW
from .dim_rules import RULES
from .operand_dims import Dims, MisfitError, Operands, UnknownDimsError
from .rewrite import DOMAIN

__all__ = ["check_dims", "check_static_dims", "find_misfit"]

_MAX_ELEMENTS = 1 << 10
"""Elements of a constant that ONNX's shape inference reads."""


def find_misfit(model: ir.Model) -> DimsError | None:
    """The error of the first node whose operands' dims contradict each other, or the dims that the model declares for its outputs.

    Args:
        model: A lowered model in which free dims have their sizes.
    """
    version = model.opset_imports.get("", 1)
    for node in model.graph:
        if (node.domain != DOMAIN and is_plugin_node(node)) or node.op_type in CONTROL_FLOW:
            continue
        operands = Operands(node, version)
        try:
            _check(operands)
        except MisfitError as error:
            return _described(operands, error)
    return None


def check_static_dims(model: ir.Model) -> None:
    """Require that dims that do not depend on a run fit each other, before passes trust them.

    Args:
        model: One that is not lowered yet.

    Raises:
        DimsError: they contradict each other; it names the first such node.
    """
    version = model.opset_imports.get("", 1)
    for node in model.graph:
        _require_fit(Operands(node, version))


def check_dims(node: ir.Node, version: int, inputs: Sequence[Dims | None]) -> None:
    """Require that the dims that a node's inputs have in a run fit each other.

    Raises:
        DimsError: they contradict each other.
    """
    _require_fit(Operands(node, version, inputs))


def _require_fit(operands: Operands) -> None:
    try:
        _ruled(operands)
    except UnknownDimsError:
        pass
    except MisfitError as error:
        raise _described(operands, error) from error


def _described(operands: Operands, error: MisfitError) -> DimsError:
    name, op = node_name(operands.node), operands.node.op_type
    dims = ", ".join(str(dims) for dims in operands.inputs if dims is not None)
    return DimsError(
        f"engine 'cuda': node {name!r} ({op}) cannot run on tensors of the dims {dims}: {error}.\n"
        "Do: give inputs whose dims fit this model",
        node=name,
        op=op,
    )


def _check(operands: Operands) -> None:
    node = operands.node
    try:
        expected = _ruled(operands)
        if not any(expected) and not node.domain:
            expected = _inferred(operands)
    except UnknownDimsError:
        return
    for value, wanted, declared in zip(node.outputs, expected, operands.outputs, strict=False):
        if wanted is not None and declared is not None and wanted != declared:
            raise MisfitError(f"output {value.name!r} has the dims {wanted}, the model declares {declared}")


def _ruled(operands: Operands) -> list[Dims | None]:
    """Dims of the outputs by the rule of a node's operator; empty where it has none.

    Raises:
        MisfitError: the operands' dims contradict each other.
        UnknownDimsError: the rule needs others than are known.
    """
    rule = RULES.get((operands.node.domain, operands.node.op_type))
    if rule is None:
        return []
    try:
        return list(rule(operands))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # rules trust the number of axes
        raise MisfitError(
            f"an operand has another number of axes than {operands.node.op_type} takes ({error})"
        ) from error


def _inferred(operands: Operands) -> list[Dims | None]:
    """Dims of the outputs by ONNX's shape inference; empty where it does not know the operator."""
    node = operands.node
    if any(dims is None and value is not None for dims, value in zip(operands.inputs, node.inputs, strict=True)):
        raise UnknownDimsError
    proto, types, data = ir.serde.serialize_node(node), dict[str, Any](), dict[str, Any]()
    for value, dims in zip(node.inputs, operands.inputs, strict=True):
        if value is None or dims is None:
            continue
        kind = ir.serde.serialize_value(value).type
        types[str(value.name)] = kind
        array = array_of(value) if math.prod(dims) <= _MAX_ELEMENTS else None
        if array is not None:
            data[str(value.name)] = onnx.numpy_helper.from_array(array, value.name)
    try:
        found = infer_node(proto, types, data, operands.version)
    except (
        Exception
    ):  # types differ where kernels convert them, or ONNX is stricter than libraries: numbers of rank 1 for Range
        return []
    return [_dims(found.get(str(value.name))) for value in node.outputs]


def _dims(kind: Any) -> Dims | None:
    if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    sizes = kind.tensor_type.shape.dim
    return tuple(size.dim_value for size in sizes) if all(size.HasField("dim_value") for size in sizes) else None
