"""Rewrite normalizations and reductions of very long rows in two stages, so that many blocks share a row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....model.ir import array_of, dims_of, dtype_of, set_dtype
from ....tensor import DType
from ....utils.optional import ir
from ....utils.override import override
from .new_nodes import NewNodes
from .reductions import FLOATS, longest_row, reduction_axes
from .rewrite import Rewrite

__all__ = ["SplitLongRows"]

Dims = tuple[int, ...]
_NORMS = ("InstanceNormalization", "LayerNormalization")
_REDUCED = {
    "GlobalAveragePool": "ReduceMean",
    "GlobalMaxPool": "ReduceMax",
    "ReduceMax": "ReduceMax",
    "ReduceMean": "ReduceMean",
    "ReduceMin": "ReduceMin",
    "ReduceSum": "ReduceSum",
}
"""Operator that this pass splits → the reduction of both of its stages."""
_PART = 1 << 13
"""Values of a part, at most."""
_LEAST_PART = 1 << 9
"""And at least: with shorter ones the second stage has long rows."""


@dataclass(frozen=True)
class _Rows:
    """The rows of a node.

    Attributes:
        dims: Of its input.
        lead: The number of axes before those of a row, which are the last ones.
        parts: Parts of a row, of equal lengths.
    """

    dims: Dims
    lead: int
    parts: int

    @property
    def parted(self) -> Dims:
        """Dims with a row's axes replaced by two: the parts, and the values of a part."""
        rows = self.dims[: self.lead]
        return (*rows, self.parts, math.prod(self.dims[self.lead :]) // self.parts)

    @property
    def reduced(self) -> Dims:
        """Dims of one value for each row, of the rank of the input."""
        return (*self.dims[: self.lead], *[1] * (len(self.dims) - self.lead))


class SplitLongRows(Rewrite[_Rows]):
    """A normalization or reduction of rows that are too long for one block → the same for parts of rows, then for the parts.

    Sums are in float32. A normalization needs the mean and the variance of each part, which give those of the row; a last
    elementwise step, which joins what is around it, normalizes.

    What does not match: (1) rows that one block takes, and sizes that are unknown; (2) rows that are not the last axes; (3) lengths
    without a divisor between 512 and 8,192; (4) factors that are computed in the run; (5) other types than floats; (6) more
    outputs than the first.
    """

    name: ClassVar[str] = "long-rows"
    needs: ClassVar[tuple[str, ...]] = (*_NORMS, *_REDUCED)

    @override
    def match(self, node: ir.Node) -> _Rows | None:
        if node.domain or node.op_type not in self.needs:
            return None
        x, dims = node.inputs[0], dims_of(node.inputs[0])
        if x is None or not dims or not all(isinstance(dim, int) and dim for dim in dims):  # case 1
            return None
        axes = reduction_axes(node, len(dims))
        length = math.prod(dims[axis] for axis in axes)
        if (
            not axes
            or axes != tuple(range(len(dims) - len(axes), len(dims)))
            or length <= longest_row(node, dims, axes)
        ):
            return None  # cases 1 and 2
        part = next((n for n in range(_PART, _LEAST_PART - 1, -8) if length % n == 0), 0)
        if not part:  # case 3
            return None
        if node.op_type in _NORMS and any(array_of(value) is None for value in node.inputs[1:]):  # case 4
            return None
        used = [value for value in node.outputs if value.uses() or value.is_graph_output()]
        if dtype_of(x) not in FLOATS or used != [node.outputs[0]]:  # cases 5 and 6
            return None
        return _Rows(tuple(dims), len(dims) - len(axes), length // part)

    @override
    def rewrite(self, graph: ir.Graph, node: ir.Node, match: _Rows) -> None:
        new, y = _FloatNodes(graph, node), node.outputs[0]
        x = new.floats(node.inputs[0])
        parted = new.add("Reshape", [x, np.array(match.parted)], "parted", match.parted)
        if node.op_type in _NORMS:
            result = _normalized(new, node, x, parted, match)
        else:
            op, last = _REDUCED[node.op_type], len(match.parted) - 1
            parts = new.add(op, [parted], "parts", (*match.parted[:-1], 1), axes=[last])
            rows = new.add(op, [parts], "rows", (*match.parted[:-2], 1, 1), axes=[last - 1])
            dims = dims_of(y) or ()
            result = new.add("Reshape", [rows, np.array(dims, np.int64)], "reduced", dims)
        if y.dtype != result.dtype:
            result = new.cast(result, y)
        name = y.name
        y.replace_all_uses_with(result, replace_graph_outputs=True)
        y.name, result.name = None, name
        graph.remove(node, safe=True)


class _FloatNodes(NewNodes):
    """New nodes whose outputs are float32."""

    @override
    def add(self, op: str, inputs: Any, what: str, dims: Any, *arguments: Any, **attributes: Any) -> ir.Value:
        value = super().add(op, inputs, what, dims, *arguments, **attributes)
        set_dtype(value, ir.DataType.FLOAT)
        return value

    def floats(self, x: ir.Value | None) -> ir.Value:
        """A tensor in float32."""
        assert x is not None
        if dtype_of(x) is DType.FLOAT32:
            return x
        return self.add("Cast", [x], "floats", dims_of(x) or (), to=int(ir.DataType.FLOAT))

    def cast(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """A float32 tensor in another's type."""
        value = super().add("Cast", [x], "cast", dims_of(x) or (), like, to=int(like.dtype))  # type: ignore[arg-type]
        return value


def _normalized(new: _FloatNodes, node: ir.Node, x: ir.Value, parted: ir.Value, rows: _Rows) -> ir.Value:
    """(x - mean) / sqrt(variance + epsilon), times the factor, plus the offset."""
    last, one = len(rows.parted) - 1, (*rows.parted[:-1], 1)
    whole = (*rows.parted[:-2], 1, 1)

    def squares(values: ir.Value, middle: ir.Value, what: str, dims: Dims) -> ir.Value:
        apart = new.add("Sub", [values, middle], f"{what}.apart", dims)
        return new.add("Mul", [apart, apart], f"{what}.squares", dims)

    def mean(values: ir.Value, what: str, axis: int, dims: Dims) -> ir.Value:
        return new.add("ReduceMean", [values], what, dims, axes=[axis])

    means = mean(parted, "means", last, one)
    variances = mean(squares(parted, means, "parts", rows.parted), "variances", last, one)
    middle = mean(means, "mean", last - 1, whole)
    between = new.add("Add", [variances, squares(means, middle, "means", one)], "between", one)
    variance = mean(between, "variance", last - 1, whole)
    epsilon = np.float32(node.attributes.get_float("epsilon", 1e-5))
    root = new.add("Sqrt", [new.add("Add", [variance, np.asarray(epsilon)], "epsilon", whole)], "root", whole)
    values = x
    for op, value, what in (("Sub", middle, "centered"), ("Div", root, "normal")):
        each = new.add("Reshape", [value, np.array(rows.reduced)], f"{what}.by", rows.reduced)
        values = new.add(op, [values, each], what, rows.dims)
    ones = [1] * (len(rows.dims) - 2)
    for op, given, what in zip(("Mul", "Add"), node.inputs[1:], ("scaled", "moved"), strict=False):
        factor = np.asarray(array_of(given), np.float32)
        factor = factor.reshape(-1, *ones) if node.op_type == "InstanceNormalization" else factor
        values = new.add(op, [values, factor], what, rows.dims)
    return values
