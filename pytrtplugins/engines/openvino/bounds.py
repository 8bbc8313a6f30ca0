"""Value ranges of integer tensors, as polynomials in the free dims of the inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...model.operator_traits import Trait, operators
from ...model.proto import numpy_type
from ...plugin.onnx_node import node_attributes
from ...utils.optional import onnx
from ...validation.dataflow import given_inputs, walk
from ...validation.operators import standard_domain

__all__ = ["LONGEST", "Bounds", "Polynomial"]

LONGEST = 1 << 22
"""Length of an axis up to which bounds hold; engine `cpu` runs longer inputs with onnxruntime."""
_MOST_TERMS, _MOST_ELEMENTS = 16, 16
_INT32 = 1 << 31
Polynomial = dict[tuple[str, ...], int]
"""Free dims that are multiplied, sorted → their factor. The number itself stands at ``()``."""
_SAME_ORDER = operators(Trait.KEEPS_ORDER) | {"Cast"}
_UNKNOWN = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError)
_WHOLE = ("bool", "int8", "uint8", "int16", "uint16", "int32", "int64")
_NARROW = _WHOLE[:5]


def _number(value: int) -> Polynomial:
    return {(): int(value)} if value else {}


def _sum(a: Polynomial, b: Polynomial, sign: int = 1) -> Polynomial:
    total = Counter(a)
    for symbols, factor in b.items():
        total[symbols] += sign * factor
    return {symbols: factor for symbols, factor in total.items() if factor}


def _product(*factors: Polynomial) -> Polynomial:
    result = _number(1)
    for factor in factors:
        total = Counter[tuple[str, ...]]()
        for a, coefficient in result.items():
            for b, other in factor.items():
                total[tuple(sorted((*a, *b)))] += coefficient * other
        result = {symbols: number for symbols, number in total.items() if number}
        if len(result) > _MOST_TERMS:
            raise ArithmeticError("too many terms")
    return result


class Bounds:
    """Value ranges of a model's integer tensors.

    A dim that an input declares as free is 1 or more: runs with arrays without elements are onnxruntime's. Each int64 input fits into
    32 bits, and each index input into its table, since the engine checks both before a run.

    Args:
        model: A model with the types of its tensors.
        types: Type of each tensor.
        arrays: Values of initializers and Constants of whole numbers.
        limits: Inputs that are indices → the size of the axis that they lie in.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        types: Mapping[str, onnx.TypeProto],
        arrays: Mapping[str, npt.NDArray[Any]],
        limits: Mapping[str, int],
    ) -> None:
        self._types, self._arrays = types, arrays
        self._shapes: dict[str, list[Polynomial]] = {}
        self._elements: dict[str, list[Polynomial]] = {}
        self._columns: dict[str, list[str]] = {}
        self._ranges: dict[str, tuple[Polynomial, Polynomial]] = {}
        inputs = given_inputs(model.graph)
        self._positive = {dim.dim_param for info in inputs for dim in info.type.tensor_type.shape.dim if dim.dim_param}
        for name, array in arrays.items():
            if array.size:
                self._ranges[name] = _number(array.min()), _number(array.max())
            if array.ndim < 2 and array.size <= _MOST_ELEMENTS:
                self._elements[name] = [_number(value) for value in array.ravel()]
        for info in inputs:
            size = limits.get(info.name, _INT32)
            if self._dtype(info.name) in ("int32", "int64"):
                self._ranges[info.name] = _number(-size), _number(size - 1)
        for node in walk(model.graph.node):
            if not standard_domain(node.domain) and node.output:
                try:
                    self._note(node)
                except _UNKNOWN:  # nothing is known of it
                    continue

    def lie_in(self, name: str, count: int, holder: str, first: int) -> bool:
        """Whether all indices in a tensor lie in the axes of another one that they count along.

        Args:
            name: The indices.
            count: Number of the axes: that of columns of a GatherND's indices, else 1.
            holder: The tensor that is indexed.
            first: The first of these axes.
        """
        columns = [name] if count == 1 else self._columns.get(name, [name] * count)
        sizes = (self._shape(holder) or [])[first : first + count]
        return len(columns) == len(sizes) == count and all(map(self._lies_in, columns, sizes))

    def _lies_in(self, name: str, size: Polynomial) -> bool:
        lowest, highest = self._range(name)
        if lowest is None or highest is None:
            return False
        try:
            return self._not_negative(_sum(lowest, size)) and self._not_negative(
                _sum(_sum(size, highest, -1), _number(-1))
            )
        except ArithmeticError:
            return False

    def is_within(self, name: str, limit: int) -> bool:
        """Whether all numbers of a tensor lie between -limit and limit, with axes of up to `LONGEST` elements."""
        parts = self._range(name)
        return all(
            part is not None and sum(abs(number) * LONGEST ** len(symbols) for symbols, number in part.items()) <= limit
            for part in parts
        )

    def _not_negative(self, value: Polynomial) -> bool:
        """Whether a polynomial in dims ≥ 1 is never negative, by writing each dim as 1 plus a remainder."""
        total: Polynomial = {}
        for symbols, number in value.items():
            terms = [_sum({(name,): 1}, _number(1 if name in self._positive else 0)) for name in symbols]
            total = _sum(total, _product(_number(number), *terms))
        return all(number > 0 for number in total.values())

    def _dtype(self, name: str) -> str:
        kind = self._types[name].tensor_type.elem_type if name in self._types else 0
        return numpy_type(kind).name if kind else ""

    def _range(self, name: str) -> tuple[Polynomial | None, Polynomial | None]:
        if name in self._ranges:
            return self._ranges[name]
        dtype = self._dtype(name)
        if dtype not in _NARROW:
            return None, None
        limits = np.iinfo("uint8" if dtype == "bool" else dtype)
        return _number(int(limits.min)), _number(1 if dtype == "bool" else int(limits.max))

    def _hull(self, parts: Iterable[tuple[Any, Any]]) -> tuple[Polynomial, Polynomial]:
        lows, highs = zip(*parts, strict=True)
        for low in lows:
            if all(self._not_negative(_sum(other, low, -1)) for other in lows):
                break
        else:
            raise ArithmeticError("none is known to be the lowest")
        for high in highs:
            if all(self._not_negative(_sum(high, other, -1)) for other in highs):
                return low, high
        raise ArithmeticError("none is known to be the highest")

    def _shape(self, name: str) -> list[Polynomial] | None:
        if name in self._shapes:
            return self._shapes[name]
        if name in self._arrays:
            return [_number(size) for size in self._arrays[name].shape]
        kind = self._types.get(name)
        if kind is None or not kind.tensor_type.HasField("shape"):
            return None
        dims = kind.tensor_type.shape.dim
        return [
            _number(dim.dim_value) if dim.HasField("dim_value") else {(dim.dim_param or f"{name}.{axis}",): 1}
            for axis, dim in enumerate(dims)
        ]

    def _note(self, node: onnx.NodeProto) -> None:
        """Derive the ranges of a node's outputs."""
        attributes, name = node_attributes(node), node.output[0]
        self._note_shape(node, attributes)
        try:
            elements = self._elements_of(node, attributes)
        except _UNKNOWN:
            elements = None
        if elements is not None and len(elements) <= _MOST_ELEMENTS:
            self._elements[name] = elements
        if node.op_type == "Concat" and all((self._shape(part) or [{}])[-1] == _number(1) for part in node.input):
            rank = len(self._shape(name) or ())
            if attributes["axis"] in (-1, rank - 1):
                self._columns[name] = list(node.input)
        bounds = (
            self._hull([(value, value) for value in self._elements[name]])
            if self._elements.get(name)
            else self._range_of(node, attributes)
        )
        if bounds is not None:
            for output in node.output:
                self._ranges[output] = bounds

    def _note_shape(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
        shape = self._shape(node.input[0]) if node.input else None
        if shape is None:
            return
        if node.op_type == "Flatten":
            axis = attributes.get("axis", 1)
            self._shapes[node.output[0]] = [_product(*shape[:axis]), _product(*shape[axis:])]
        elif node.op_type == "Reshape" and self._elements.get(node.input[1]) == [_number(-1)]:
            self._shapes[node.output[0]] = [_product(*shape)]
        elif node.op_type in ("Cast", "Identity"):
            self._shapes[node.output[0]] = shape

    def _elements_of(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> list[Polynomial] | None:
        if node.op_type in operators(Trait.READS_SHAPE):
            shape = self._shape(node.input[0])
            if shape is None:
                return None
            return (
                [_product(*shape)]
                if node.op_type == "Size"
                else shape[attributes.get("start", 0) : attributes.get("end")]
            )
        if node.op_type == "Concat":
            return [value for part in node.input for value in self._elements[part]]
        if node.op_type == "Cast" and self._dtype(node.output[0]) not in ("int32", "int64", "float32"):
            return None  # of truth values, say, which are other numbers
        if node.op_type in _SAME_ORDER:
            return self._elements[node.input[0]]
        if node.op_type == "Gather":
            places = self._arrays[node.input[1]]
            return [self._elements[node.input[0]][int(place)] for place in places.ravel()] if places.ndim < 2 else None
        operation = _OPERATIONS.get(node.op_type)
        if operation is None:
            return None
        left, right = (self._elements[part] for part in node.input)
        if len(left) != len(right):
            left, right = (
                side * (len(other) if len(side) == 1 else 1) for side, other in ((left, right), (right, left))
            )
        return [operation(a, b) for a, b in zip(left, right, strict=True)]

    def _range_of(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> tuple[Polynomial, Polynomial] | None:
        kind = node.op_type
        if kind in operators(Trait.TRUTH):
            return _number(0), _number(1)
        if kind == "ArgMax" or kind == "ArgMin":
            size = (self._shape(node.input[0]) or [])[attributes.get("axis", 0)]
            return _number(0), _sum(size, _number(-1))
        ranges: list[tuple[Any, Any]] = [self._range(part) for part in node.input]
        if kind == "Cast":
            source, target = self._dtype(node.input[0]), self._dtype(node.output[0])
            fits = target == "int64" or (target == "int32" and self.is_within(node.input[0], _INT32 - 1))
            return ranges[0] if fits and source in _WHOLE and None not in ranges[0] else None
        if kind in operators(Trait.MOVES):
            return self._hull(ranges[:1])
        if kind in ("Concat", "Where"):  # a condition gives no values
            return self._hull(ranges[kind == "Where" :])
        (low, high), *others = ranges
        if kind == "Range" and self._elements[node.input[2]] == [_number(1)]:
            return low, _sum(others[0][1], _number(-1))
        if kind == "CumSum" and self._not_negative(low):
            axis = int(self._arrays[node.input[1]].item())
            return _number(0), _product(high, (self._shape(node.input[0]) or [])[axis])
        if kind == "Add":
            return _sum(low, others[0][0]), _sum(high, others[0][1])
        if kind == "Sub":
            return _sum(low, others[0][1], -1), _sum(high, others[0][0], -1)
        if kind == "Mul" and self._not_negative(low) and self._not_negative(others[0][0]):
            return _product(low, others[0][0]), _product(high, others[0][1])
        return None


_OPERATIONS: dict[str, Callable[[Polynomial, Polynomial], Polynomial]] = {
    "Add": _sum,
    "Mul": _product,
    "Sub": lambda a, b: _sum(a, b, -1),
}
