"""Einsum → products of matrices, products of values and sums, between moves: what this engine has kernels for."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from ....model.ir import array_of, dims_of, is_op, swap
from ....utils.override import override
from .new_nodes import NewNodes
from .rewrite import Rewrite, is_float

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["WriteEinsums"]

Labels: TypeAlias = tuple[str, ...]
_OPSET = 13
"""From which on axes are inputs."""
_THROUGH = ("Cast", "Dropout", "Identity")
"""What stands between a Softmax and the product that reads it."""


@dataclass(frozen=True)
class _Term:
    """A tensor whose axes have labels: letters of the equation, and numbers for the axes of its ellipsis.

    Attributes:
        value: The tensor, or the array of a constant.
        labels: One for each axis.
        dims: Sizes, and symbols where they are unknown.
    """

    value: ir.Value | npt.NDArray[Any]
    labels: Labels
    dims: tuple[Any, ...]

    def size(self, label: str) -> Any:
        """The size of a label's axis; 1 where the tensor has none."""
        return self.dims[self.labels.index(label)] if label in self.labels else 1


@dataclass(frozen=True)
class _Equation:
    """The operands, and the labels of the result."""

    terms: tuple[_Term, ...]
    result: Labels


class WriteEinsums(Rewrite[_Equation]):
    """Einsum → MatMul, or Mul and ReduceSum, between Transpose and Reshape; of several operands from the first to the last.

    Labels of two operands are (a) of the batch: in both and in the result; (b) summed: in both and not in the result; (c) of rows
    or columns: in one and in the result; (d) summed before: in one and not in the result. A MatMul has (a) as its batch axes, (c) as
    its rows and columns, and (b) along what it sums over. Where no operand has (c), or where there is no (b), a Mul does. The diagonal
    of a label that a term has twice is a Slice of the two axes as one.

    What does not match: (1) other types than float32 and float16; (2) operands of unknown rank, or with axes of no values; (3) a
    label that is summed whose sizes are not known to be equal, or a diagonal of unknown size; this pass runs again once all sizes
    are known; (4) opsets before 13.
    """

    name: ClassVar[str] = "einsums"
    needs: ClassVar[tuple[str, ...]] = ("Einsum",)
    leaves_unused: ClassVar[bool] = True

    @override
    def begin(self, graph: ir.Graph) -> None:
        self._opset = graph.opset_imports.get("", 0)

    @override
    def match(self, node: ir.Node) -> _Equation | None:
        if not is_op(node, "Einsum") or not is_float(node) or self._opset < _OPSET:  # cases 1 and 4
            return None
        shapes = [dims_of(value) for value in node.inputs]
        if any(dims is None or 0 in dims for dims in shapes):  # case 2
            return None
        equation = _parsed(node.attributes.get_string("equation", ""), [dims for dims in shapes if dims is not None])
        if equation is None:
            return None
        *terms, result = equation
        operands = []
        for value, labels, dims in zip(node.inputs, terms, shapes, strict=True):
            array = array_of(value)
            operands.append(_Term(value if array is None else array, labels, tuple(dims or ())))  # type: ignore[arg-type]
        return _Equation(tuple(operands), result) if _sizes_agree(operands, result) else None  # case 3

    @override
    def rewrite(self, graph: ir.Graph, node: ir.Node, match: _Equation) -> None:
        writer = _Writer(graph, node)
        terms = [writer.without_repeats(term) for term in match.terms]
        total = terms[0]
        for index, term in enumerate(terms[1:], 1):
            later = {label for each in terms[index + 1 :] for label in each.labels}
            total = writer.product(total, term, match.result, later)
        total = writer.summed(total, [label for label in total.labels if label not in match.result])
        value = writer.transposed(total, match.result).value
        if isinstance(value, np.ndarray) or value in node.inputs:  # nothing but constants, or nothing is done
            value = writer.add("Identity", [value], "same", total.dims)
        swap(graph, [node], value)


class _Writer(NewNodes):
    """Writes the nodes of an equation; what constants alone make is computed at once."""

    _count = 0

    def term(
        self, op: str, term: _Term, operands: Sequence[Any], labels: Labels, dims: Sequence[Any], **attributes: Any
    ) -> _Term:
        """What a node gives that reads a term first."""
        self._count += 1
        value = self.add(op, [term.value, *operands], f"{op.lower()}{self._count}", dims, **attributes)
        return _Term(value, labels, tuple(dims))

    def transposed(self, term: _Term, labels: Labels) -> _Term:
        """With the axes in another order."""
        if labels == term.labels:
            return term
        perm = [term.labels.index(label) for label in labels]
        dims = tuple(term.dims[axis] for axis in perm)
        if isinstance(term.value, np.ndarray):
            return _Term(term.value.transpose(perm), labels, dims)
        return self.term("Transpose", term, (), labels, dims, perm=perm)

    def reshaped(self, term: _Term, labels: Labels, dims: Sequence[Any], kept: int) -> _Term:
        """With other dims, of which the first ``kept`` are what they were, and one of the others may be unknown."""
        if isinstance(term.value, np.ndarray):
            return _Term(term.value.reshape(dims), labels, tuple(dims))
        target = [0] * kept + [size if isinstance(size, int) else -1 for size in dims[kept:]]
        return self.term("Reshape", term, [np.array(target, np.int64)], labels, dims)

    def with_axes(self, term: _Term, labels: Labels) -> _Term:
        """With axes of one value for the labels that it does not have."""
        axes = [axis for axis, label in enumerate(labels) if label not in term.labels]
        term = self.transposed(term, tuple(label for label in labels if label in term.labels))
        dims = tuple(term.size(label) for label in labels)
        if not axes or isinstance(term.value, np.ndarray):
            return _Term(term.value.reshape(dims) if axes else term.value, labels, dims)  # type: ignore[union-attr]
        return self.term("Unsqueeze", term, [np.array(axes, np.int64)], labels, dims)

    def summed(self, term: _Term, labels: Sequence[str]) -> _Term:
        """Without some axes."""
        axes = [term.labels.index(label) for label in labels]
        left = tuple(label for label in term.labels if label not in labels)
        dims = tuple(map(term.size, left))
        if not axes:
            return term
        if isinstance(term.value, np.ndarray):
            return _Term(term.value.sum(tuple(axes), dtype=np.float32).astype(term.value.dtype), left, dims)
        if all(term.dims[axis] == 1 for axis in axes):
            return self.term("Squeeze", term, [np.array(axes, np.int64)], left, dims)
        return self.term("ReduceSum", term, [np.array(axes, np.int64)], left, dims, keepdims=0)

    def without_repeats(self, term: _Term) -> _Term:
        """The diagonals of the labels that a term has more than once."""
        for label in [label for label, count in Counter(term.labels).items() if count > 1]:
            while term.labels.count(label) > 1:
                first = term.labels.index(label)
                second = term.labels.index(label, first + 1)
                others = [axis for axis in range(len(term.labels)) if axis not in (first, second)]
                numbered = _Term(term.value, tuple(map(str, range(len(term.labels)))), term.dims)
                numbered = self.transposed(numbered, tuple(map(str, [*others, first, second])))
                size, outer = term.dims[first], [term.dims[axis] for axis in others]
                labels = (*(term.labels[axis] for axis in others), label)
                flat = self.reshaped(numbered, labels, [*outer, size * size], len(outer))
                if isinstance(flat.value, np.ndarray):
                    term = _Term(flat.value[..., :: size + 1], labels, (*outer, size))
                    continue
                numbers = [np.array([number], np.int64) for number in (0, size * size, len(outer), size + 1)]
                term = self.term("Slice", flat, numbers, labels, [*outer, size])
        return term

    def product(self, a: _Term, b: _Term, result: Labels, later: set[str]) -> _Term:
        """The product of two terms, without the labels that neither the result nor later terms have."""
        wanted = {*result, *later}
        a, b = (
            self.summed(x, [label for label in x.labels if label not in wanted and 1 in (x.size(label), y.size(label))])
            for x, y in ((a, b), (b, a))
        )
        both = [label for label in a.labels if label in b.labels]
        batch, sums = ([label for label in both if (label in wanted) is kept] for kept in (True, False))
        if _comes_second(a, b, result, bool(batch)):
            a, b = b, a
        rows, columns = (tuple(label for label in x.labels if label not in both) for x in (a, b))
        if not sums or not (rows or columns):
            return self._values(a, b, result, sums)
        orders = [tuple(label for label in x if label in batch) for x in (result, a.labels, b.labels)]
        orders = [order for order in orders if len(order) == len(batch)]

        def moves(order: Labels) -> int:
            """How much is moved, most of all where a Softmax is behind a Transpose of which there would be no attention."""
            whole = (*order, *rows, *sums), (*order, *columns, *sums), (*order, *rows, *columns)
            of_a, of_b, of_y = (found != own for found, own in zip(whole, (a.labels, b.labels, result), strict=True))
            return 4 * of_a + 2 * of_b + of_y

        return self._matrices(a, b, min(orders, key=moves), rows, columns, tuple(sums))

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _values(self, a: _Term, b: _Term, result: Labels, sums: Sequence[str]) -> _Term:
        """A product value by value, and the sum of its last axes."""
        given = dict.fromkeys((*a.labels, *b.labels))
        outer = [*(label for label in result if label in given)]
        labels = (*outer, *(label for label in given if label not in (*outer, *sums)), *sums)
        sizes = [_larger(a.size(label), b.size(label)) for label in labels]
        a, b = self.with_axes(a, labels), self.with_axes(b, labels)
        if isinstance(a.value, np.ndarray) and isinstance(b.value, np.ndarray):
            return self.summed(_Term(a.value * b.value, labels, tuple(sizes)), sums)
        return self.summed(self.term("Mul", a, [b.value], labels, sizes), sums)

    def _matrices(self, a: _Term, b: _Term, batch: Labels, rows: Labels, columns: Labels, sums: Labels) -> _Term:
        """A product of matrices. Rows or columns of several labels are one axis where sizes are known, else axes of the batch."""
        sizes = {label: _larger(a.size(label), b.size(label)) for label in (*a.labels, *b.labels)}
        known = all(isinstance(sizes[label], int) for label in (*rows, *columns))
        outer_rows = () if known and batch else rows[:-1]
        outer_columns = () if known else columns[:-1]
        rows, columns = rows[len(outer_rows) :], columns[len(outer_columns) :]
        outer = (*batch, *outer_rows, *outer_columns)
        a = self._matrix(a, outer, rows, sums)
        own = outer if batch or outer_columns else ()  # one matrix for all rows
        if len(sums) > 1 and not isinstance(_joined(sums, b), int):
            b = self._matrix(b, own, columns, sums)
            b = self.transposed(b, (*own, *b.labels[:-3:-1]))
        else:
            b = self._matrix(b, own, sums, columns)
        labels, dims = (*outer, *rows, *columns), [sizes[label] for label in outer]
        ends = [a.dims[-2], b.dims[-1]]
        if isinstance(a.value, np.ndarray) and isinstance(b.value, np.ndarray):
            array = np.matmul(a.value.astype(np.float32), b.value.astype(np.float32)).astype(a.value.dtype)
            y = _Term(array, (*outer, "rows", "columns"), (*dims, *ends))
        else:
            y = self.term("MatMul", a, [b.value], (*outer, "rows", "columns"), (*dims, *ends))
        if len(rows) == len(columns) == 1:
            return _Term(y.value, labels, y.dims)
        return self.reshaped(y, labels, [sizes[label] for label in labels], len(outer))

    def _matrix(self, x: _Term, outer: Labels, first: Labels, second: Labels) -> _Term:
        """A term as matrices: labels of its rows and of its columns become one axis each."""
        x = self.with_axes(x, (*outer, *first, *second))
        if len(first) == len(second) == 1:
            return x
        dims = [*map(x.size, outer), _joined(first, x), _joined(second, x)]
        return self.reshaped(x, (*outer, "first", "second"), dims, len(outer) + (len(first) == 1))


# -- inside ----------------------------------------------------------------------------------------------------------------


def _parsed(equation: str, shapes: Sequence[tuple[Any, ...]]) -> list[Labels] | None:
    """Labels of the operands and of the result; None where the equation is not one of operands of these ranks.

    The axes of an ellipsis are numbered from the last, so that those of shorter ones broadcast.
    """
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    texts = given.split(",")
    if len(texts) != len(shapes):
        return None
    ranks = [len(dims) - len(text.replace("...", "")) for text, dims in zip(texts, shapes, strict=True)]
    if any(rank < 0 or (rank and "..." not in text) for rank, text in zip(ranks, texts, strict=True)):
        return None
    if not arrow:
        counts = Counter(letter for text in texts for letter in text.replace("...", ""))
        wanted = "...".join(["", "".join(sorted(letter for letter, count in counts.items() if count == 1))])

    def labels(text: str, rank: int) -> Labels:
        before, dots, behind = text.partition("...")
        return (*before, *(map(str, reversed(range(rank))) if dots else ()), *behind)

    found = [labels(text, rank) for text, rank in zip(texts, ranks, strict=True)]
    result = labels(wanted, max(ranks))
    known = set(itertools.chain(*found))
    return [*found, result] if set(result) <= known and len(set(result)) == len(result) else None


def _sizes_agree(terms: Sequence[_Term], result: Labels) -> bool:
    """Whether each label has sizes that broadcast, and one known size where it is summed or a term has it twice."""
    for label in {label for term in terms for label in term.labels}:
        sizes = {size for term in terms for own, size in zip(term.labels, term.dims, strict=True) if own == label}
        numbers = {size for size in sizes if isinstance(size, int)} - {1}
        twice = any(term.labels.count(label) > 1 for term in terms)
        if len(numbers) > 1 or (twice and (len(sizes) > 1 or not all(isinstance(size, int) for size in sizes))):
            return False
        several = sum(label in term.labels for term in terms) > 1
        if label not in result and several and (None in sizes or len(sizes - {1}) > 1):
            return False
    return True


def _joined(labels: Labels, x: _Term) -> Any:
    """The size of some axes as one; None where it is unknown."""
    sizes = [x.size(label) for label in labels]
    known = all(isinstance(size, int) for size in sizes)
    return sizes[0] if len(sizes) == 1 else math.prod(sizes) if known else None


def _larger(size: Any, other: Any) -> Any:
    """The size of two that broadcast."""
    if size == 1 or (isinstance(other, int) and other > 1):
        return other
    return size


def _comes_second(a: _Term, b: _Term, result: Labels, has_batch: bool) -> bool:
    """Whether the first of two factors is better the second.

    (1) A constant is that has no axes of the batch: a matrix of weights; (2) what comes from a Softmax is not: it may be an
    attention; (3) the one whose labels come last in the result is.
    """
    constants = [isinstance(x.value, np.ndarray) for x in (a, b)]
    if constants[0] != constants[1] and not has_batch:
        return constants[0]
    weights = [_is_softmax(x.value) for x in (a, b)]
    if weights[0] != weights[1]:
        return weights[1]
    last = [label for label in result if (label in a.labels) != (label in b.labels)][-1:]
    return any(label in a.labels for label in last)


def _is_softmax(value: Any) -> bool:
    node = None if isinstance(value, np.ndarray) else value.producer()
    while node is not None and not node.domain and node.op_type in _THROUGH:
        node = node.inputs[0].producer() if node.inputs[0] is not None else None
    return is_op(node, "Softmax")
