"""Rewrite 3-D convolutions and pools as 2-D ones, for which the engine has kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ....model.ir import array_of, dims_of, dtype_of, is_op, operand, remove_unused
from ....model.proto import node_name
from ....passes import Pass, PassResult
from ....tensor import DType
from ....utils.optional import ir
from ....utils.override import override
from ..device.layout import CODES
from ..naming import naming
from ..operators.attributes import operator_attributes
from ..operators.windows import Windows
from .data_dependent import data_dependent_values
from .new_nodes import NewNodes
from .qdq import computed_constant
from .rewrite import DOMAIN, is_around_zero, is_float
from .volume_forms import Form, VolumeForms, row_major_pools, volume_dims
from .volume_layer import Found, Layer, frames_at
from .volume_transposed_convolution import transposed_convolution

__all__ = ["WriteVolumes"]

_MAX_CHANNELS = 4
"""Channels of a volume of which the columns of a window become channels too, as in `GatherPatches`."""
_MAX_OVERLAP = 4
"""How often a column may be copied."""


class WriteVolumes(Pass):
    """Conv, ConvTranspose, MaxPool, AveragePool and global pools of volumes → the same of images, with the operators between them.

    A volume (N, C, D, H, W) is held by images in one of two forms (`Form`), whose values lie in one order in NHWC. A convolution becomes

    1. one of frames, where its filters have a depth of 1;
    2. one of lines, where its filters are D x 1 x 1;
    3. where all its filters are depthwise, one of frames for each depth of its filters, and the sum of what they give for shifted frames;
    4. otherwise one of frames that has the frames of a window side by side as channels, (N * D', kD * C, H, W). These are
       copied, kD times as many values as the volume has; from a volume of up to 4 channels the columns of a window are copied as
       channels too, and filters of D x 1 x 1 with a stride get those places alone that they read.

    A ConvTranspose becomes one of frames (`transposed_convolution`), a pool the engine's ``VolumePool`` of frames; a pool that no
    convolution is connected with stays, since its tensors are row-major, for which there is one kernel. Elementwise
    operators, Q/DQ and Concat of channels between these work on the images, so that a chain of convolutions has no copies but
    those of case 4.

    What does not match: (1) dims that are unknown but for the batch; (2) weights that are computed in the run; (3) other types
    than float32 and float16, in pools also int8 and FP8; (4) pools with dilations, or with indices as a second output; (5) negative pads.
    """

    name: ClassVar[str] = "volumes"

    @override
    def call(self, model: ir.Model) -> PassResult:
        graph, modified = model.graph, False
        if not any(node.op_type in _LAYERS and volume_dims(node.inputs[0]) for node in graph if node.inputs):
            return PassResult(model, False)
        hanging, forms, alone = data_dependent_values(graph), VolumeForms(graph), row_major_pools(graph)
        for node in list(graph):
            if hanging.isdisjoint(node.outputs) and node not in alone:
                with naming(node_name(node), node.op_type):
                    modified |= _write(forms, node) or forms.carry(node)
        if modified:
            remove_unused(model)
        return PassResult(model, modified)


def _write(forms: VolumeForms, node: ir.Node) -> bool:
    """Rewrite a 3-D layer as a 2-D one; return whether it was possible."""
    rule = None if node.domain else _LAYERS.get(node.op_type)
    dims, result = (volume_dims(value) for value in (node.inputs[0], node.outputs[0])) if rule else (None, None)
    if rule is None or dims is None or result is None or any(value.name for value in node.outputs[1:]):  # cases 1 and 4
        return False
    at = operator_attributes(node)
    kernel = at.get("kernel_shape", (dims_of(operand(node, 1)) or ())[2:])
    if len(kernel) != 3 or not all(isinstance(size, int) for size in kernel):
        kernel = dims[2:]
    window = Windows.of(at, kernel, dims[2:], result[2:])
    if min((*window.begins, *window.ends, *at.get("pads", ()))) < 0:  # case 5
        return False
    if at.get("auto_pad", "NOTSET") == "NOTSET" and "pads" in at and not at.get("ceil_mode", 0):
        window = Windows(tuple(kernel), window.strides, window.dilations, window.begins, tuple(at["pads"][3:]))
    found = rule(Layer(forms, node, dims, result, at, window))
    if found is None:
        return False
    form, image, *codes = found
    volume = forms.replace(node, form, image)
    if codes:
        forms.note_codes(volume, *codes)
    return True


# -- convolutions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Filters:
    """The filters (M, C / group, kD, kH, kW) of a convolution, and what dequantizes them, by filter or all at once."""

    array: npt.NDArray[Any]
    origin: ir.Node | None

    @classmethod
    def of(cls, node: ir.Node) -> _Filters | None:
        """The filters of a node; None if they are computed in the run."""
        value = operand(node, 1)
        origin = None if value is None else value.producer()
        if origin is None or not is_op(origin, "DequantizeLinear"):
            array = array_of(value)
            return None if array is None or array.ndim != 5 else cls(array, None)
        codes, steps = (array_of(operand(origin, index)) for index in range(2))
        if codes is None or steps is None or codes.ndim != 5:
            return None
        by_filter = steps.size == 1 or (steps.ndim == 1 and origin.attributes.get_int("axis", 1) in (0, -5))
        if by_filter and is_around_zero(origin):
            return cls(codes, origin)
        values = computed_constant(origin, codes)
        return None if values is None else cls(values, None)

    def added(self, new: NewNodes, array: npt.NDArray[Any], what: str) -> npt.NDArray[Any] | ir.Value:
        """Return 2-D filters made of these as weights of a Conv, through a new DequantizeLinear if they are codes."""
        array = np.ascontiguousarray(array)
        if self.origin is None:
            return array
        parts = [value for value in self.origin.inputs[1:] if value is not None]
        weights = self.origin.outputs[0]
        return new.add("DequantizeLinear", [array, *parts], f"{what}.weights", array.shape, like=weights, axis=0)


def _conv(layer: Layer) -> Found | None:
    filters = _Filters.of(layer.node) if is_float(layer.node) else None
    if filters is None:  # cases 2 and 3
        return None
    (m, channels, depth, *_), forms, node = filters.array.shape, layer.forms, layer.node
    group = layer.at.get("group", 1)
    if layer.is_plain((0, 1, 2)):
        is_result = node.outputs[0].is_graph_output()  # whose order is that of lines that are not NHWC
        form = Form.LINES if is_result else forms.native.get(layer.x, Form.LINES)
        x = forms.image(layer.x, form, node)
        return form, _add_conv(layer, filters, form, x, filters.array[:, :, 0])
    if layer.is_plain((1, 2)):
        x, weights = forms.image(layer.x, Form.LINES, node), filters.array[..., 0]
        return Form.LINES, _add_conv(layer, filters, Form.LINES, x, weights, layer.window_of((0,)))
    few = channels * group <= _MAX_CHANNELS and group == 1 and filters.array.shape[4] > 1
    few &= filters.array.shape[4] <= _MAX_OVERLAP * layer.window.strides[2]
    if layer.is_plain((0,)) and not few:
        x, weights = forms.image(layer.x, Form.FRAMES, node), filters.array[:, :, 0]
        return Form.FRAMES, _add_conv(layer, filters, Form.FRAMES, x, weights, layer.window_of((1, 2)))
    if channels == 1 and m == group > 1 and depth > 1:
        return Form.FRAMES, _write_depthwise(layer, filters)
    return Form.FRAMES, _write_gathered_conv(layer, filters, few)


def _add_conv(
    layer: Layer,
    filters: _Filters,
    form: Form,
    x: ir.Value,
    weights: npt.NDArray[Any],
    window: dict[str, list[int]] | None = None,
) -> ir.Value:
    """Add the 2-D convolution that replaces the layer."""
    new = layer.new
    read = [x, filters.added(new, weights, form.value), *layer.node.inputs[2:3]]
    at = {**(window or {}), "kernel_shape": list(weights.shape[2:]), "group": layer.at.get("group", 1)}
    return new.add("Conv", read, form.value, form.dims(layer.result), is_named=True, **at)


def _write_depthwise(layer: Layer, filters: _Filters) -> ir.Value:
    """Case 3: a convolution of frames for each depth of the filters, whose results for shifted frames are summed."""
    new, window, (n, c, d, _, _), (_, _, od, oh, ow) = layer.new, layer.window, layer.dims, layer.result
    x, total = layer.forms.image(layer.x, Form.FRAMES, layer.node), None
    at: dict[str, Any] = {**layer.window_of((1, 2)), "kernel_shape": list(window.kernel[1:]), "group": c}
    for place in range(window.kernel[0]):
        what = f"depth{place}"
        read = [x, filters.added(new, filters.array[:, :, place], what)]
        part = new.add("Conv", read, what, (n * d, c, oh, ow), **at)
        part = new.add("Reshape", [part, np.array([-1, d, c, oh, ow])], f"{what}.parted", (n, d, c, oh, ow))
        part = frames_at(
            new, part, window.room(0), np.arange(od) * window.strides[0] + place * window.dilations[0], what
        )
        part = new.add("Reshape", [part, np.array([-1, c, oh, ow])], f"{what}.shifted", (n * od, c, oh, ow))
        total = part if total is None else new.add("Add", [total, part], f"{what}.sum", (n * od, c, oh, ow))
    assert total is not None
    bias = operand(layer.node, 2)
    if bias is None:
        return total
    column = new.add("Reshape", [bias, np.array([c, 1, 1])], "bias", (c, 1, 1))
    return new.add("Add", [total, column], Form.FRAMES.value, (n * od, c, oh, ow), is_named=True)


def _write_gathered_conv(layer: Layer, filters: _Filters, few: bool) -> ir.Value:
    """Case 4: a convolution of frames whose channels are those of all frames of a window; ``few``: of all columns, too."""
    data, *scale = layer.forms.codes.get(layer.x, (layer.x,))
    x, at = _gather_input(layer, data, few)
    if scale:
        x = layer.new.add("DequantizeLinear", [x, *scale], "window.values", dims_of(x) or (), like=layer.x)
    order = (0, 2, 4, 1, 3) if few else (0, 2, 1, 3, 4)
    rows, columns = filters.array.shape[3], 1 if few else filters.array.shape[4]
    weights = filters.array.transpose(order).reshape(len(filters.array), -1, rows, columns)
    return _add_conv(layer, filters, Form.FRAMES, x, weights, at)


def _gather_input(layer: Layer, data: ir.Value, few: bool) -> tuple[ir.Value, dict[str, list[int]]]:
    """Gather the input of a convolution of case 4; return it with the remaining window attributes."""
    new, window, group = layer.new, layer.window, layer.at.get("group", 1)
    (n, c, d, h, w), (_, _, od, _, ow), (kd, kh, kw) = layer.dims, layer.result, window.kernel
    at = layer.window_of((1, 2))
    x = layer.forms.image(data, Form.FRAMES, layer.node)
    x = new.add("Reshape", [x, np.array([-1, d, c, h, w])], "window.parted", (n, d, c, h, w), like=data)
    if kh == kw == 1 and not any(at["pads"]):
        ends, (down, across) = np.array([h, w]), at["strides"]
        h, w = -(-h // down), -(-w // across)
        numbers = [np.array([0, 0]), ends, np.array([3, 4]), np.array([down, across])]
        x = new.add("Slice", [x, *numbers], "window.places", (n, d, c, h, w), like=data)
        at["strides"] = [1, 1]
    places = np.arange(od)[:, None] * window.strides[0] + np.arange(kd) * window.dilations[0]
    x = frames_at(new, x, window.room(0), places, "window", window.room(2) if few else (0, 0))
    if few:
        columns = np.arange(ow)[:, None] * window.strides[2] + np.arange(kw) * window.dilations[2]
        x = new.add("Gather", [x, columns], "window.columns", (n, od, kd, c, h, ow, kw), like=data, axis=5)
        x = new.add("Transpose", [x], "window.turned", (n, od, kd, kw, c, h, ow), like=data, perm=[0, 1, 2, 6, 3, 4, 5])
        w, c = ow, c * kw
        at = {**at, "strides": [at["strides"][0], 1], "pads": [at["pads"][0], 0, at["pads"][2], 0]}
        at["dilations"] = [at["dilations"][0], 1]
    elif group > 1 and kd > 1:
        dims = (od, kd, group, c // group, h, w)
        x = new.add("Reshape", [x, np.array([-1, *dims])], "window.groups", (n, *dims), like=data)
        turned = (n, od, group, kd, c // group, h, w)
        x = new.add("Transpose", [x], "window.turned", turned, like=data, perm=[0, 1, 3, 2, 4, 5, 6])
    to = (n * od, kd * c, h, w)
    return new.add("Reshape", [x, np.array([-1, *to[1:]])], "window", to, like=data), at


# -- pools -----------------------------------------------------------------------------------------------------------------


def _pool(layer: Layer) -> Found | None:
    """Write a 3-D pool as the engine's ``VolumePool`` of frames; a MaxPool may work on codes."""
    window, at, new, op = layer.window, layer.at, layer.new, layer.node.op_type
    if any(step != 1 for step in window.dilations) or dtype_of(layer.x) not in _POOLED:  # cases 3 and 4
        return None
    data, *scale = layer.forms.codes.get(layer.x, (layer.x,)) if op == "MaxPool" else (layer.x,)
    is_given, dims = at.get("auto_pad", "NOTSET") == "NOTSET", Form.FRAMES.dims(layer.result)
    attributes = {
        "kernel_shape": list(window.kernel),
        "strides": list(window.strides),
        "pads": list(at.get("pads", [0] * 6)) if is_given else [*window.begins, *window.ends],
        "frames": [layer.dims[2], layer.result[2]],
        "sizes": list(layer.result[3:]),
        "mean": int(op == "AveragePool"),
        "count_include_pad": int(at.get("count_include_pad", 0)),
    }
    read = layer.forms.image(data, Form.FRAMES, layer.node)
    image = new.add("VolumePool", [read], "frames", dims, like=data, is_named=True, domain=DOMAIN, **attributes)
    if not scale:
        return Form.FRAMES, image
    values = new.add("DequantizeLinear", [image, *scale], "values", dims)
    return Form.FRAMES, values, image, scale


def _global_pool(layer: Layer) -> Found:
    image = layer.forms.image(layer.x, Form.LINES, layer.node)
    dims = Form.LINES.dims(layer.result)
    return Form.LINES, layer.new.add(layer.node.op_type, [image], Form.LINES.value, dims, is_named=True)


_POOLED = (DType.FLOAT32, DType.FLOAT16, *CODES)
_LAYERS: dict[str, Callable[[Layer], Found | None]] = {
    "AveragePool": _pool,
    "Conv": _conv,
    "ConvTranspose": transposed_convolution,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "MaxPool": _pool,
}
