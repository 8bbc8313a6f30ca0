"""Shape arithmetic with free dims: small tensors of whole numbers some of which are known only as expressions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.ir import array_of, constant, dims_of, operand
from ..model.slices import bounded_slice
from ..tensor import Dim, SymbolicDim

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["PartialValues"]

_MAX_ELEMENTS = 64
_BOOL = 9  # TensorProto.BOOL
_SHAPE_INPUTS = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Tile": 1}
"""Operator → its input that says the dims of what it gives."""
Numbers = np.ndarray[Any, np.dtype[np.object_]]
"""Of int and SymbolicDim."""


class PartialValues:
    """What is known of tensors that hold dims, noted node by node.

    An export with a free batch computes shapes: Shape, Gather, Mul, Concat, Reshape. ONNX's inference loses the dims there;
    they are followed here as far as each is a number, or an expression of free dims.
    """

    def __init__(self) -> None:
        self._known: dict[ir.Value, Numbers] = {}

    def note(self, node: ir.Node) -> None:
        """Work out what a node gives, where it is one of shape arithmetic."""
        rule = _RULES.get(node.op_type)
        if rule is None or node.domain:
            return
        if node.op_type in ("Shape", "Size"):
            dims = _dims(node.inputs[0])
            given: Sequence[Numbers | None] = [None if dims is None else _numbers(dims)]
        else:
            given = [None if value is None else self._of(value) for value in node.inputs]
            if any(found is None and value is not None for found, value in zip(given, node.inputs, strict=True)):
                return
        if given[0] is None or any(each is not None and each.ndim > 1 for each in given):
            return  # a table of numbers is not a shape
        try:
            found = rule(node, given)
        except (ArithmeticError, IndexError, ValueError):  # expressions whose result is not known
            return
        output = node.outputs[0]
        if output.shape is not None and found.ndim == len(output.shape) and _fits(found, output.dtype):
            self._known[output] = found

    def constant(self, value: ir.Value) -> Any:
        """A tensor all of whose numbers are known, as an array; None of others."""
        found = self._known.get(value)
        if found is None or value.dtype is None or any(isinstance(each, SymbolicDim) for each in found.flat):
            return None
        return np.array(found.tolist(), value.dtype.numpy()).reshape(found.shape)  # a list says no dims of nothing

    def shape_of(self, node: ir.Node) -> Sequence[Dim | None] | None:
        """The output's dims of a node that takes them from a tensor, None for each that is not known; None where none is."""
        if node.op_type == "Resize" and not node.domain:
            return self._resized(node)
        if node.op_type == "Flatten" and not node.domain:
            return _flattened(node)
        place = _SHAPE_INPUTS.get(node.op_type)
        value = operand(node, place) if place is not None and not node.domain else None
        wanted = None if value is None else self._of(value)
        if wanted is None:
            return _open_dims(node, value)
        if np.ndim(wanted) != 1:
            return None  # `check_ranks` refuses it
        if node.op_type == "ConstantOfShape":
            return list(wanted)
        dims = _dims(node.inputs[0])
        if dims is None:
            return _said(node, wanted)
        if node.op_type == "Tile":
            return [dim * count for dim, count in zip(dims, wanted, strict=False)] if len(dims) == len(wanted) else None
        try:
            return _expanded(dims, list(wanted)) if node.op_type == "Expand" else _reshaped(node, dims, list(wanted))
        except (ArithmeticError, IndexError):
            return _said(node, wanted)

    def _resized(self, node: ir.Node) -> list[Dim | None] | None:
        """Each axis has its size, or its factor; the others, where the node names its axes, stay as they are."""
        given = dims_of(operand(node, 0))
        if given is None:
            return None
        dims: list[Dim | None] = [_expression(dim.name) if isinstance(dim, SymbolicDim) else dim for dim in given]
        axes = node.attributes.get_ints("axes", None) or range(len(dims))
        if not all(-len(dims) <= axis < len(dims) for axis in axes):
            return None
        found: Sequence[Dim | None] = [None] * len(axes)
        if (sizes := operand(node, 3)) is not None:
            if node.attributes.get_string("keep_aspect_ratio_policy", "stretch") == "stretch":
                known = self._of(sizes)
                found = found if known is None else list(known)
        elif node.attributes.get_string("coordinate_transformation_mode", "") != "tf_crop_and_resize":
            factors = array_of(operand(node, 2 if len(node.inputs) > 2 else 1))  # before opset 11 there is no region
            if factors is not None and factors.shape == (len(axes),):
                found = [_scaled(dims[axis], float(factor)) for axis, factor in zip(axes, factors, strict=True)]
        if len(found) != len(axes):
            return None
        for axis, dim in zip(axes, found, strict=True):
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
    return all(isinstance(each, SymbolicDim) or limits.min <= each <= limits.max for each in numbers.ravel().tolist())


def _numbers(values: Iterable[Dim]) -> Numbers:
    found = list(values)
    array = np.empty(len(found), object)
    array[:] = found
    return array


def _dims(value: ir.Value | None) -> list[Dim] | None:
    dims = dims_of(value)
    if dims is None or any(dim is None for dim in dims):
        return None
    return [dim if isinstance(dim, int) else _expression(dim.name) for dim in dims]


def _expression(text: str) -> Dim:
    """A dim from its text, as `SymbolicDim` writes it: what a shape holds of it."""
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
    """One product divided by another, where it goes up."""
    (number, symbols), (divisor, others) = _factors(above), _factors(below)
    if others - symbols or divisor == 0 or number % divisor:
        raise ArithmeticError("the quotient is not known")
    result: Dim = number // divisor
    for symbol in (symbols - others).elements():
        result = symbol * result
    return result


def _open_dims(node: ir.Node, sizes: ir.Value | None) -> list[None] | None:
    """As many open dims as a Reshape is given sizes."""
    dims = dims_of(sizes)
    return [None] * dims[0] if node.op_type == "Reshape" and dims and isinstance(dims[0], int) else None


def _said(node: ir.Node, wanted: Iterable[Dim]) -> list[Dim | None] | None:
    """Dims that a Reshape says by themselves; None in the place of each that hangs on the tensor."""
    return [None if dim in (0, -1) else dim for dim in wanted] if node.op_type == "Reshape" else None


def _flattened(node: ir.Node) -> list[Dim] | None:
    dims, axis = _dims(node.inputs[0]), node.attributes.get_int("axis", 1)
    if dims is None or not -len(dims) <= axis <= len(dims):
        return None
    axis += len(dims) if axis < 0 else 0
    one: Dim = 1
    return [math.prod(dims[:axis], start=one), math.prod(dims[axis:], start=one)]


def _reshaped(node: ir.Node, dims: list[Dim], wanted: list[Dim]) -> list[Dim]:
    if not node.attributes.get_int("allowzero", 0):
        wanted = [dims[place] if dim == 0 else dim for place, dim in enumerate(wanted)]
    rest = [dim for dim in wanted if dim != -1]
    if len(rest) == len(wanted):
        return wanted
    missing = _quotient(dims, rest)
    return [missing if dim == -1 else dim for dim in wanted]


def _expanded(dims: list[Dim], wanted: list[Dim]) -> list[Dim] | None:
    rank = max(len(dims), len(wanted))
    result: list[Dim] = []
    for one, other in zip([1] * (rank - len(dims)) + dims, [1] * (rank - len(wanted)) + wanted, strict=True):
        if one == other or other == 1:
            result.append(one)
        elif one == 1:
            result.append(other)
        else:
            return None
    return result


def _scaled(dim: Dim | None, factor: float) -> Dim | None:
    """A dim times a factor, rounded down; None where float32 could round a free one otherwise than whole numbers do."""
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
    def rule(node: ir.Node, given: Sequence[Any]) -> Numbers:
        left, right = np.broadcast_arrays(given[0], given[1])
        found = np.empty(left.shape, object)
        for place in np.ndindex(left.shape):
            found[place] = operation(left[place], right[place])
        return found

    return rule


def _least(dim: Dim) -> float:
    """What a number is at least, where free dims are 1 or more."""
    if not isinstance(dim, SymbolicDim):
        return dim
    if dim.left is None or dim.right is None:
        return 1
    left, right = _least(dim.left), _least(dim.right)
    if dim.name == "+":
        return left + right
    if dim.name == "-" and not isinstance(dim.right, SymbolicDim):
        return left - right
    if dim.name == "*" and left >= 0 and right >= 0:
        return left * right
    return 0 if dim.name == "//" else -math.inf  # what is below 0 is not divided


def _divided(a: Dim, b: Dim) -> Dim:
    """A quotient, rounded towards zero."""
    try:
        return _quotient([a], [b])
    except ArithmeticError:
        if isinstance(a, SymbolicDim) or isinstance(b, SymbolicDim):
            if _least(a) < 0 or _least(b) <= 0:
                raise
            return a // b
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _same(a: Dim, b: Dim) -> bool:
    """Whether two are equal, where that is the same for all sizes of free dims."""
    if a == b:
        return True
    if _least(a - b) > 0 or _least(b - a) > 0:
        return False
    raise ArithmeticError("it hangs on sizes")


def _cast(node: ir.Node, given: Sequence[Any]) -> Numbers:
    """From truth values, and between whole numbers."""
    to_bool = node.attributes.get_int("to", 0) == _BOOL
    found = [bool(each) if to_bool else each if isinstance(each, SymbolicDim) else int(each) for each in given[0].flat]
    return _numbers(found).reshape(given[0].shape)


def _sliced(node: ir.Node, given: Sequence[Any]) -> Numbers:
    begins, ends = given[1].reshape(-1), given[2].reshape(-1)
    step = int(given[4].reshape(-1)[0]) if len(given) > 4 and given[4] is not None else 1
    if given[0].ndim != 1 or len(begins) != 1:
        raise ArithmeticError("not of shape arithmetic")
    return given[0][bounded_slice(len(given[0]), int(begins[0]), int(ends[0]), step)]  # type: ignore[no-any-return]


def _shape(node: ir.Node, given: Sequence[Any]) -> Numbers:
    begin, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(given[0]))
    return given[0][begin:end]  # type: ignore[no-any-return]


def _where(node: ir.Node, given: Sequence[Any]) -> Numbers:
    condition, a, b = np.broadcast_arrays(*given)
    return np.where(condition.astype(bool), a, b)


_RULES: dict[str, Callable[[Any, Sequence[Any]], Numbers]] = {
    "Add": _elementwise(lambda a, b: a + b),
    "Cast": _cast,
    "Concat": lambda node, given: np.concatenate(given),
    "Div": _elementwise(_divided),
    "Equal": _elementwise(_same),
    "Gather": lambda node, given: np.asarray(given[0][given[1].astype(np.int64)], object),
    "Identity": lambda node, given: given[0],
    "Mul": _elementwise(lambda a, b: a * b),
    "Reshape": lambda node, given: given[0].reshape([int(size) for size in given[1]]),
    "Shape": _shape,
    "Size": lambda node, given: np.array(math.prod(given[0]), object),
    "Slice": _sliced,
    "Squeeze": lambda node, given: given[0].reshape(()),
    "Sub": _elementwise(lambda a, b: a - b),
    "Unsqueeze": lambda node, given: given[0].reshape(-1),
    "Where": _where,
}
