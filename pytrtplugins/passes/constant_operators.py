"""Operators on constant arrays in NumPy, where ONNX's reference implementation is wrong in some form, or takes long to set up."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..model.slices import bounded_slice
from ..utils.optional import ir, require

__all__ = ["COMPUTED", "is_small_arithmetic"]

_PLAIN = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 11: np.float64}
"""Number of an element type in ONNX → its NumPy type, where NumPy's conversions are ONNX's."""
_MAX_SMALL = 1 << 12
"""Elements that a result of small arithmetic has at most."""


def is_small_arithmetic(node: ir.Node, arrays: list[Any]) -> bool:
    """Whether a node on these constants is of `COMPUTED`, and gives few elements whatever their values are."""
    if node.op_type not in _BOUNDED_BY_INPUTS or any(array is None for array in arrays):
        return False
    return bool(math.prod(max(array.size, 1) for array in arrays) <= _MAX_SMALL)


def _clip(node: ir.Node, x: Any, *bounds: Any) -> Any:
    """Compute Clip; ONNX's reference implementation mistakes an omitted bound for the other in some forms."""
    limits = np.iinfo(x.dtype) if x.dtype.kind in "iu" else require("ml_dtypes", extra="onnx").finfo(x.dtype)
    if len(node.inputs) == 1:  # before opset 11 bounds are attributes
        bounds = tuple(node.attributes.get_float(name, None) for name in ("min", "max"))
    for index, (limit, end) in enumerate(((np.maximum, limits.min), (np.minimum, limits.max))):
        bound = bounds[index] if index < len(bounds) and bounds[index] is not None else end
        x = limit(x, np.asarray(bound).astype(x.dtype))
    return np.asarray(x)


def _dequantize(node: ir.Node, x: Any, scale: Any, zero: Any = None) -> Any:
    """Compute DequantizeLinear for one scale; ONNX's reference implementation has only its newer versions."""
    values = x.astype(np.float32) - (0 if zero is None else zero.astype(np.float32).reshape(()))
    return np.asarray(values * scale.reshape(()), scale.dtype)


def _slice(node: ir.Node, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    """Compute Slice; ONNX's reference implementation treats a start outside the axis as Python does."""
    chosen = [slice(None)] * x.ndim
    for index, axis in enumerate(range(len(starts)) if axes is None else axes):
        step = 1 if steps is None else int(steps[index])
        chosen[int(axis)] = bounded_slice(x.shape[axis], int(starts[index]), int(ends[index]), step)
    return x[tuple(chosen)]


# -- as the reference implementation computes them; None: it has to, or refuses them ---------------------------------------


def _elementwise(operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def compute(node: ir.Node, a: Any, b: Any) -> Any:
        if a.dtype != b.dtype or a.dtype.type not in _PLAIN.values() or a.dtype == bool:
            return None
        return np.asarray(operation(a, b))

    return compute


def _where(node: ir.Node, condition: Any, a: Any, b: Any) -> Any:
    return None if a.dtype != b.dtype or condition.dtype != bool else np.where(condition, a, b)


def _cast(node: ir.Node, x: Any) -> Any:
    kind = _PLAIN.get(node.attributes.get_int("to", 0))
    return None if kind is None or x.dtype.type not in _PLAIN.values() else x.astype(kind)


def _unsqueeze(node: ir.Node, x: Any, axes: Any = None) -> Any:
    return None if axes is None or axes.ndim != 1 else np.expand_dims(x, tuple(map(int, axes)))


def _squeeze(node: ir.Node, x: Any, axes: Any = None) -> Any:
    return None if axes is None or axes.ndim != 1 else np.squeeze(x, tuple(map(int, axes)))


def _concat(node: ir.Node, *arrays: Any) -> Any:
    axis = node.attributes.get_int("axis", None)
    if axis is None or any(array is None or array.dtype != arrays[0].dtype for array in arrays):
        return None
    return np.concatenate(arrays, axis)


def _gather(node: ir.Node, x: Any, indices: Any) -> Any:
    return np.asarray(np.take(x, indices, axis=node.attributes.get_int("axis", 0)))


def _reshape(node: ir.Node, x: Any, shape: Any = None) -> Any:
    if shape is None or shape.ndim != 1 or shape.dtype != np.int64 or not shape.all():  # a 0 copies a dim, or is one
        return None
    return np.reshape(x, shape)


def _expand(node: ir.Node, x: Any, shape: Any) -> Any:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(map(int, shape)))).copy()


def _constant_of_shape(node: ir.Node, shape: Any) -> Any:
    attribute = node.attributes.get("value")
    value = np.zeros(1, np.float32) if attribute is None else attribute.as_tensor().numpy()
    return None if value.size != 1 or shape.ndim != 1 else np.full(tuple(map(int, shape)), value.flat[0])


def _transpose(node: ir.Node, x: Any) -> Any:
    return np.transpose(x, node.attributes.get_ints("perm", None) or None)


COMPUTED: dict[str, Callable[..., Any]] = {
    "Add": _elementwise(np.add),
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DequantizeLinear": _dequantize,
    "Equal": _elementwise(np.equal),
    "Expand": _expand,
    "Gather": _gather,
    "Identity": lambda node, x: x,
    "Mul": _elementwise(np.multiply),
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _elementwise(np.subtract),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""Operator → function of a node and its constant inputs, None for those that are left out; it gives None where it does not compute the
node, and raises an ArithmeticError, LookupError, TypeError or ValueError where the node cannot be computed."""
_BOUNDED_BY_INPUTS = COMPUTED.keys() - {"Clip", "ConstantOfShape", "DequantizeLinear", "Expand"}
"""Operators whose results have at most as many elements as the product of their inputs' sizes."""
