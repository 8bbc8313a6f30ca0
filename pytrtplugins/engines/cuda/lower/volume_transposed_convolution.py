"""Rewrite a 3-D ConvTranspose as a 2-D one, whose input channels are those of several frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ....model.ir import array_of, is_op, operand
from ....utils.optional import ir
from .qdq import computed_constant
from .rewrite import is_around_zero, is_float
from .transposed_convolution import PhaseAxis, transposed_windows
from .volume_forms import Form
from .volume_layer import Found, Layer, frames_at

__all__ = ["transposed_convolution"]


def transposed_convolution(layer: Layer) -> Found | None:
    """Write a 3-D ConvTranspose as a 2-D one; None where weights or bias are computed in the run.

    The frames of an output fall into phases, by their places between those of the input. Each phase is a sum over a part of
    the filters' depth: one ConvTranspose reads the frames of such a sum side by side as channels, and gives those of all phases
    as channels.
    """
    node, new, group = layer.node, layer.new, layer.at.get("group", 1)
    weights, scale = _codes(node, group)
    bias = _constant(operand(node, 2))
    if not is_float(node) or weights is None or (operand(node, 2) is not None and bias is None):
        return None
    (n, c, d, h, w), (_, m, od, oh, ow) = layer.dims, layer.result
    kernel, steps, gaps, pads = transposed_windows(node, weights.shape[2:], layer.dims[2:], layer.result[2:])
    depth = PhaseAxis.of(kernel[0], steps[0], gaps[0], pads[0], d, od, is_free=False)
    phases, taps = depth.taps.shape
    data, *quantized = layer.forms.codes.get(layer.x, (layer.x,))
    x = layer.forms.image(data, Form.FRAMES, node)
    x = new.add("Reshape", [x, np.array([-1, d, c, h, w])], "window.parted", (n, d, c, h, w), like=data)
    dims: tuple[Any, ...]
    places = np.arange(depth.blocks)[:, None] + np.arange(taps)
    x = frames_at(new, x, depth.pads, places, "window")
    if group > 1 and taps > 1:
        dims = (depth.blocks, taps, group, c // group, h, w)
        x = new.add("Reshape", [x, np.array([-1, *dims])], "window.groups", (n, *dims), like=data)
        turned: tuple[Any, ...] = (n, depth.blocks, group, taps, *dims[3:])
        x = new.add("Transpose", [x], "window.turned", turned, like=data, perm=[0, 1, 3, 2, 4, 5, 6])
    to = (n * depth.blocks, taps * c, h, w)
    x = new.add("Reshape", [x, np.array([-1, *to[1:]])], "window", to, like=data)
    if quantized:
        x = new.add("DequantizeLinear", [x, *quantized], "window.values", to, like=layer.x)
    filters: Any = _filters(weights, depth, group)
    if scale:
        parts = [np.tile(each, phases) if each.size > 1 else each for each in scale]
        filters = new.add(
            "DequantizeLinear", [filters, *parts], "phases.weights", filters.shape, like=node.inputs[1], axis=1
        )
    read = [x, filters, *([] if bias is None else [np.repeat(bias.reshape(group, 1, -1), phases, 1).reshape(-1)])]
    dims = (n * depth.blocks, phases * m, oh, ow)
    x = new.add("ConvTranspose", read, "phases", dims, is_named=True, group=group, **_attributes(layer))
    if group > 1 and phases > 1:
        dims = (n, depth.blocks, group, phases, m // group, oh, ow)
        x = new.add("Reshape", [x, np.array([-1, *dims[1:]])], "depth.groups", dims)
        turned = (*dims[:2], phases, group, *dims[4:])
        x = new.add("Transpose", [x], "depth.turned", turned, perm=[0, 1, 3, 2, 4, 5, 6])
    if depth.is_cut:
        dims = (n, depth.blocks * phases, m, oh, ow)
        x = new.add("Reshape", [x, np.array([-1, *dims[1:]])], "depth.parted", dims)
        numbers = (np.array([number]) for number in (depth.shift, depth.shift + od, 1))
        x = new.add("Slice", [x, *numbers], "depth.inside", (n, od, m, oh, ow))
    elif phases == 1:
        return Form.FRAMES, x
    return Form.FRAMES, new.add("Reshape", [x, np.array([-1, m, oh, ow])], Form.FRAMES.value, (n * od, m, oh, ow))


# -- inside ----------------------------------------------------------------------------------------------------------------


def _codes(node: ir.Node, group: int) -> tuple[npt.NDArray[Any] | None, list[npt.NDArray[Any]]]:
    """The weights (C, M / group, kD, kH, kW), and the scale and zero point of their codes, by filter or all at once."""
    value = operand(node, 1)
    origin = None if value is None else value.producer()
    if origin is None or not is_op(origin, "DequantizeLinear"):
        return array_of(value), []
    codes, scale, zero = (array_of(operand(origin, index)) for index in range(3))
    if codes is None or scale is None:
        return None, []
    by_filter = scale.ndim == 1 and origin.attributes.get_int("axis", 1) in (1, -4) and group == 1
    if is_around_zero(origin) and (scale.size == 1 or by_filter):
        return codes, [scale] if zero is None else [scale, zero]
    return computed_constant(origin, codes), []


def _constant(value: ir.Value | None) -> npt.NDArray[Any] | None:
    """Return the values of a constant, dequantized if it is stored as codes; None if it is computed."""
    origin = None if value is None else value.producer()
    if origin is None or not is_op(origin, "DequantizeLinear"):
        return array_of(value)  # type: ignore[no-any-return]
    return computed_constant(origin, array_of(origin.inputs[0]))


def _filters(weights: npt.NDArray[Any], depth: PhaseAxis, group: int) -> npt.NDArray[Any]:
    """The weights of frames, (taps * C, phases * M / group, kH, kW): the channels of a group are its taps', and its filters the phases'."""
    phases, taps = depth.taps.shape
    c, m, _, *sides = weights.shape
    found = np.zeros((group, taps, c // group, phases, m, *sides), weights.dtype)
    for phase, tap in np.argwhere(depth.taps >= 0):
        found[:, tap, :, phase] = weights[:, :, depth.taps[phase, tap]].reshape(group, -1, m, *sides)
    return found.reshape(taps * c, phases * m, *sides)


def _attributes(layer: Layer) -> dict[str, Any]:
    """The attributes of a ConvTranspose of frames."""
    at = layer.at
    found: dict[str, Any] = {
        name: list(at[name][-2:]) for name in ("strides", "dilations", "output_padding", "output_shape") if name in at
    }
    found |= {"auto_pad": at["auto_pad"]} if "auto_pad" in at else {}
    if "pads" in at:
        begins, ends = at["pads"][:3], at["pads"][3:]
        found["pads"] = [*begins[1:], *ends[1:]]
    return found
