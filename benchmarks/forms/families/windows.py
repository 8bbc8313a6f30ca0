"""Convolutions and pools of one to three axes."""

from __future__ import annotations

import math

import numpy as np

from ..draft import Draft, Unfit
from .table import builds


def _window(draft: Draft, axes: int, *, padded: bool = True, dilated: bool = True) -> tuple[list[int], list[int]]:
    """Draw kernel, strides, dilations, pads or auto_pad; gives the kernel and the dilations."""
    kernel = [draft.one(1, 2, 3) for _ in range(axes)]
    strides = draft.attribute("strides", [draft.one(1, 2, 3) for _ in kernel], default=[1] * axes)
    dilations = [1] * axes
    if dilated:
        dilations = draft.attribute("dilations", [draft.one(1, 1, 2) for _ in kernel], default=dilations)
    del strides
    if draft.chance(0.3) and padded:
        draft.attribute("auto_pad", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", always=True)
    if draft.attributes.get("auto_pad", "NOTSET") == "NOTSET" and padded:
        draft.attribute("pads", [draft.one(0, 1, 1, 2) for _ in range(2 * axes)])
    return kernel, dilations


def _image(draft: Draft, kernel: list[int], dilations: list[int]) -> list[int]:
    return [d * (k - 1) + 1 + draft.one(0, 1, 2, 4, 5) for k, d in zip(kernel, dilations, strict=True)]


@builds("Conv")
def conv(draft: Draft) -> None:
    axes = draft.one(1, 2, 2, 2, 3)
    kernel, dilations = _window(draft, axes)
    group, multiple = draft.one((1, 1), (1, 1), (2, 1), (3, 1), (2, 2))
    draft.attribute("kernel_shape", kernel)
    if group != 1 or draft.chance():
        draft.set("group", group)
    channels = group * draft.one(1, 2, 3)
    if draft.chance(0.2):
        channels = group  # depthwise
    draft.tensor((draft.one(1, 2), channels, *_image(draft, kernel, dilations)))
    filters = group * multiple * draft.one(1, 2, 4)
    draft.tensor((filters, channels // group, *kernel))
    if draft.optional("B"):
        draft.tensor((filters,))
    draft.loose = 4.0


@builds("ConvTranspose")
def conv_transpose(draft: Draft) -> None:
    axes = draft.one(1, 2, 2, 2, 3)
    kernel = [draft.one(1, 2, 3) for _ in range(axes)]
    strides = draft.attribute("strides", [draft.one(1, 2, 3) for _ in kernel], default=[1] * axes)
    dilations = draft.attribute("dilations", [draft.one(1, 1, 2) for _ in kernel], default=[1] * axes)
    group = draft.one(1, 1, 2)
    if group != 1 or draft.chance():
        draft.set("group", group)
    draft.attribute("kernel_shape", kernel)
    image = [draft.one(1, 2, 3, 4) for _ in kernel]
    extent = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    full = [s * (i - 1) + e for s, i, e in zip(strides, image, extent, strict=True)]
    how = draft.one("plain", "pads", "output_padding", "output_shape", "auto_pad")
    if how in ("output_padding", "auto_pad") or (how == "pads" and draft.chance(0.3)):
        padding = [int(draft.rng.integers(0, max(s, d))) for s, d in zip(strides, dilations, strict=True)]
        if how == "output_padding" or (any(padding) and how == "pads"):
            draft.set("output_padding", padding)
    if how in ("pads", "output_padding"):
        pads = [int(draft.rng.integers(0, e)) if e > 1 else 0 for e in (*extent, *extent)]
        sizes = [f - a - b for f, a, b in zip(full, pads[:axes], pads[axes:], strict=True)]
        if min(sizes) < 1:
            raise Unfit("nothing left")
        draft.set("pads", pads)
    if how == "output_shape":
        draft.set("output_shape", [max(1, f - draft.one(0, 1, 2)) for f in full])
        if draft.chance():
            draft.set("auto_pad", draft.one("SAME_UPPER", "SAME_LOWER", "NOTSET"))
    if how == "auto_pad":
        if any(e < s for e, s in zip(extent, strides, strict=True)):
            raise Unfit("pads below 0")
        draft.set("auto_pad", draft.one("SAME_UPPER", "SAME_LOWER", "VALID"))
    channels, filters = group * draft.one(1, 2, 3), draft.one(1, 2, 3)
    draft.tensor((draft.one(1, 2), channels, *image))
    draft.tensor((channels, filters, *kernel))
    if draft.optional("B"):
        draft.tensor((filters * group,))
    draft.loose = 4.0


@builds("ConvInteger")
def conv_integer(draft: Draft) -> None:
    kernel, dilations = _window(draft, 2)
    group = draft.one(1, 1, 2)
    draft.attribute("kernel_shape", kernel)
    if group != 1:
        draft.set("group", group)
    channels, filters = group * draft.one(1, 2), group * draft.one(1, 2)
    x, w = draft.type_of("T1"), draft.type_of("T2")
    draft.read(draft.values((1, channels, *_image(draft, kernel, dilations)), x, "wild"))
    draft.read(draft.values((filters, channels // group, *kernel), w, "wild"))
    if draft.optional("x_zero_point"):
        draft.read(draft.values((), x))
    if draft.optional("w_zero_point"):
        draft.read(draft.values((), w))
    draft.exact = True


@builds("DeformConv")
def deform_conv(draft: Draft) -> None:
    kernel = [draft.one(1, 2, 3), draft.one(1, 2, 3)]
    strides = draft.attribute("strides", [draft.one(1, 2), 1], default=[1, 1])
    dilations = draft.attribute("dilations", [draft.one(1, 2), 1], default=[1, 1])
    pads = draft.attribute("pads", [draft.one(0, 1) for _ in range(4)], default=[0] * 4)
    draft.attribute("kernel_shape", kernel)
    group, offsets = draft.one(1, 1, 2), draft.one(1, 1, 2)
    draft.attributes.update({"group": group} if group > 1 else {}, **({"offset_group": offsets} if offsets > 1 else {}))
    channels = group * offsets * draft.one(1, 2)
    image = _image(draft, kernel, dilations)
    out = [
        (i + pads[a] + pads[a + 2] - dilations[a] * (kernel[a] - 1) - 1) // strides[a] + 1 for a, i in enumerate(image)
    ]
    taps, filters = math.prod(kernel), group * draft.one(1, 2)
    draft.tensor((1, channels, *image))
    draft.tensor((filters, channels // group, *kernel))
    draft.tensor((1, 2 * offsets * taps, *out), kind="unit")
    if draft.optional("B"):
        draft.tensor((filters,))
    if draft.optional("mask"):
        draft.tensor((1, offsets * taps, *out), kind="positive")
    draft.loose = 8.0


@builds("MaxPool", "AveragePool", "LpPool")
def pool(draft: Draft) -> None:
    axes = draft.one(1, 2, 2, 2, 3)
    kernel, dilations = _window(draft, axes, dilated=draft.chance(0.4))
    dilations = draft.attributes.get("dilations", [1] * axes)
    draft.attribute("ceil_mode", 0, 1)
    draft.attribute("count_include_pad", 0, 1)
    draft.attribute("p", 1, 2, 3)
    if draft.name == "LpPool" and draft.version < 2 and "p" in draft.attributes:
        draft.attributes["p"] = float(draft.attributes["p"])
    draft.set("kernel_shape", kernel)
    pads = draft.attributes.get("pads")
    if pads and any(pad >= k for pad, k in zip(pads, [*kernel, *kernel], strict=True)):
        draft.attributes["pads"] = [min(pad, k - 1) for pad, k in zip(pads, [*kernel, *kernel], strict=True)]
    draft.tensor((draft.one(1, 2), draft.one(1, 2, 3), *_image(draft, kernel, dilations)))
    if draft.name == "MaxPool":
        draft.attribute("storage_order", 0)
        draft.results("y1")
        draft.exact = True


@builds("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(draft: Draft) -> None:
    draft.attribute("p", *((2.0,) if draft.version < 2 else (1, 2, 3)))
    draft.tensor((draft.one(1, 2), draft.one(1, 3), *draft.dims(1, 3, filled=True)))


@builds("MaxUnpool")
def max_unpool(draft: Draft) -> None:
    draft.set("kernel_shape", [2, 2])
    draft.set("strides", [2, 2])
    n, c, h, w = 1, draft.one(1, 2), draft.one(1, 2, 3), draft.one(2, 3)
    draft.attribute("pads", [0, 0, 0, 0])
    draft.tensor((n, c, h, w), "T1")
    places = [
        (ch * 2 * h + 2 * i + draft.one(0, 1)) * 2 * w + 2 * j + draft.one(0, 1)
        for ch in range(c)
        for i in range(h)
        for j in range(w)
    ]
    draft.read(np.array(places, np.int64).reshape(n, c, h, w))
    if draft.optional("output_shape", 0.3):
        draft.read(np.array([n, c, 2 * h, 2 * w], np.int64))
    draft.exact = True


@builds("Col2Im")
def col2im(draft: Draft) -> None:
    block = [draft.one(1, 2), draft.one(1, 2, 3)]
    strides = draft.attribute("strides", [1, 2], [2, 1], default=[1, 1])
    dilations = draft.attribute("dilations", [1, 2], [1, 1], default=[1, 1])
    pads = draft.attribute("pads", [0, 1, 1, 0], [0, 0, 0, 0], default=[0] * 4)
    image = [draft.one(4, 5), draft.one(5, 6)]
    count = [
        (i + pads[a] + pads[a + 2] - dilations[a] * (block[a] - 1) - 1) // strides[a] + 1 for a, i in enumerate(image)
    ]
    draft.tensor((draft.one(1, 2), draft.one(1, 2) * math.prod(block), math.prod(count)))
    draft.read(np.array(image, np.int64))
    draft.read(np.array(block, np.int64))


@builds("LRN")
def lrn(draft: Draft) -> None:
    draft.set("size", draft.one(1, 3, 5, 2))
    draft.attribute("alpha", 1e-4, 0.1)
    draft.attribute("beta", 0.75, 0.5)
    draft.attribute("bias", 1.0, 2.0)
    draft.tensor((1, draft.one(2, 3, 5), *draft.dims(2, 2, filled=True)))


@builds("MaxRoiPool")
def max_roi_pool(draft: Draft) -> None:
    draft.set("pooled_shape", [draft.one(1, 2), draft.one(2, 3)])
    draft.attribute("spatial_scale", 1.0, 0.5)
    draft.tensor((1, 2, 6, 7))
    draft.read(np.array([[0, 0, 0, 5, 4], [0, 1, 2, 3, 5]]).astype(draft.type_of("T")))


@builds("CausalConvWithState")
def causal_conv(draft: Draft) -> None:
    n, c, length, k = 1, draft.one(1, 2), draft.one(1, 3, 5), draft.one(1, 2, 3)
    draft.attribute("activation", "none", "silu", "swish")
    draft.tensor((n, c, length))
    draft.tensor((c, 1, k))
    if draft.optional("bias"):
        draft.tensor((c,))
    if draft.optional("past_state"):
        draft.tensor((n, c, k - 1))
    draft.results("y1")
