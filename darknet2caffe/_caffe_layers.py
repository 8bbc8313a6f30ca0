"""Writers of darknet's layers as caffe layers, one function per layer type."""

from __future__ import annotations

import functools
import math

import numpy as np

from pytrtplugins.layers import sibling_groups

from . import layers
from ._caffe_activations import activate, before_activation
from ._caffe_writer import CaffeWriter, corner, pooled_size
from .caffe_schema import parameter_name
from .fold import batch_norm_form, folded_bias, folded_weights
from .layers import Layer, Shape
from .weights import Parameters

__all__ = ["write_layer"]

MAX_PIECES = 4096
"""Into how many pieces a blob is cut at most: each is a blob of its own in caffe."""


def write_layer(layer: Layer, writer: CaffeWriter) -> None:
    """Add the layers for one layer of darknet; its result is the blob ``layer.name``."""
    if isinstance(layer, layers.Activation):
        activate(layer, writer, writer.bottoms(layer)[0])
    elif hasattr(layer, "activation"):
        top = before_activation(layer, writer)
        _write(layer, writer, top)
        activate(layer, writer, top)
    else:
        _write(layer, writer, layer.name)


@functools.singledispatch
def _write(layer: Layer, writer: CaffeWriter, top: str) -> None:
    """Add all of a layer but its activation; the result is the blob ``top``."""
    writer.refuse(layer, "there is no layer of caffe for it")


@_write.register(layers.Convolutional)
@_write.register(layers.Deconvolutional)
def _write_convolutional(layer: layers.Convolutional | layers.Deconvolutional, writer: CaffeWriter, top: str) -> None:
    parameters = writer.network.parameters(layer)
    plain = isinstance(layer, layers.Convolutional)
    target = writer.layer("Convolution" if plain else "Deconvolution", writer.bottoms(layer), top, name=layer.name)
    convolution = target.convolution_param
    convolution.num_output = layer.filters
    if isinstance(layer, layers.Convolutional):
        convolution.group = layer.groups
    convolution.pad.append(layer.padding)
    convolution.kernel_size.append(layer.size)
    convolution.stride.append(layer.stride)
    convolution.bias_term = _weights(layer, writer, parameters, axis=0 if plain else 1)
    if not convolution.bias_term:
        _normalize(layer, writer, parameters, top, top)


@_write.register
def _write_connected(layer: layers.Connected, writer: CaffeWriter, top: str) -> None:
    """Connected layer; caffe's result has two axes, so it is reshaped to a map."""
    parameters = writer.network.parameters(layer)
    product = writer.layer("InnerProduct", writer.bottoms(layer), f"{layer.name}.product", name=layer.name)
    product.inner_product_param.num_output = layer.output
    product.inner_product_param.bias_term = _weights(layer, writer, parameters)
    writer.reshape(f"{layer.name}.product", top, [0, *layer.dims])
    if not product.inner_product_param.bias_term:
        _normalize(layer, writer, parameters, top, top)


@_write.register
def _write_local(layer: layers.Local, writer: CaffeWriter, top: str) -> None:
    """Local layer: windows as channels by a convolution with ones, then pixels as channels, one group each."""
    parameters, (value,), name = writer.network.parameters(layer), writer.bottoms(layer), layer.name
    (n, h, w), channels, values = layer.dims, layer.input_dims[0][0], layer.size**2
    ones = np.tile(np.eye(values, dtype=np.float32).reshape(values, 1, layer.size, layer.size), (channels, 1, 1, 1))
    windows = writer.layer("Convolution", [value], f"{name}.windows").convolution_param
    windows.num_output, windows.group, windows.bias_term = channels * values, channels, False
    windows.pad.append(layer.padding)
    windows.kernel_size.append(layer.size)
    windows.stride.append(layer.stride)
    writer.array(ones)
    _transpose(layer, writer, f"{name}.windows", f"{name}.columns", channels * values, h * w)
    writer.reshape(f"{name}.columns", f"{name}.places", [0, -1, 1, 1])
    product = writer.layer("Convolution", [f"{name}.places"], f"{name}.product", name=name).convolution_param
    product.num_output, product.group, product.bias_term = h * w * n, h * w, True
    product.kernel_size.append(1)
    writer.blob((h * w * n, channels * values, 1, 1), lambda: parameters["weights"])
    writer.array(parameters["biases"].reshape(n, h * w).T.reshape(-1))
    _transpose(layer, writer, f"{name}.product", f"{name}.filters", h * w, n)
    writer.reshape(f"{name}.filters", top, [0, *layer.dims])


@_write.register
def _write_batchnorm(layer: layers.Batchnorm, writer: CaffeWriter, top: str) -> None:
    _normalize(layer, writer, writer.network.parameters(layer), writer.bottoms(layer)[0], layer.name)


@_write.register
def _write_l2norm(layer: layers.L2norm, writer: CaffeWriter, top: str) -> None:
    """Times the sum of the squares to the power of -1/2; a convolution with ones adds up, and one repeats the sum."""
    (value,), name = writer.bottoms(layer), layer.name
    writer.power(value, f"{name}.squares", power=2)
    writer.pointwise_convolution(f"{name}.squares", f"{name}.sum", np.ones((1, layer.dims[0]), np.float32))
    writer.power(f"{name}.sum", f"{name}.sum", power=-0.5)
    writer.pointwise_convolution(f"{name}.sum", f"{name}.factors", np.ones((layer.dims[0], 1), np.float32))
    writer.product([value, f"{name}.factors"], name)


@_write.register
def _write_normalization(layer: layers.Normalization, writer: CaffeWriter, top: str) -> None:
    """The sums of squares are a convolution with darknet's window as its matrix; caffe's LRN has another window."""
    (value,), name = writer.bottoms(layer), layer.name
    writer.power(value, f"{name}.squares", power=2)
    matrix = np.array(layer.window(), np.float32) * np.float32(layer.alpha)
    writer.pointwise_convolution(
        f"{name}.squares", f"{name}.factors", matrix, np.full(layer.dims[0], layer.kappa, np.float32)
    )
    writer.power(f"{name}.factors", f"{name}.factors", power=-layer.beta)
    writer.product([value, f"{name}.factors"], name)


@_write.register
def _write_maxpool(layer: layers.Maxpool, writer: CaffeWriter, top: str) -> None:
    """Max pooling, padded so that darknet's windows are among caffe's, which rounds up; additional windows are cut off.

    The last window begins inside the map (`Maxpool.read`), so caffe has it too with darknet's padding at the low side; only
    with stride 1, where nothing is rounded, an odd padding has one more at the high side.
    """
    name, pad = layer.name, layer.pads[0]
    first = layer.padding % 2 if layer.stride == 1 else 0
    window = (pad + first, layer.size, layer.stride)
    pooled = [pooled_size(into, *window, padded=pad + first > 0) for into in layer.input_dims[0][1:]]
    cut = [axis for axis in (2, 3) if (first, layer.dims[axis - 1]) != (0, pooled[axis - 2])]
    result = f"{name}.pooled" if cut else name
    pooling = writer.layer("Pooling", writer.bottoms(layer), result, name=name).pooling_param
    pooling.pool, pooling.kernel_size, pooling.stride, pooling.pad = 0, layer.size, layer.stride, pad + first
    for axis in cut:
        top = name if axis == cut[-1] else f"{name}.rows"
        result = writer.slice(result, top, axis, first, first + layer.dims[axis - 1], pooled[axis - 2])


@_write.register
def _write_avgpool(layer: layers.Avgpool, writer: CaffeWriter, top: str) -> None:
    pooling = writer.layer("Pooling", writer.bottoms(layer), layer.name).pooling_param
    pooling.pool, pooling.global_pooling = 1, True


@_write.register
def _write_upsample(layer: layers.Upsample, writer: CaffeWriter, top: str) -> None:
    """Repeating values is a deconvolution with ones, channel by channel; sums of blocks are means times their size."""
    (value,), size = writer.bottoms(layer), layer.stride
    if not layer.reverse:
        kernel = np.full((size, size), layer.scale, np.float32)
        writer.depthwise("Deconvolution", value, layer.name, kernel, layer.dims[0], size)
        return
    pooling = writer.layer("Pooling", [value], layer.name).pooling_param
    pooling.pool, pooling.kernel_size, pooling.stride = 1, size, size
    if layer.scale * size**2 != 1:
        writer.power(layer.name, layer.name, scale=layer.scale * size**2)


@_write.register
def _write_crop(layer: layers.Crop, writer: CaffeWriter, top: str) -> None:
    (value,), (_, h, w), (_, height, width) = writer.bottoms(layer), layer.input_dims[0], layer.dims
    rows = layer.name if w == width else f"{layer.name}.rows"
    cropped = writer.slice(value, rows, 2, layer.top, layer.top + height, h)
    cropped = writer.slice(cropped, layer.name, 3, layer.left, layer.left + width, w)
    if not layer.noadjust:
        writer.power(cropped, layer.name, scale=2, shift=-1)
    elif cropped == value:
        writer.identity(value, layer.name)


@_write.register
def _write_flatten(layer: layers.Flatten, writer: CaffeWriter, top: str) -> None:
    c, h, w = layer.input_dims[0]
    rows, columns = (h * w, c) if layer.reverse else (c, h * w)
    _transpose(layer, writer, writer.bottoms(layer)[0], f"{layer.name}.transposed", rows, columns)
    writer.reshape(f"{layer.name}.transposed", layer.name, [0, *layer.dims])


@_write.register
def _write_extra(layer: layers.Extra, writer: CaffeWriter, top: str) -> None:
    """Append zeros by a deconvolution whose kernel is 1 at its first tap and 0 elsewhere."""
    (value,), name = writer.bottoms(layer), layer.name
    writer.reshape(value, f"{name}.row", [0, 1, 1, -1])
    writer.depthwise("Deconvolution", f"{name}.row", f"{name}.longer", corner(1, layer.extra + 1), 1, 1)
    writer.reshape(f"{name}.longer", name, [0, *layer.dims])


@_write.register
def _write_reorg3d(layer: layers.Reorg3d, writer: CaffeWriter, top: str) -> None:
    """Pick each pixel of the blocks by a convolution that is 1 there and 0 elsewhere."""
    (value,), (c, _, _), s = writer.bottoms(layer), layer.input_dims[0], layer.stride
    places = [f"{layer.name}.place{k}" for k in range(s * s)]
    for k, place in enumerate(places):
        writer.depthwise("Convolution", value, place, corner(s, s, k // s, k % s), c, s)
    writer.layer("Concat", places, layer.name).concat_param.axis = 1


@_write.register
def _write_route(layer: layers.Route, writer: CaffeWriter, top: str) -> None:
    parts, name = writer.bottoms(layer), layer.name
    if layer.is_flat:
        flat = [f"{name}.flat{number}" for number in range(len(parts))]
        for part, top in zip(parts, flat, strict=True):
            writer.reshape(part, top, [0, -1, 1, 1])
        parts = flat
    elif layer.groups > 1:
        sizes = [dims[0] for dims in layer.input_dims]
        tops = [name if len(parts) == 1 else f"{name}.group{number}" for number in range(len(parts))]
        for number, (size, top) in enumerate(zip(sizes, tops, strict=True)):
            begin = layer.group_id * size // layer.groups
            parts[number] = writer.slice(parts[number], top, 1, begin, begin + size // layer.groups, size)
        if len(parts) == 1:
            return
    writer.layer("Concat", parts, name).concat_param.axis = 1


@_write.register
def _write_shortcut(layer: layers.Shortcut, writer: CaffeWriter, top: str) -> None:
    value, *others = writer.bottoms(layer)
    for number, (other, dims) in enumerate(zip(others, layer.input_dims[1:], strict=True)):
        result = top if number == len(others) - 1 else f"{layer.name}.sum{number}"
        _add_maps(layer, writer, value, other, dims, result, f"{layer.name}.{number}")
        value = result


@_write.register
def _write_scale_channels(layer: layers.ScaleChannels, writer: CaffeWriter, top: str) -> None:
    factors, value = writer.bottoms(layer)
    if layer.scale_wh:
        writer.pointwise_convolution(factors, f"{layer.name}.factors", np.ones((layer.dims[0], 1), np.float32))
        writer.product([value, f"{layer.name}.factors"], top)
    else:
        writer.reshape(factors, f"{layer.name}.factors", [0, layer.dims[0]])
        writer.layer("Scale", [value, f"{layer.name}.factors"], top, name=layer.name).scale_param.axis = 0


@_write.register
def _write_sam(layer: layers.Sam, writer: CaffeWriter, top: str) -> None:
    writer.product(writer.bottoms(layer), top)


@_write.register
def _write_softmax(layer: layers.Softmax, writer: CaffeWriter, top: str) -> None:
    (value,), name = writer.bottoms(layer), layer.name
    if layer.temperature != 1:
        writer.power(value, f"{name}.tempered", scale=1 / layer.temperature)
        value = f"{name}.tempered"
    flat = layer.dims[1:] == (1, 1)
    if layer.groups == 1 and flat and not layer.tree:
        writer.layer("Softmax", [value], name).softmax_param.axis = 1
        return
    writer.reshape(value, f"{name}.grouped", [0, -1] if layer.tree else [0, layer.groups, -1])
    if layer.tree:
        _softmax_siblings(layer, writer, f"{name}.grouped", f"{name}.softmax")
    else:
        writer.layer("Softmax", [f"{name}.grouped"], f"{name}.softmax").softmax_param.axis = 2
    writer.reshape(f"{name}.softmax", name, [0, *layer.dims])


@_write.register
def _write_detection(layer: layers.Detection, writer: CaffeWriter, top: str) -> None:
    """The classes of all cells come first."""
    (value,), name, cells = writer.bottoms(layer), layer.name, layer.side**2
    total = math.prod(layer.dims)
    writer.reshape(value, f"{name}.flat", [0, -1])
    parts = [f"{name}.flat"]
    if cells * layer.classes < total:
        parts = writer.cut(f"{name}.flat", f"{name}.part", 1, [cells * layer.classes])
    writer.reshape(parts[0], f"{name}.cells", [0, cells, layer.classes])
    writer.layer("Softmax", [f"{name}.cells"], f"{name}.softmax").softmax_param.axis = 2
    writer.reshape(f"{name}.softmax", f"{name}.classes", [0, -1])
    writer.layer("Concat", [f"{name}.classes", *parts[1:]], f"{name}.joined").concat_param.axis = 1
    writer.reshape(f"{name}.joined", name, [0, *layer.dims])


@_write.register
def _write_plugin(layer: layers.PluginLayer, writer: CaffeWriter, top: str) -> None:
    plugin = layer.plugin
    target = writer.layer(plugin.plugin_key().name, writer.bottoms(layer), layer.name)
    parameters = getattr(target, parameter_name(type(plugin)))
    for name, value in plugin.fields().items():
        if isinstance(value, tuple):
            getattr(parameters, name).extend(value)
        else:
            setattr(parameters, name, value)


def _weights(
    layer: layers.Convolutional | layers.Deconvolutional | layers.Connected,
    writer: CaffeWriter,
    parameters: Parameters,
    axis: int = 0,
) -> bool:
    """Weights for the last layer, and the bias unless batch normalization follows; returns whether there is a bias."""
    shape, bn_eps = dict(layer.parameters)["weights"], writer.options.bn_eps
    if layer.batch_normalize and not writer.options.fold:
        writer.blob(shape, lambda: parameters["weights"])
        return False
    writer.blob(shape, lambda: folded_weights(parameters, bn_eps, axis=axis))
    writer.array(folded_bias(parameters, bn_eps))
    return True


def _normalize(layer: Layer, writer: CaffeWriter, parameters: Parameters, bottom: str, top: str) -> None:
    """Write BatchNorm, and Scale in place."""
    variance, epsilon = batch_norm_form(parameters, writer.options.bn_eps)
    norm = writer.layer("BatchNorm", [bottom], top, name=f"{layer.name}.norm")
    norm.batch_norm_param.use_global_stats, norm.batch_norm_param.eps = True, epsilon
    writer.array(parameters["rolling_mean"], variance, np.ones(1, np.float32))
    scale = writer.layer("Scale", [top], top, name=f"{layer.name}.scale")
    scale.scale_param.bias_term = "biases" in parameters
    writer.array(parameters["scales"], *([parameters["biases"]] if "biases" in parameters else []))


def _transpose(layer: Layer, writer: CaffeWriter, bottom: str, top: str, rows: int, columns: int) -> None:
    """The values as a matrix, transposed: its columns are cut out and joined."""
    if columns > MAX_PIECES:
        writer.refuse(layer, f"caffe has no layer that transposes, and {columns:,} columns are too many to cut out")
    writer.reshape(bottom, f"{top}.matrix", [0, rows, columns])
    pieces = writer.cut(f"{top}.matrix", f"{top}.column", 2, range(1, columns)) if columns > 1 else [f"{top}.matrix"]
    writer.layer("Concat", pieces, top).concat_param.axis = 1


def _softmax_siblings(layer: layers.Softmax, writer: CaffeWriter, value: str, top: str) -> None:
    """Write one softmax for each group of siblings."""
    groups = sibling_groups(layer.tree)
    if len(groups) > MAX_PIECES:
        writer.refuse(layer, f"its tree has {len(groups):,} groups of siblings, a Softmax for each is too many")
    pieces = [value]
    if len(groups) > 1:
        pieces = writer.cut(value, f"{layer.name}.group", 1, [begin for begin, _ in groups[1:]])
    for piece in pieces:
        writer.layer("Softmax", [piece], f"{piece}.softmax").softmax_param.axis = 1
    writer.layer("Concat", [f"{piece}.softmax" for piece in pieces], top).concat_param.axis = 1


def _add_maps(
    layer: layers.Shortcut, writer: CaffeWriter, value: str, other: str, dims: Shape, top: str, prefix: str
) -> None:
    """``alpha`` times a map plus ``beta`` times another one of any shape (src/blas.c, shortcut_cpu)."""
    channels = min(dims[0], layer.dims[0])
    common, rest = value, ""
    if channels < layer.dims[0]:
        common, rest = writer.cut(value, f"{prefix}.value", 1, [channels])
    other = writer.slice(other, f"{prefix}.channels", 1, 0, channels, dims[0])
    other = _resample_to_output(layer, writer, other, (channels, *dims[1:]), prefix)
    added = f"{prefix}.added" if rest else top
    target = writer.layer("Eltwise", [common, other], added).eltwise_param
    target.operation = 1
    if (layer.alpha, layer.beta) != (1, 1):
        target.coeff.extend([layer.alpha, layer.beta])
    if rest:
        writer.layer("Concat", [added, rest], top).concat_param.axis = 1


def _resample_to_output(layer: layers.Shortcut, writer: CaffeWriter, value: str, dims: Shape, prefix: str) -> str:
    """Every stride-th value of a map, written to every sample-th pixel of the output; returns its blob."""
    channels, into = dims[0], dims[1:]
    stride, sample = layer.steps(dims)
    out = layer.dims[1:]
    count = [min(pair) for pair in zip(into, out, strict=True)]
    if tuple(count) != into:
        window = corner(*(size - (n - 1) * stride for size, n in zip(into, count, strict=True)))
        writer.depthwise("Convolution", value, f"{prefix}.picked", window, channels, stride)
        value = f"{prefix}.picked"
    if tuple(count) != out:
        if layer.alpha != 1:
            writer.refuse(layer, f"alpha={layer.alpha:g} holds for some places of the map only")
        window = corner(*(size - (n - 1) * sample for size, n in zip(out, count, strict=True)))
        writer.depthwise("Deconvolution", value, f"{prefix}.placed", window, channels, sample)
        value = f"{prefix}.placed"
    return value
