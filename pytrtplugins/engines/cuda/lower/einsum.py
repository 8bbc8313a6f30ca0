"""Rewrite Einsum as MatMul, Mul and ReduceSum with Transpose and Reshape between them, for which this engine has kernels."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from ....model.ir import array_of, dims_of, is_op, swap
from ....utils.optional import ir
from ....utils.override import override
from .new_nodes import NewNodes
from .rewrite import Rewrite, is_float

__all__ = ["WriteEinsums"]

Labels: TypeAlias = tuple[str, ...]
_OPSET = 13
"""The first opset in which ReduceSum, Squeeze and Unsqueeze have their axes as an input."""
_THROUGH = ("Cast", "Dropout", "Identity")
"""Operators that exporters write between a Softmax and the product that reads it."""


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
    """The operands of an Einsum, and the labels of its result."""

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
        equation = _parse_equation(
            node.attributes.get_string("equation", ""), [dims for dims in shapes if dims is not None]
        )
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
        terms = [writer.take_diagonals(term) for term in match.terms]
        total = terms[0]
        for index, term in enumerate(terms[1:], 1):
            later = {label for other in terms[index + 1 :] for label in other.labels}
            total = writer.multiply(total, term, match.result, later)
        total = writer.reduce_sum(total, [label for label in total.labels if label not in match.result])
        value = writer.transpose(total, match.result).value
        if isinstance(value, np.ndarray) or value in node.inputs:  # nothing but constants, or nothing is done
            value = writer.add("Identity", [value], "same", total.dims)
        swap(graph, [node], value)


class _Writer(NewNodes):
    """Writes the nodes of an equation; operations on constants alone are computed at once."""

    _count = 0

    def term(
        self, op: str, term: _Term, operands: Sequence[Any], labels: Labels, dims: Sequence[Any], **attributes: Any
    ) -> _Term:
        """Add a node whose first input is a term, and return its output."""
        self._count += 1
        value = self.add(op, [term.value, *operands], f"{op.lower()}{self._count}", dims, **attributes)
        return _Term(value, labels, tuple(dims))

    def transpose(self, term: _Term, labels: Labels) -> _Term:
        """Transpose a term to this order of its labels."""
        if labels == term.labels:
            return term
        perm = [term.labels.index(label) for label in labels]
        dims = tuple(term.dims[axis] for axis in perm)
        if isinstance(term.value, np.ndarray):
            return _Term(term.value.transpose(perm), labels, dims)
        return self.term("Transpose", term, (), labels, dims, perm=perm)

    def reshape(self, term: _Term, labels: Labels, dims: Sequence[Any], kept: int) -> _Term:
        """Reshape a term; the first ``kept`` dims are those of the term, and one of the others may be unknown."""
        if isinstance(term.value, np.ndarray):
            return _Term(term.value.reshape(dims), labels, tuple(dims))
        target = [0] * kept + [size if isinstance(size, int) else -1 for size in dims[kept:]]
        return self.term("Reshape", term, [np.array(target, np.int64)], labels, dims)

    def align_axes(self, term: _Term, labels: Labels) -> _Term:
        """Transpose a term to this order of labels, with axes of size 1 for those that it does not have."""
        axes = [axis for axis, label in enumerate(labels) if label not in term.labels]
        term = self.transpose(term, tuple(label for label in labels if label in term.labels))
        dims = tuple(term.size(label) for label in labels)
        if not axes or isinstance(term.value, np.ndarray):
            return _Term(term.value.reshape(dims) if axes else term.value, labels, dims)  # type: ignore[union-attr]
        return self.term("Unsqueeze", term, [np.array(axes, np.int64)], labels, dims)

    def reduce_sum(self, term: _Term, labels: Sequence[str]) -> _Term:
        """Sum a term over some of its labels."""
        axes = [term.labels.index(label) for label in labels]
        remaining = tuple(label for label in term.labels if label not in labels)
        dims = tuple(map(term.size, remaining))
        if not axes:
            return term
        if isinstance(term.value, np.ndarray):
            return _Term(term.value.sum(tuple(axes), dtype=np.float32).astype(term.value.dtype), remaining, dims)
        if all(term.dims[axis] == 1 for axis in axes):
            return self.term("Squeeze", term, [np.array(axes, np.int64)], remaining, dims)
        return self.term("ReduceSum", term, [np.array(axes, np.int64)], remaining, dims, keepdims=0)

    def take_diagonals(self, term: _Term) -> _Term:
        """Take the diagonal of each label that a term has more than once: the label stays once, as the last axis."""
        for label in [label for label, count in Counter(term.labels).items() if count > 1]:
            while term.labels.count(label) > 1:
                first = term.labels.index(label)
                second = term.labels.index(label, first + 1)
                others = [axis for axis in range(len(term.labels)) if axis not in (first, second)]
                numbered = _Term(term.value, tuple(map(str, range(len(term.labels)))), term.dims)
                numbered = self.transpose(numbered, tuple(map(str, [*others, first, second])))
                size, outer = term.dims[first], [term.dims[axis] for axis in others]
                labels = (*(term.labels[axis] for axis in others), label)
                flat = self.reshape(numbered, labels, [*outer, size * size], len(outer))
                if isinstance(flat.value, np.ndarray):
                    term = _Term(flat.value[..., :: size + 1], labels, (*outer, size))
                    continue
                numbers = [np.array([number], np.int64) for number in (0, size * size, len(outer), size + 1)]
                term = self.term("Slice", flat, numbers, labels, [*outer, size])
        return term

    def multiply(self, a: _Term, b: _Term, result: Labels, later: set[str]) -> _Term:
        """Multiply two terms, and sum over the labels that neither the result nor later terms have."""
        needed = {*result, *later}
        a, b = (
            self.reduce_sum(
                x, [label for label in x.labels if label not in needed and 1 in (x.size(label), y.size(label))]
            )
            for x, y in ((a, b), (b, a))
        )
        both = [label for label in a.labels if label in b.labels]
        batch, sums = ([label for label in both if (label in needed) is is_needed] for is_needed in (True, False))
        if _should_swap(a, b, result, bool(batch)):
            a, b = b, a
        rows, columns = (tuple(label for label in x.labels if label not in both) for x in (a, b))
        if not sums or not (rows or columns):
            return self._multiply_elementwise(a, b, result, sums)
        orders = [tuple(label for label in x if label in batch) for x in (result, a.labels, b.labels)]
        orders = [order for order in orders if len(order) == len(batch)]

        def transpose_cost(order: Labels) -> int:
            """Cost of the Transposes that this order of batch labels needs; that of a counts most, since it would hide an attention."""
            layouts = (*order, *rows, *sums), (*order, *columns, *sums), (*order, *rows, *columns)
            moves_a, moves_b, moves_y = (
                layout != labels for layout, labels in zip(layouts, (a.labels, b.labels, result), strict=True)
            )
            return 4 * moves_a + 2 * moves_b + moves_y

        return self._multiply_matrices(a, b, min(orders, key=transpose_cost), rows, columns, tuple(sums))

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _multiply_elementwise(self, a: _Term, b: _Term, result: Labels, sums: Sequence[str]) -> _Term:
        """Multiply two terms element by element, and sum over some labels."""
        all_labels = dict.fromkeys((*a.labels, *b.labels))
        outer = [*(label for label in result if label in all_labels)]
        labels = (*outer, *(label for label in all_labels if label not in (*outer, *sums)), *sums)
        sizes = [_broadcast_size(a.size(label), b.size(label)) for label in labels]
        a, b = self.align_axes(a, labels), self.align_axes(b, labels)
        if isinstance(a.value, np.ndarray) and isinstance(b.value, np.ndarray):
            return self.reduce_sum(_Term(a.value * b.value, labels, tuple(sizes)), sums)
        return self.reduce_sum(self.term("Mul", a, [b.value], labels, sizes), sums)

    def _multiply_matrices(
        self, a: _Term, b: _Term, batch: Labels, rows: Labels, columns: Labels, sums: Labels
    ) -> _Term:
        """Multiply two terms by MatMul; several row or column labels become one axis, or where sizes are unknown axes of the batch."""
        sizes = {label: _broadcast_size(a.size(label), b.size(label)) for label in (*a.labels, *b.labels)}
        known = all(isinstance(sizes[label], int) for label in (*rows, *columns))
        outer_rows = () if known and batch else rows[:-1]
        outer_columns = () if known else columns[:-1]
        rows, columns = rows[len(outer_rows) :], columns[len(outer_columns) :]
        outer = (*batch, *outer_rows, *outer_columns)
        a = self._as_matrices(a, outer, rows, sums)
        b_outer = outer if batch or outer_columns else ()  # one matrix for all rows
        if len(sums) > 1 and not isinstance(_joint_size(sums, b), int):
            b = self._as_matrices(b, b_outer, columns, sums)
            b = self.transpose(b, (*b_outer, *b.labels[:-3:-1]))
        else:
            b = self._as_matrices(b, b_outer, sums, columns)
        labels, dims = (*outer, *rows, *columns), [sizes[label] for label in outer]
        ends = [a.dims[-2], b.dims[-1]]
        if isinstance(a.value, np.ndarray) and isinstance(b.value, np.ndarray):
            array = np.matmul(a.value.astype(np.float32), b.value.astype(np.float32)).astype(a.value.dtype)
            y = _Term(array, (*outer, "rows", "columns"), (*dims, *ends))
        else:
            y = self.term("MatMul", a, [b.value], (*outer, "rows", "columns"), (*dims, *ends))
        if len(rows) == len(columns) == 1:
            return _Term(y.value, labels, y.dims)
        return self.reshape(y, labels, [sizes[label] for label in labels], len(outer))

    def _as_matrices(self, x: _Term, outer: Labels, first: Labels, second: Labels) -> _Term:
        """Reshape a term to a batch of matrices: the first labels become the rows, the second the columns."""
        x = self.align_axes(x, (*outer, *first, *second))
        if len(first) == len(second) == 1:
            return x
        dims = [*map(x.size, outer), _joint_size(first, x), _joint_size(second, x)]
        return self.reshape(x, (*outer, "first", "second"), dims, len(outer) + (len(first) == 1))


# -- inside ----------------------------------------------------------------------------------------------------------------


def _parse_equation(equation: str, shapes: Sequence[tuple[Any, ...]]) -> list[Labels] | None:
    """Parse an equation to the labels of each operand and of the result; None where it does not fit operands of these ranks.

    The axes of an ellipsis are numbered from the last, so that those of shorter ones broadcast.
    """
    operand_text, arrow, result_text = equation.replace(" ", "").partition("->")
    texts = operand_text.split(",")
    if len(texts) != len(shapes):
        return None
    ranks = [len(dims) - len(text.replace("...", "")) for text, dims in zip(texts, shapes, strict=True)]
    if any(rank < 0 or (rank and "..." not in text) for rank, text in zip(ranks, texts, strict=True)):
        return None
    if not arrow:
        counts = Counter(letter for text in texts for letter in text.replace("...", ""))
        result_text = "...".join(["", "".join(sorted(letter for letter, count in counts.items() if count == 1))])

    def labels(text: str, rank: int) -> Labels:
        before, dots, behind = text.partition("...")
        return (*before, *(map(str, reversed(range(rank))) if dots else ()), *behind)

    operand_labels = [labels(text, rank) for text, rank in zip(texts, ranks, strict=True)]
    result = labels(result_text, max(ranks))
    known = set(itertools.chain(*operand_labels))
    return [*operand_labels, result] if set(result) <= known and len(set(result)) == len(result) else None


def _sizes_agree(terms: Sequence[_Term], result: Labels) -> bool:
    """Whether the sizes of each label broadcast; a label that is summed or repeated needs one known size."""
    for label in {label for term in terms for label in term.labels}:
        sizes = {
            size
            for term in terms
            for term_label, size in zip(term.labels, term.dims, strict=True)
            if term_label == label
        }
        numbers = {size for size in sizes if isinstance(size, int)} - {1}
        is_repeated = any(term.labels.count(label) > 1 for term in terms)
        if len(numbers) > 1 or (is_repeated and (len(sizes) > 1 or not all(isinstance(size, int) for size in sizes))):
            return False
        is_shared = sum(label in term.labels for term in terms) > 1
        if label not in result and is_shared and (None in sizes or len(sizes - {1}) > 1):
            return False
    return True


def _joint_size(labels: Labels, x: _Term) -> Any:
    """The product of the sizes of some labels; None where one is unknown."""
    sizes = [x.size(label) for label in labels]
    known = all(isinstance(size, int) for size in sizes)
    return sizes[0] if len(sizes) == 1 else math.prod(sizes) if known else None


def _broadcast_size(size: Any, other: Any) -> Any:
    """The size of an axis that two sizes broadcast to."""
    if size == 1 or (isinstance(other, int) and other > 1):
        return other
    return size


def _should_swap(a: _Term, b: _Term, result: Labels, has_batch: bool) -> bool:
    """Whether factor a becomes the second operand of the MatMul, in place of b.

    (1) A constant without axes of the batch, a matrix of weights, is the second; (2) the output of a Softmax is the first: the
    product may be part of an attention; (3) the factor whose labels come last in the result is the second.
    """
    constants = [isinstance(x.value, np.ndarray) for x in (a, b)]
    if constants[0] != constants[1] and not has_batch:
        return constants[0]
    from_softmax = [_is_softmax(x.value) for x in (a, b)]
    if from_softmax[0] != from_softmax[1]:
        return from_softmax[1]
    last = [label for label in result if (label in a.labels) != (label in b.labels)][-1:]
    return any(label in a.labels for label in last)


def _is_softmax(value: Any) -> bool:
    """Whether a value is the output of a Softmax, perhaps through one of `_THROUGH`."""
    node = None if isinstance(value, np.ndarray) else value.producer()
    while node is not None and not node.domain and node.op_type in _THROUGH:
        node = node.inputs[0].producer() if node.inputs[0] is not None else None
    return is_op(node, "Softmax")
