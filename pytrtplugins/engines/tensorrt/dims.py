"""A plugin's shape rule, traced with symbolic dims and written as TensorRT's dimension expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import DimsError
from ...plugin.base import Plugin
from ...tensor import Dim, Dims, SymbolicDim

__all__ = ["count_outputs", "output_exprs"]

_OPERATIONS = {"+": "SUM", "-": "SUB", "*": "PROD", "//": "FLOOR_DIV"}
_RANKS = (4, 3, 2, 5, 1, 0, 6, 7, 8)
_INPUTS = (1, 2, 3, 4)


def output_exprs(plugin: Plugin, inputs: Sequence[Any], builder: Any, operations: Any) -> list[list[Any]]:
    """The dims of each output as expressions of the inputs' dims.

    A dim that TensorRT knows stays a number, so rules such as divisibility are checked on it. Free dims of different
    inputs count as different sizes; if the rule refuses that, as one that demands equal batches does, dims at the same
    axis are taken for equal: whether they are is checked again at run time.

    ``builder`` is TensorRT's ``IExprBuilder``, ``operations`` its ``DimensionOperation``.

    Raises:
        DimsError: the plugin refuses the dims, or an output's size depends on the inputs' values.
    """
    distinct: dict[str, Any] = {}
    try:
        dims = plugin.all_output_dims([_dims(exprs, f"d{index}_", distinct) for index, exprs in enumerate(inputs)])
        leaves = distinct
    except DimsError as first:
        shared: dict[str, Any] = {}
        try:
            dims = plugin.all_output_dims([_dims(exprs, "d", shared) for exprs in inputs])
        except DimsError:
            raise first from None
        leaves = shared
    return [[_expr(dim, leaves, builder, operations, plugin, index) for dim in out] for index, out in enumerate(dims)]


def count_outputs(plugin: Plugin) -> int:
    """How many outputs a plugin has, which TensorRT asks before it tells any dims.

    It is what the plugin says in an attribute ``num_outputs``, or what its shape rule gives for some free dims.

    Raises:
        DimsError: the rule accepts no free dims, so the number cannot be told.
    """
    declared = getattr(plugin, "num_outputs", None)
    if isinstance(declared, int):
        return declared
    for rank in _RANKS:
        for count in _INPUTS if plugin.num_inputs is None else (plugin.num_inputs,):
            dims = [tuple(SymbolicDim(f"d{index}_{axis}") for axis in range(rank)) for index in range(count)]
            try:
                return len(plugin.all_output_dims(dims))
            except Exception:  # whatever a rule for another rank does
                continue
    raise DimsError(
        f"{plugin!r}: the number of its outputs is unknown: output_dims refuses free dims of every rank.\n"
        f"Do: declare it in the class, num_outputs: ClassVar[int] = 1"
    )


def _dims(exprs: Any, prefix: str, leaves: dict[str, Any]) -> Dims:
    dims: list[Dim] = []
    for axis, expr in enumerate(exprs[index] for index in range(len(exprs))):
        if expr.is_constant():
            dims.append(int(expr.get_constant_value()))
        else:
            leaves.setdefault(f"{prefix}{axis}", expr)
            dims.append(SymbolicDim(f"{prefix}{axis}"))
    return tuple(dims)


def _expr(dim: Dim, leaves: Mapping[str, Any], builder: Any, operations: Any, plugin: Plugin, output: int) -> Any:
    if not isinstance(dim, SymbolicDim):
        return builder.constant(int(dim))
    if dim.left is None or dim.right is None:
        if dim.name not in leaves:
            raise DimsError(
                f"{plugin!r}: dim {dim.name!r} of output {output} is not made of the inputs' dims.\n"
                "Causes: (1) the output's size depends on the inputs' values: TensorRT runs such plugins not through this "
                "package.\nDo: give the output its largest size, and the number of valid entries as a second output",
                dim=dim,
            )
        return leaves[dim.name]
    left, right = (_expr(side, leaves, builder, operations, plugin, output) for side in (dim.left, dim.right))

    def operation(name: str, a: Any, b: Any) -> Any:
        return builder.operation(getattr(operations, name), a, b)

    if dim.name == "%":  # a % b = a - (a // b) * b
        return operation("SUB", left, operation("PROD", operation("FLOOR_DIV", left, right), right))
    return operation(_OPERATIONS[dim.name], left, right)
