"""Evaluate shape tensors symbolically while dims are free."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..model.ir import array_of, constant, dims_of, operand
from ..model.slices import bounded_slice
from ..tensor import Dim, SymbolicDim
from ..utils.optional import ir

__all__ = ["SymbolicShapeValues"]

_MAX_ELEMENTS = 64
_BOOL = 9  # TensorProto.BOOL
_SHAPE_INPUTS = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Tile": 1}
"""Operator → its input that says the dims of what it gives; those whose dims this file computes."""
Numbers = np.ndarray[Any, np.dtype[np.object_]]
"""Of int and SymbolicDim."""


class SymbolicShapeValues:
    """Known values of shape tensors, updated node by node; elements are numbers or expressions of free dims.

    An export with a free batch computes shapes: Shape, Gather, Mul, Concat, Reshape. ONNX's inference loses the dims there;
    they are followed here as far as each is a number, or an expression of free dims.
    """

    def __init__(self) -> None:
        self._known: dict[ir.Value, Numbers] = {}

    def note(self, node: ir.Node) -> None:
        """Evaluate a node, if it is shape arithmetic."""
        rule = _RULES.get(node.op_type)
        if rule is None or node.domain:
            return
        if node.op_type in ("Shape", "Size"):
            dims = _dims(node.inputs[0])
            inputs: Sequence[Numbers | None] = [None if dims is None else _numbers(dims)]
        else:
            inputs = [None if value is None else self._of(value) for value in node.inputs]
            if any(result is None and value is not None for result, value in zip(inputs, node.inputs, strict=True)):
                return
        if inputs[0] is None or any(numbers is not None and numbers.ndim > 1 for numbers in inputs):
            return  # a table of numbers is not a shape
        try:
            result = rule(node, inputs)
        except (ArithmeticError, IndexError, ValueError):  # expressions whose result is not known
            return
        output = node.outputs[0]
        if output.shape is not None and result.ndim == len(output.shape) and _fits(result, output.dtype):
            self._known[output] = result

    def constant(self, value: ir.Value) -> Any:
        """A tensor whose numbers are all known, as an array; else None."""
        numbers = self._known.get(value)
        if numbers is None or value.dtype is None or any(isinstance(number, SymbolicDim) for number in numbers.flat):
            return None
        return np.array(numbers.tolist(), value.dtype.numpy()).reshape(numbers.shape)  # a list says no dims of nothing

    def may_say_dims(self, node: ir.Node) -> bool:
        """Whether `shape_of` has a rule for a node."""
        return not node.domain and node.op_type in ("Resize", "Flatten", *_SHAPE_INPUTS)

    def shape_of(self, node: ir.Node) -> Sequence[Dim | None] | None:
        """Output dims of a node that takes them from a tensor, None for each unknown one; None if it takes none."""
        if node.op_type == "Resize" and not node.domain:
            return self._resized(node)
        if node.op_type == "Flatten" and not node.domain:
            return _flatten_dims(node)
        place = _SHAPE_INPUTS.get(node.op_type)
        value = operand(node, place) if place is not None and not node.domain else None
        numbers = None if value is None else self._of(value)
        if numbers is None:
            return _open_dims(node, value)
        if np.ndim(numbers) != 1:
            return None  # `check_ranks` refuses it
        if node.op_type == "ConstantOfShape":
            return list(numbers)
        dims = _dims(node.inputs[0])
        if dims is None:
            return _explicit_dims(node, numbers)
        if node.op_type == "Tile":
            return (
                [dim * count for dim, count in zip(dims, numbers, strict=False)] if len(dims) == len(numbers) else None
            )
        try:
            return (
                _expand_dims(dims, list(numbers))
                if node.op_type == "Expand"
                else _reshape_dims(node, dims, list(numbers))
            )
        except (ArithmeticError, IndexError):
            return _explicit_dims(node, numbers)

    def _resized(self, node: ir.Node) -> list[Dim | None] | None:
        """Output dims of a Resize, by sizes or by scales; axes that the node does not name are unchanged."""
        input_dims = dims_of(operand(node, 0))
        if input_dims is None:
            return None
        dims: list[Dim | None] = [_expression(dim.name) if isinstance(dim, SymbolicDim) else dim for dim in input_dims]
        axes = node.attributes.get_ints("axes", None) or range(len(dims))
        if not all(-len(dims) <= axis < len(dims) for axis in axes):
            return None
        new_dims: Sequence[Dim | None] = [None] * len(axes)
        if (sizes := operand(node, 3)) is not None:
            if node.attributes.get_string("keep_aspect_ratio_policy", "stretch") == "stretch":
                size_values = self._of(sizes)
                new_dims = new_dims if size_values is None else list(size_values)
        elif node.attributes.get_string("coordinate_transformation_mode", "") != "tf_crop_and_resize":
            factors = array_of(operand(node, 2 if len(node.inputs) > 2 else 1))  # before opset 11 there is no region
            if factors is not None and factors.shape == (len(axes),):
                new_dims = [_scale_dim(dims[axis], float(factor)) for axis, factor in zip(axes, factors, strict=True)]
        if len(new_dims) != len(axes):
            return None
        for axis, dim in zip(axes, new_dims, strict=True):
            dims[axis] = dim
        return dims

    def _of(self, value: ir.Value) -> Numbers | None:
        if value in self._known:
            return self._known[value]
        tensor = constant(value)
        if tensor is None or tensor.size > _MAX_ELEMENTS:
            return None
        numbers = tensor.numpy().astype(object)
        return numbers if _fits(numbers, tensor.dtype) else None


def _fits(numbers: Numbers, dtype: Any) -> bool:
    """Whether a tensor of this type can hold the numbers, and they are few enough to be dims."""
    if dtype is None or dtype.name not in ("INT32", "INT64", "BOOL") or numbers.size > _MAX_ELEMENTS:
        return False
    if dtype.name == "BOOL":
        return True
    limits = np.iinfo(dtype.numpy())
    return all(
        isinstance(number, SymbolicDim) or limits.min <= number <= limits.max for number in numbers.ravel().tolist()
    )


def _numbers(values: Iterable[Dim]) -> Numbers:
    items = list(values)
    array = np.empty(len(items), object)
    array[:] = items
    return array


def _dims(value: ir.Value | None) -> list[Dim] | None:
    dims = dims_of(value)
    if dims is None or any(dim is None for dim in dims):
        return None
    return [dim if isinstance(dim, int) else _expression(dim.name) for dim in dims]


def _expression(text: str) -> Dim:
    """Parse a dim that `SymbolicDim` wrote as text."""
    if text.removeprefix("-").isdecimal():
        return int(text)
    depth, parts = 0, text[1:-1].split(" ") if text.startswith("(") and text.endswith(")") else []
    for place, part in enumerate(parts):
        if depth == 0 and part in ("+", "-", "*", "//", "%"):
            left, right = (" ".join(side) for side in (parts[:place], parts[place + 1 :]))
            return SymbolicDim(part, _expression(left), _expression(right))
        depth += part.count("(") - part.count(")")
    return SymbolicDim(text)


def _factors(dims: Iterable[Dim]) -> tuple[int, Counter[SymbolicDim]]:
    """A product as a number and symbols."""
    number, symbols = 1, Counter[SymbolicDim]()
    waiting = list(dims)
    while waiting:
        dim = waiting.pop()
        if not isinstance(dim, SymbolicDim):
            number *= int(dim)
        elif dim.name == "*" and dim.left is not None and dim.right is not None:
            waiting += [dim.left, dim.right]
        else:
            symbols[dim] += 1
    return number, symbols


def _quotient(above: Iterable[Dim], below: Iterable[Dim]) -> Dim:
    """The quotient of two products, if the division is exact."""
    (number, symbols), (divisor, others) = _factors(above), _factors(below)
    if others - symbols or divisor == 0 or number % divisor:
        raise ArithmeticError("the quotient is not known")
    result: Dim = number // divisor
    for symbol in (symbols - others).elements():
        result = symbol * result
    return result


def _open_dims(node: ir.Node, sizes: ir.Value | None) -> list[None] | None:
    """As many unknown dims as the Reshape's shape has elements."""
    dims = dims_of(sizes)
    return [None] * dims[0] if node.op_type == "Reshape" and dims and isinstance(dims[0], int) else None


def _explicit_dims(node: ir.Node, shape: Iterable[Dim]) -> list[Dim | None] | None:
    """Dims that a Reshape's shape gives directly; None for each that depends on the tensor."""
    return [None if dim in (0, -1) else dim for dim in shape] if node.op_type == "Reshape" else None


def _flatten_dims(node: ir.Node) -> list[Dim] | None:
    dims, axis = _dims(node.inputs[0]), node.attributes.get_int("axis", 1)
    if dims is None or not -len(dims) <= axis <= len(dims):
        return None
    axis += len(dims) if axis < 0 else 0
    one: Dim = 1
    return [math.prod(dims[:axis], start=one), math.prod(dims[axis:], start=one)]


def _reshape_dims(node: ir.Node, dims: list[Dim], shape: list[Dim]) -> list[Dim]:
    if not node.attributes.get_int("allowzero", 0):
        shape = [dims[place] if dim == 0 else dim for place, dim in enumerate(shape)]
    known_dims = [dim for dim in shape if dim != -1]
    if len(known_dims) == len(shape):
        return shape
    missing = _quotient(dims, known_dims)
    return [missing if dim == -1 else dim for dim in shape]


def _expand_dims(dims: list[Dim], shape: list[Dim]) -> list[Dim] | None:
    rank = max(len(dims), len(shape))
    result: list[Dim] = []
    for one, other in zip([1] * (rank - len(dims)) + dims, [1] * (rank - len(shape)) + shape, strict=True):
        if one == other or other == 1:
            result.append(one)
        elif one == 1:
            result.append(other)
        else:
            return None
    return result


def _scale_dim(dim: Dim | None, factor: float) -> Dim | None:
    """A dim times a factor, rounded down; None if float32 might round a free dim differently."""
    if dim is None or factor == 1:
        return dim
    if not 0 < factor < math.inf:
        return None
    if not isinstance(dim, SymbolicDim):
        return int(np.floor(np.float32(dim) * np.float32(factor)).item())
    if factor.is_integer():
        times: Dim = dim * int(factor)
        return times
    parts = 1 / factor
    if not parts.is_integer() or math.frexp(parts)[0] != 0.5:
        return None
    part: Dim = dim // int(parts)
    return part


def _elementwise(operation: Callable[[Any, Any], Any]) -> Callable[[ir.Node, Sequence[Any]], Numbers]:
    def rule(node: ir.Node, inputs: Sequence[Any]) -> Numbers:
        left, right = np.broadcast_arrays(inputs[0], inputs[1])
        result = np.empty(left.shape, object)
        for place in np.ndindex(left.shape):
            result[place] = operation(left[place], right[place])
        return result

    return rule


def _lower_bound(dim: Dim) -> float:
    """The lower bound of a number, if free dims are 1 or more."""
    if not isinstance(dim, SymbolicDim):
        return dim
    if dim.left is None or dim.right is None:
        return 1
    left, right = _lower_bound(dim.left), _lower_bound(dim.right)
    if dim.name == "+":
        return left + right
    if dim.name == "-" and not isinstance(dim.right, SymbolicDim):
        return left - right
    if dim.name == "*" and left >= 0 and right >= 0:
        return left * right
    return 0 if dim.name == "//" else -math.inf  # what is below 0 is not divided


def _divide(a: Dim, b: Dim) -> Dim:
    """A quotient, rounded towards zero."""
    try:
        return _quotient([a], [b])
    except ArithmeticError:
        if isinstance(a, SymbolicDim) or isinstance(b, SymbolicDim):
            if _lower_bound(a) < 0 or _lower_bound(b) <= 0:
                raise
            return a // b
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _same(a: Dim, b: Dim) -> bool:
    """Whether two are equal, where that is the same for all sizes of free dims."""
    if a == b:
        return True
    if _lower_bound(a - b) > 0 or _lower_bound(b - a) > 0:
        return False
    raise ArithmeticError("it hangs on sizes")


def _cast(node: ir.Node, inputs: Sequence[Any]) -> Numbers:
    """Cast between whole numbers, and from and to truth values."""
    to_bool = node.attributes.get_int("to", 0) == _BOOL
    converted = [
        bool(number) if to_bool else number if isinstance(number, SymbolicDim) else int(number)
        for number in inputs[0].flat
    ]
    return _numbers(converted).reshape(inputs[0].shape)


def _slice(node: ir.Node, inputs: Sequence[Any]) -> Numbers:
    begins, ends = inputs[1].reshape(-1), inputs[2].reshape(-1)
    step = int(inputs[4].reshape(-1)[0]) if len(inputs) > 4 and inputs[4] is not None else 1
    if inputs[0].ndim != 1 or len(begins) != 1:
        raise ArithmeticError("not of shape arithmetic")
    return inputs[0][bounded_slice(len(inputs[0]), int(begins[0]), int(ends[0]), step)]  # type: ignore[no-any-return]


def _shape(node: ir.Node, inputs: Sequence[Any]) -> Numbers:
    begin, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(inputs[0]))
    return inputs[0][begin:end]  # type: ignore[no-any-return]


def _where(node: ir.Node, inputs: Sequence[Any]) -> Numbers:
    condition, a, b = np.broadcast_arrays(*inputs)
    return np.where(condition.astype(bool), a, b)


_RULES: dict[str, Callable[[Any, Sequence[Any]], Numbers]] = {
    "Add": _elementwise(lambda a, b: a + b),
    "Cast": _cast,
    "Concat": lambda node, given: np.concatenate(given),
    "Div": _elementwise(_divide),
    "Equal": _elementwise(_same),
    "Gather": lambda node, given: np.asarray(given[0][given[1].astype(np.int64)], object),
    "Identity": lambda node, given: given[0],
    "Mul": _elementwise(lambda a, b: a * b),
    "Reshape": lambda node, given: given[0].reshape([int(size) for size in given[1]]),
    "Shape": _shape,
    "Size": lambda node, given: np.array(math.prod(given[0]), object),
    "Slice": _slice,
    "Squeeze": lambda node, given: given[0].reshape(()),
    "Sub": _elementwise(lambda a, b: a - b),
    "Unsqueeze": lambda node, given: given[0].reshape(-1),
    "Where": _where,
}
