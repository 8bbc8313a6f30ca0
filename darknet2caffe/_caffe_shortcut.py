"""The sum of two maps of any shapes, as darknet's shortcut has it, in layers of caffe."""

from __future__ import annotations

from ._caffe_writer import CaffeWriter, corner
from .layers import Shape, Shortcut

__all__ = ["add_maps"]


def add_maps(layer: Shortcut, writer: CaffeWriter, value: str, other: str, dims: Shape, top: str, prefix: str) -> None:
    """``alpha`` times a map plus ``beta`` times another one of any shape (src/blas.c, shortcut_cpu)."""
    channels = min(dims[0], layer.dims[0])
    common, rest = value, ""
    if channels < layer.dims[0]:
        common, rest = writer.cut(value, f"{prefix}.value", 1, [channels])
    other = writer.slice(other, f"{prefix}.channels", 1, 0, channels, dims[0])
    other = _fitted(layer, writer, other, (channels, *dims[1:]), prefix)
    added = f"{prefix}.added" if rest else top
    target = writer.layer("Eltwise", [common, other], added).eltwise_param
    target.operation = 1
    if (layer.alpha, layer.beta) != (1, 1):
        target.coeff.extend([layer.alpha, layer.beta])
    if rest:
        writer.layer("Concat", [added, rest], top).concat_param.axis = 1


def _fitted(layer: Shortcut, writer: CaffeWriter, value: str, dims: Shape, prefix: str) -> str:
    """Every stride-th value of a map, at every sample-th place of the output's; returns its blob."""
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
