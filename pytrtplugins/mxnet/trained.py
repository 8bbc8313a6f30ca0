"""MXNet's operators with parameters: Convolution, FullyConnected, BatchNorm, and LeakyReLU, whose slopes may be trained."""

from __future__ import annotations

import math

import numpy as np

from .attributes import LARGEST
from .layer import Layer, Tensor

__all__ = ["batch_norm", "convolution", "fully_connected", "leaky_relu"]

_LAYOUTS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}
_SELU = {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}


def convolution(layer: Layer) -> Tensor:
    """Convert Convolution: any groups, dilation, in 1, 2 or 3 axes."""
    attributes = layer.attributes
    kernel = attributes.dims("kernel", least=1)
    rank, ones = len(kernel), (1,) * len(kernel)
    if rank + 2 not in _LAYOUTS:
        raise layer.node.error(f"its kernel has {rank} axes; expected 1 to 3")
    stride, dilate = (
        attributes.dims("stride", ones, rank=rank, least=1),
        attributes.dims("dilate", ones, rank=rank, least=1),
    )
    pad = attributes.dims("pad", (0,) * rank, rank=rank)
    filters, group = attributes.integer("num_filter", least=1), attributes.integer("num_group", 1, least=1)
    attributes.word("layout", [_LAYOUTS[rank + 2]], _LAYOUTS[rank + 2])
    biased = not attributes.boolean("no_bias", False)
    layer.expect_inputs(3 if biased else 2)
    x = layer.data(rank=rank + 2)
    channels = x.dims[1]
    if channels is None or channels % group or filters % group:
        raise layer.node.error(f"{group} groups do not divide {channels} channels and {filters} filters")
    names = [x.name, layer.constant(layer.parameter(1), layer.weight(1, (filters, channels // group, *kernel)))]
    if biased:
        names.append(layer.constant(layer.parameter(2), layer.weight(2, (filters,))))
    sizes = [
        None if size is None else (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, p, d, k, s in zip(x.dims[2:], pad, dilate, kernel, stride, strict=True)
    ]
    return layer.result(
        "Conv", names, (x.dims[0], filters, *sizes),
        kernel_shape=kernel, strides=stride, pads=(*pad, *pad), dilations=dilate, group=group,
    )  # fmt: skip


def fully_connected(layer: Layer) -> Tensor:
    """Convert FullyConnected: flattens all axes but the batch, or, with ``flatten=False``, multiplies along the last axis."""
    attributes = layer.attributes
    hidden, flatten = attributes.integer("num_hidden", least=1), attributes.boolean("flatten", True)
    biased = not attributes.boolean("no_bias", False)
    layer.expect_inputs(3 if biased else 2)
    x = layer.data()
    if len(x.dims) < 2:
        raise layer.node.error("it reads a tensor of less than two axes")
    other_dims = x.dims[1:] if flatten else x.dims[-1:]
    width = None if None in other_dims else math.prod(size for size in other_dims if size is not None)
    weight = layer.weight(1, (hidden, width))
    bias = [layer.constant(layer.parameter(2), layer.weight(2, (hidden,)))] if biased else []
    if flatten or len(x.dims) == 2:
        name = x.name if len(x.dims) == 2 else layer.step("Flatten", [x.name], axis=1)
        weight_name = layer.constant(layer.parameter(1), weight)
        return layer.result("Gemm", [name, weight_name, *bias], (x.dims[0], hidden), transB=1)
    dims = (*x.dims[:-1], hidden)
    names = [x.name, layer.constant(layer.parameter(1), weight.T, changed=True)]
    return (
        layer.result("Add", [layer.step("MatMul", names), *bias], dims)
        if biased
        else layer.result("MatMul", names, dims)
    )


def batch_norm(layer: Layer) -> Tensor:
    """Convert BatchNorm at inference. With ``fix_gamma``, the default, the scale is 1, whatever the file holds."""
    attributes = layer.attributes
    epsilon, fixed = attributes.real("eps", 1e-3), attributes.boolean("fix_gamma", True)
    if attributes.boolean("output_mean_var", False):
        raise layer.node.error("output_mean_var=True is not supported", "Do: leave it out of the symbol.json")
    x = layer.data()
    axis = attributes.integer("axis", 1, least=-1)
    if axis != 1 and not (axis == -1 and len(x.dims) == 2):
        raise layer.node.error(f"axis={axis} is not supported; expected 1: the channels")
    if len(x.dims) < 2:
        raise layer.node.error("it reads a tensor of less than two axes")
    listed = layer.expect_inputs(3, 5) == 5  # before MXNet 0.9 the statistics stand not among the inputs
    implied = [f"{layer.node.name}_moving_mean", f"{layer.node.name}_moving_var"]
    names = [layer.parameter(index) for index in range(1, 5 if listed else 3)] + ([] if listed else implied)
    gamma, beta, mean, variance = (
        layer.weight(number, (x.dims[1],), name=name) for number, name in enumerate(names, 1)
    )
    if variance.size and variance.min() < 0:
        raise layer.node.error(
            f"the variance {names[3][:200]!r} has {variance.min()}: no variance is negative",
            "Do: copy or download the .params file again",
        )
    scale = np.ones_like(gamma) if fixed else gamma
    constants = [layer.constant(names[0], scale, changed=fixed)]
    constants += [layer.constant(name, array) for name, array in zip(names[1:], (beta, mean, variance), strict=True)]
    return layer.result("BatchNormalization", [x.name, *constants], x.dims, epsilon=epsilon)


def leaky_relu(layer: Layer) -> Tensor:
    """Convert LeakyReLU of all kinds. The slopes of ``prelu`` lie along the channels: (C, 1, 1) in ONNX."""
    attributes = layer.attributes
    kind = attributes.word("act_type", ["leaky", "prelu", "elu", "selu", "gelu", "rrelu"], "leaky")
    slope, low, high = (
        attributes.real("slope", 0.25),
        attributes.real("lower_bound", 0.125),
        attributes.real("upper_bound", 0.334),
    )
    layer.expect_inputs(2 if kind == "prelu" else 1)
    x = layer.data()
    if kind == "prelu":
        channels = x.dims[1] if len(x.dims) > 1 else None
        slopes = layer.weight(1, (None,))
        if slopes.size not in (1, channels):
            layer.weight(1, (channels,))
        shaped = slopes.reshape(-1, *(1,) * (len(x.dims) - 2))
        return layer.result("PRelu", [x.name, layer.constant(layer.parameter(1), shaped)], x.dims)
    if kind == "gelu":
        half, root, one = (
            layer.constant(f"gelu/{name}", np.float32(value), changed=True)
            for name, value in (("half", 0.5), ("root", 0.5**0.5), ("one", 1))
        )
        bell = layer.step("Add", [layer.step("Erf", [layer.step("Mul", [x.name, root])]), one])
        return layer.result("Mul", [layer.step("Mul", [x.name, half]), bell], x.dims)
    if kind == "selu":
        return layer.result("Selu", [x.name], x.dims, **_SELU)
    if kind == "elu":
        return layer.result("Elu", [x.name], x.dims, alpha=slope)
    alpha = (low + high) / 2 if kind == "rrelu" else slope
    if not abs(alpha) < LARGEST:
        raise layer.node.error(f"its slope is {alpha}")
    return layer.result("LeakyRelu", [x.name], x.dims, alpha=alpha)
