"""Find what float16 cannot hold: nodes whose values exceed its range, and Q/DQ scales that it rounds to 0."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..model.ir import add_constant, array_of, is_op, operand
from ..model.operator_traits import Trait, operators
from ..model.proto import node_name
from ..plugin.onnx_node import is_plugin_node, supports_dtype
from ..tensor import DType
from ..utils.optional import ir
from .codes import CODES

__all__ = ["FLOAT16_MAX", "fit_scales", "float_nodes"]

FLOAT16_MAX = float(np.finfo(np.float16).max)
"""65504."""
_HEADROOM = 2
"""Other inputs may give values that are larger than those that were seen; activations must fit this many times."""
_SMALLEST = np.float32(np.finfo(np.float16).smallest_subnormal)
_EXACT = np.float32(2.0**-9)
"""Relative error of a scale from which on the codes of weights are rounded again; float16's own is 2**-11."""
_SUBGRAPHS = operators(Trait.SUBGRAPHS)


def float_nodes(model: ir.Model, dtype: DType, ranges: Mapping[str, float]) -> dict[str, str]:
    """Find the nodes that stay in float32 when a model is written in half precision.

    1. Nodes with subgraphs, which `to_half` does not write in half precision.
    2. Plugins that do not take the type.
    3. For float16: nodes that read a constant beyond 65504.
    4. For float16: nodes that read or write a tensor whose range is beyond half of 65504. The tensor behind a Q/DQ pair has the
       range of the one before it.

    Args:
        model: A float32 model, with or without Q/DQ nodes.
        dtype: float16 or bfloat16.
        ranges: Tensor → largest absolute value that was seen; tensors that are not in it are taken to fit.

    Returns:
        Name of each such node → why.
    """
    maxima, reasons = dict(ranges), dict[str, str]()
    for node in model.graph:
        if is_op(node, "DequantizeLinear") and is_op(quantize := _producer(node), "QuantizeLinear"):
            source = quantize.inputs[0] if quantize is not None else None
            if source is not None and source.name in maxima and node.outputs[0].name:
                maxima[node.outputs[0].name] = maxima[source.name]
        why = _why_float(node, dtype, maxima)
        if why:
            reasons[node_name(node)] = why
    return reasons


def fit_scales(model: ir.Model, float_inputs: Callable[[ir.Node], Collection[int]] = lambda node: ()) -> bool:
    """Prepare the scales of Q/DQ nodes for float16, which cannot hold values below 6e-8, and few digits below 6e-5.

    A scale becomes a value that float16 holds, never 0. Where that changes the scale of weights by more than 2**-9, it is
    rounded up and their codes are rounded again: their values stay what they were, but for steps of 6e-8, which are those of
    weights in float16.

    Args:
        model: A model with float32 scales; it changes.
        float_inputs: A node → its inputs that stay float32: a scale among them stays what it is.

    Returns:
        Whether anything changed.
    """
    scales: dict[tuple[ir.Value, bool], ir.Value] = {}
    for node in [node for node in model.graph if node.op_type in ("QuantizeLinear", "DequantizeLinear")]:
        source, value = operand(node, 0), operand(node, 1)
        scale = array_of(value)
        if node.domain != "" or source is None or value is None or scale is None or scale.dtype != np.float32:
            continue
        if 1 in float_inputs(node):
            continue
        rounded = _round_to_float16(scale)
        codes = array_of(source) if node.op_type == "DequantizeLinear" else None
        again = False
        if codes is not None and not np.all(np.abs(rounded - scale) <= _EXACT * scale):
            again = True
            rounded = _round_to_float16(scale, up=True)
            kind = next(
                kind_of_codes for kind_of_codes in CODES.values() if np.dtype(kind_of_codes.dtype.numpy) == codes.dtype
            )
            ratio = _along(scale / rounded, codes.ndim, node.attributes.get_int("axis", 1))
            new_codes = kind.rounded(codes.astype(np.float32) * ratio)
            node.replace_input_with(0, add_constant(model.graph, f"{source.name}_float16", new_codes))
        if not np.array_equal(rounded, scale):
            key = value, again
            if key not in scales:
                scales[key] = add_constant(model.graph, f"{value.name}_float16", rounded)
            node.replace_input_with(1, scales[key])
    return bool(scales)


def _round_to_float16(scale: npt.NDArray[np.float32], *, up: bool = False) -> npt.NDArray[np.float32]:
    """Round scales to float16, returned as float32; ``up``: no result is below the input."""
    half = scale.astype(np.float16)
    if up:
        half = np.where(half.astype(np.float32) < scale, np.nextafter(half, np.float16(np.inf)), half)
    return np.maximum(half.astype(np.float32), np.where(scale > 0, _SMALLEST, np.float32(0)))


def _along(values: npt.NDArray[np.float32], rank: int, axis: int) -> npt.NDArray[np.float32]:
    """Reshape values, one or a vector along an axis, so that they broadcast to an array of this rank."""
    if values.ndim == 0:
        return values
    dims = [1] * rank
    dims[axis] = values.size
    return values.reshape(dims)


def _why_float(node: ir.Node, dtype: DType, ranges: Mapping[str, float]) -> str:
    if node.op_type in _SUBGRAPHS and node.domain == "":
        return "it holds a subgraph"
    if is_plugin_node(node) and not supports_dtype(node, dtype):
        return f"the plugin takes no {dtype}"
    if dtype is not DType.FLOAT16:
        return ""
    for name, array in _constants(node):
        if array.dtype == np.float32:
            largest = float(np.abs(array[np.isfinite(array)]).max(initial=0))
            if largest > FLOAT16_MAX:
                return f"constant {name!r} holds {largest:g}"
    for value in (*node.inputs, *node.outputs):
        largest = ranges.get(str(value.name), 0) if value is not None else 0
        if value is not None and _HEADROOM * largest > FLOAT16_MAX:
            return f"tensor {value.name!r} reaches {largest:g}"
    return ""


def _constants(node: ir.Node) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Names and values of the constants that a node reads, and of the tensors in its attributes."""
    for value in node.inputs:
        array = array_of(value)
        if value is not None and array is not None:
            yield str(value.name), array
    if node.domain == "" and node.op_type != "Constant":
        for name, attribute in node.attributes.items():
            if attribute.type.name == "TENSOR":
                yield name, attribute.as_tensor().numpy()


def _producer(node: ir.Node) -> ir.Node | None:
    return node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
