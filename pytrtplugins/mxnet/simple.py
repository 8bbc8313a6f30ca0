"""MXNet's operators without parameters: arithmetic, activations, pooling and shape changes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .layer import Dims, Layer, Tensor, dims_text

__all__ = [
    "activation",
    "clip",
    "concat",
    "elementwise",
    "flatten",
    "identity",
    "l2_normalization",
    "log_softmax",
    "logistic",
    "pooling",
    "reshape",
    "scalar",
    "softmax",
    "softmax_activation",
    "softmax_output",
    "unary",
]  # fmt: skip

_ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softrelu": "Softplus", "softsign": "Softsign"}
"""MXNet's name of an activation → ONNX's operator."""


def elementwise(op: str, *, broadcast: bool) -> Callable[[Layer], Tensor]:
    """Return the converter of an operator on two tensors, with equal dims or with broadcasting."""

    def read(layer: Layer) -> Tensor:
        layer.expect_inputs(2)
        a, b = layer.inputs
        fits = len(a.dims) == len(b.dims)
        dims: list[int | None] = []
        for one, other in zip(a.dims, b.dims, strict=False):
            fits &= None in (one, other) or one == other or (broadcast and 1 in (one, other))
            dims.append(one if other == 1 and broadcast else other if one in (1, None) else one)
        if not fits:
            raise layer.node.error(
                f"it reads tensors of dims {dims_text(a.dims)} and {dims_text(b.dims)}, which do not fit"
            )
        return layer.result(op, [a.name, b.name], tuple(dims))

    return read


def scalar(op: str, *, reverse: bool) -> Callable[[Layer], Tensor]:
    """Return the converter of an operator on a tensor and a number; ``reverse``: the number is the first operand."""

    def read(layer: Layer) -> Tensor:
        layer.expect_inputs(1)
        x, number = layer.data(), layer.attributes.real("scalar")
        layer.attributes.boolean("is_int", False)
        constant = layer.constant(f"{layer.node.name}/scalar", np.float32(number), changed=True)
        return layer.result(op, [constant, x.name] if reverse else [x.name, constant], x.dims)

    return read


def unary(op: str) -> Callable[[Layer], Tensor]:
    """Return the converter of an operator on one tensor without attributes."""

    def read(layer: Layer) -> Tensor:
        layer.expect_inputs(1)
        return layer.result(op, [layer.data().name], layer.data().dims)

    return read


def activation(layer: Layer) -> Tensor:
    """Convert Activation."""
    kind = layer.attributes.word("act_type", list(_ACTIVATIONS))
    return unary(_ACTIVATIONS[kind])(layer)


def clip(layer: Layer) -> Tensor:
    """Convert ``clip``, which also represents ReLU6."""
    layer.expect_inputs(1)
    limits = [
        layer.constant(f"{layer.node.name}/{name}", np.float32(layer.attributes.real(name)), changed=True)
        for name in ("a_min", "a_max")
    ]
    return layer.result("Clip", [layer.data().name, *limits], layer.data().dims)


def identity(layer: Layer) -> Tensor:
    """Convert operators without effect at inference: Dropout, ``_copy``, BlockGrad. No node is written."""
    layer.expect_inputs(1)
    if layer.node.op == "Dropout":
        layer.attributes.real("p", 0.5)
        layer.attributes.dims("axes", ())
        layer.attributes.word("mode", ["training"], "training")
    return layer.data()


def concat(layer: Layer) -> Tensor:
    """Convert Concat."""
    inputs = layer.inputs
    layer.expect_inputs(max(1, layer.attributes.integer("num_args", len(inputs))))
    rank = len(inputs[0].dims)
    axis = layer.attributes.integer("dim", 1, least=-rank, most=rank - 1) % max(rank, 1)
    if any(len(tensor.dims) != rank for tensor in inputs):
        raise layer.node.error("it reads tensors of different ranks")
    columns = list(zip(*(tensor.dims for tensor in inputs), strict=True))
    for number, column in enumerate(columns):
        if number != axis and len({*column} - {None}) > 1:
            raise layer.node.error(f"along axis {number} its tensors have the sizes {sorted({*column} - {None})[:5]}")
    dims = [next((size for size in column if size is not None), None) for column in columns]
    dims[axis] = None if None in columns[axis] else sum(size or 0 for size in columns[axis])
    return layer.result("Concat", [tensor.name for tensor in inputs], tuple(dims), axis=axis)


def flatten(layer: Layer) -> Tensor:
    """Convert Flatten: all axes but the batch become one."""
    layer.expect_inputs(1)
    x = layer.data()
    return layer.result("Flatten", [x.name], (x.dims[0], _size(x.dims[1:])), axis=1)


def reshape(layer: Layer) -> Tensor:
    """Convert Reshape: a size for each axis, 0 to copy it, -1 to infer it; the batch must stay free."""
    layer.expect_inputs(1)
    x, target = layer.data(), layer.attributes.dims("shape", least=-1)
    if layer.attributes.boolean("reverse", False):
        raise layer.node.error("reverse=True is not supported")
    unchanged = {place for place, size in enumerate(target) if size == 0}
    misfit = layer.node.error(f"shape={target} does not fit dims {dims_text(x.dims)}")
    if target.count(-1) > 1 or any(place >= len(x.dims) for place in unchanged):
        raise misfit
    if x.dims[0] is None and target[0] > 0:
        raise layer.node.error(
            f"shape={target} fixes the batch",
            "Do: write 0 as the first number of 'shape' in the symbol.json, which keeps the batch",
        )
    input_size = _size(tuple(size for place, size in enumerate(x.dims) if place not in unchanged))
    named = math.prod(size for size in target if size > 0)
    if input_size is not None and (input_size % named if -1 in target else input_size != named):
        raise misfit
    inferred_size = None if input_size is None else input_size // named
    dims = tuple(
        x.dims[place] if size == 0 else inferred_size if size == -1 else size for place, size in enumerate(target)
    )
    shape = layer.constant(f"{layer.node.name}/shape", np.array(target, np.int64), changed=True)
    return layer.result("Reshape", [x.name, shape], dims)


def softmax(layer: Layer, op: str = "Softmax") -> Tensor:
    """Convert ``softmax``."""
    layer.expect_inputs(1)
    x, attributes = layer.data(), layer.attributes
    axis = attributes.integer("axis", -1, least=-len(x.dims), most=len(x.dims) - 1)
    attributes.word("temperature", ["None", "1", "1.0"], "1.0")
    attributes.word("dtype", ["None", "float32"], "float32")
    attributes.word("use_length", ["False", "0"], "False")
    return layer.result(op, [x.name], x.dims, axis=axis)


def log_softmax(layer: Layer) -> Tensor:
    """Convert ``log_softmax``."""
    return softmax(layer, "LogSoftmax")


def softmax_activation(layer: Layer) -> Tensor:
    """Convert SoftmaxActivation, along the channels or over a whole sample."""
    layer.expect_inputs(1)
    mode = layer.attributes.word("mode", ["instance", "channel"], "instance")
    return _softmax(layer, along_channels=mode == "channel")


def softmax_output(layer: Layer) -> Tensor:
    """Convert SoftmaxOutput at inference: a softmax; its labels are not used."""
    layer.expect_inputs(1)
    many, keep = layer.attributes.boolean("multi_output", False), layer.attributes.boolean("preserve_shape", False)
    if keep:
        return layer.result("Softmax", [layer.data().name], layer.data().dims, axis=-1)
    return _softmax(layer, along_channels=many)


def logistic(layer: Layer) -> Tensor:
    """Convert LogisticRegressionOutput at inference: a sigmoid."""
    return unary("Sigmoid")(layer)


def _softmax(layer: Layer, *, along_channels: bool) -> Tensor:
    x = layer.data()
    if len(x.dims) != 2 and not along_channels:
        raise layer.node.error(f"a softmax over all of a sample of dims {dims_text(x.dims)} is not supported")
    return layer.result("Softmax", [x.name], x.dims, axis=1)


def l2_normalization(layer: Layer) -> Tensor:
    """Convert L2Normalization: x / sqrt(sum(x²) + eps), over a whole sample, along the channels, or over all pixels."""
    layer.expect_inputs(1)
    x, attributes = layer.data(), layer.attributes
    epsilon, mode = (
        attributes.real("eps", 1e-10),
        attributes.word("mode", ["instance", "channel", "spatial"], "instance"),
    )
    axes = {"instance": range(1, len(x.dims)), "channel": [1], "spatial": range(2, len(x.dims))}[mode]
    if len(x.dims) < 2 or not axes:
        raise layer.node.error(f"mode={mode} needs more axes than {dims_text(x.dims)} has")
    axes_constant = layer.constant(f"{layer.node.name}/axes", np.array(list(axes), np.int64), changed=True)
    least = layer.constant(f"{layer.node.name}/eps", np.float32(epsilon), changed=True)
    total = layer.step("Add", [layer.step("ReduceSumSquare", [x.name, axes_constant], keepdims=1), least])
    return layer.result("Div", [x.name, layer.step("Sqrt", [total])], x.dims)


def pooling(layer: Layer) -> Tensor:
    """Convert Pooling: max or avg, global or by windows, which ``pooling_convention=full`` extends beyond the border."""
    attributes = layer.attributes
    layer.expect_inputs(1)
    x = layer.data()
    rank = len(x.dims) - 2
    if not 1 <= rank <= 3:
        raise layer.node.error(f"it reads a tensor of dims {dims_text(x.dims)}; expected 3 to 5 axes")
    kind = attributes.word("pool_type", ["max", "avg"], "max")
    is_full = attributes.word("pooling_convention", ["valid", "full"], "valid") == "full"
    counts_border, is_global = attributes.boolean("count_include_pad", True), attributes.boolean("global_pool", False)
    attributes.word("layout", [{1: "NCW", 2: "NCHW", 3: "NCDHW"}[rank]], {1: "NCW", 2: "NCHW", 3: "NCDHW"}[rank])
    ones = (1,) * rank
    kernel = attributes.dims(
        "kernel", ones if is_global else None, rank=None if is_global else rank, least=0 if is_global else 1
    )
    stride, pad = attributes.dims("stride", ones if not is_global else (1,)), attributes.dims("pad", (0,) * rank)
    name = "MaxPool" if kind == "max" else "AveragePool"
    if is_global:
        return layer.result(f"Global{name}", [x.name], (*x.dims[:2], *ones))
    if len(stride) != rank or len(pad) != rank or 0 in stride or any(p >= k for p, k in zip(pad, kernel, strict=True)):
        raise layer.node.error(f"stride={stride} and pad={pad} do not fit kernel={kernel}")
    windows = [_windows(*geometry, full=is_full) for geometry in zip(x.dims[2:], kernel, stride, pad, strict=True)]
    sizes, overhangs = tuple(size for size, _ in windows), tuple(overhang for _, overhang in windows)
    if any(overhang >= k for overhang, k in zip(overhangs, kernel, strict=True)):
        raise layer.node.error("with pooling_convention=full a window of it lies outside of the image")
    if is_full and None in x.dims[2:]:
        raise layer.node.error(
            "pooling_convention=full needs the height and width of the network's input",
            "Do: pytrt import mxnet SYMBOL PARAMS -o OUT.onnx --shape data=3x112x112",
        )
    dims, source = (*x.dims[:2], *sizes), x.name
    options = {} if kind == "max" else {"count_include_pad": int(counts_border)}
    if kind == "avg" and counts_border and any(overhangs):  # the border counts, what lies beyond it does not
        pads = np.array([0, 0, *pad, 0, 0, *pad], np.int64)
        source = layer.step("Pad", [x.name, layer.constant(f"{layer.node.name}/pads", pads, changed=True)])
        pad, options = (0,) * rank, {"count_include_pad": 0}
    ends = tuple(p + overhang for p, overhang in zip(pad, overhangs, strict=True))
    return layer.result(name, [source], dims, kernel_shape=kernel, strides=stride, pads=(*pad, *ends), **options)


def _windows(size: int | None, kernel: int, stride: int, pad: int, *, full: bool) -> tuple[int | None, int]:
    """Return the number of windows along an axis, and how far the last one extends beyond the border."""
    if size is None:
        return None, 0
    room = size + 2 * pad - kernel
    count = (-(-room // stride) if full else room // stride) + 1
    return count, max(0, (count - 1) * stride - room)


def _size(dims: Dims) -> int | None:
    return None if None in dims else math.prod(size for size in dims if size is not None)
