"""A network's first convolution, batch norm, leaky ReLU and pooling in three passes over the images, with Triton.

The convolution has 27 inputs a pixel and many outputs, so its feature map, the largest of the network, is never stored: each pass
computes what it needs of it again, on tensor cores, from the 4 x 4 pixels under each pixel of the pooled map.

With the values v of such a patch, 48 of them and a one, each of its four outputs is w·v, w being the filter at one of four places. So all
sums over the feature map that batch norm needs follow from the second moments M = Σ v vᵀ, which one pass over the images gives:

    mean = Σ w·M[:, one] / n        variance = Σ wᵀ M w / n - mean²

In the same way the backward pass needs B = Σ g vᵀ only, g being the gradient behind the batch norm. With x̂ the normalized outputs, s the
scale and d the standard deviation, the gradient of the filters is

    s/d (Σ g v - Σ g Σ v / n - Σ g x̂ Σ x̂ v / n)

by the derivative of batch norm (Ioffe and Szegedy 2015, section 3).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

__all__ = ["LARGEST", "first_block"]

LARGEST = 64  # filters: more do not fit into registers
PIXELS = 128  # of the pooled map, in a tile
TILES = 8  # that a program adds up, in a tensor core's float32
VALUES = 64  # of a patch: 4 x 4 pixels of 3 channels, a one, and zeros
ONE = 48  # the place of the one
_PATCH = tl.constexpr(ONE)
WARPS = 4
ROWS, COLUMNS = 256, 16  # programs, and values of each, in a tile of what adds them up


@triton.jit
def _patches(x, first, count, height, width, sn, sc, sy, sx, PIXELS: tl.constexpr, VALUES: tl.constexpr):
    """The patches of a tile, (pixels, values), with zeros outside the image."""
    pixel = first + tl.arange(0, PIXELS)
    column, row, image = (
        pixel % (width // 2),
        pixel // (width // 2) % (height // 2),
        pixel // (width // 2 * (height // 2)),
    )
    value = tl.arange(0, VALUES)
    y, x0 = 2 * row[:, None] - 1 + (value // 12)[None, :], 2 * column[:, None] - 1 + (value % 12 // 3)[None, :]
    there = (pixel < count)[:, None]
    inside = there & (value < _PATCH)[None, :] & (y >= 0) & (y < height) & (x0 >= 0) & (x0 < width)
    place = image.to(tl.int64)[:, None] * sn + (value % 3)[None, :] * sc + y * sy + x0 * sx
    found = tl.load(x + place, mask=inside, other=0.0)
    return tl.where((value == _PATCH)[None, :] & there, 1.0, found).to(found.dtype)


@triton.jit
def _normalized(patches, weights, scale, shift, place: tl.constexpr, VALUES: tl.constexpr, FILTERS: tl.constexpr):
    """One of a patch's four outputs, normalized, (pixels, filters)."""
    inside = tl.arange(0, VALUES)[:, None] + VALUES * tl.arange(0, FILTERS)[None, :]
    filters = tl.load(weights + place * FILTERS * VALUES + inside)
    return tl.dot(patches, filters, input_precision="ieee") * scale[None, :] + shift[None, :]


@triton.jit
def _moments_kernel(
    x, out, count, height, width, sn, sc, sy, sx, PIXELS: tl.constexpr, TILES: tl.constexpr, VALUES: tl.constexpr
):
    program = tl.program_id(0)
    total = tl.zeros((VALUES, VALUES), tl.float32)
    for tile in range(TILES):
        first = (program * TILES + tile) * PIXELS
        patches = _patches(x, first, count, height, width, sn, sc, sy, sx, PIXELS, VALUES)
        total += tl.dot(tl.trans(patches), patches, input_precision="ieee")
    inside = VALUES * tl.arange(0, VALUES)[:, None] + tl.arange(0, VALUES)[None, :]
    tl.store(out + program.to(tl.int64) * VALUES * VALUES + inside, total)


@triton.jit
def _total_kernel(partial, out, programs, size, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float64)
    for first in range(0, programs, ROWS):
        row = first + tl.arange(0, ROWS)
        place = row.to(tl.int64)[:, None] * size + column[None, :]
        total += tl.load(partial + place, mask=(row < programs)[:, None], other=0.0).to(tl.float64)
    tl.store(out + column, tl.sum(total, 0))


@triton.jit
def _forward_kernel(
    x,
    weights,
    scales,
    shifts,
    out,
    slope,
    count,
    height,
    width,
    sn,
    sc,
    sy,
    sx,
    on,
    oc,
    oy,
    ox,
    filters,
    PIXELS: tl.constexpr,
    VALUES: tl.constexpr,
    FILTERS: tl.constexpr,
):
    first = tl.program_id(0) * PIXELS
    patches = _patches(x, first, count, height, width, sn, sc, sy, sx, PIXELS, VALUES)
    f = tl.arange(0, FILTERS)
    scale, shift = tl.load(scales + f), tl.load(shifts + f)
    best = _normalized(patches, weights, scale, shift, 0, VALUES, FILTERS)
    for place in tl.static_range(1, 4):
        best = tl.maximum(best, _normalized(patches, weights, scale, shift, place, VALUES, FILTERS))
    best = tl.where(best > 0, best, best * slope)
    place, there = _outputs(first, count, height, width, on, oc, oy, ox, filters, PIXELS, FILTERS)
    tl.store(out + place, best.to(out.dtype.element_ty), mask=there)


@triton.jit
def _outputs(first, count, height, width, on, oc, oy, ox, filters, PIXELS: tl.constexpr, FILTERS: tl.constexpr):
    """Where the outputs of a tile lie, (pixels, filters), and which exist."""
    pixel, f = first + tl.arange(0, PIXELS), tl.arange(0, FILTERS)
    column, row, image = (
        pixel % (width // 2),
        pixel // (width // 2) % (height // 2),
        pixel // (width // 2 * (height // 2)),
    )
    place = image.to(tl.int64) * on + row * oy + column * ox
    return place[:, None] + f[None, :] * oc, (pixel < count)[:, None] & (f < filters)[None, :]


@triton.jit
def _backward_kernel(
    x,
    weights,
    scales,
    shifts,
    gradients,
    out,
    slope,
    count,
    height,
    width,
    sn,
    sc,
    sy,
    sx,
    gn,
    gc,
    gy,
    gx,
    filters,
    PIXELS: tl.constexpr,
    TILES: tl.constexpr,
    VALUES: tl.constexpr,
    FILTERS: tl.constexpr,
):
    program, f = tl.program_id(0), tl.arange(0, FILTERS)
    scale, shift = tl.load(scales + f), tl.load(shifts + f)
    total0 = tl.zeros((FILTERS, VALUES), tl.float32)
    total1 = tl.zeros((FILTERS, VALUES), tl.float32)
    total2 = tl.zeros((FILTERS, VALUES), tl.float32)
    total3 = tl.zeros((FILTERS, VALUES), tl.float32)
    for tile in range(TILES):
        first = (program * TILES + tile) * PIXELS
        patches = _patches(x, first, count, height, width, sn, sc, sy, sx, PIXELS, VALUES)
        value0 = _normalized(patches, weights, scale, shift, 0, VALUES, FILTERS)
        value1 = _normalized(patches, weights, scale, shift, 1, VALUES, FILTERS)
        value2 = _normalized(patches, weights, scale, shift, 2, VALUES, FILTERS)
        value3 = _normalized(patches, weights, scale, shift, 3, VALUES, FILTERS)
        best = tl.maximum(tl.maximum(value0, value1), tl.maximum(value2, value3))
        place, there = _outputs(first, count, height, width, gn, gc, gy, gx, filters, PIXELS, FILTERS)
        gradient = tl.load(gradients + place, mask=there, other=0.0).to(tl.float32)
        gradient = tl.where(best > 0, gradient, gradient * slope)
        is0 = value0 == best  # of equal ones the first gets the gradient
        is1 = (value1 == best) & ~is0
        is2 = (value2 == best) & ~is0 & ~is1
        is3 = ~is0 & ~is1 & ~is2
        total0 += _product(gradient, is0, patches)
        total1 += _product(gradient, is1, patches)
        total2 += _product(gradient, is2, patches)
        total3 += _product(gradient, is3, patches)
    size = FILTERS * VALUES
    inside = out + program.to(tl.int64) * 4 * size + VALUES * f[:, None] + tl.arange(0, VALUES)[None, :]
    tl.store(inside, total0)
    tl.store(inside + size, total1)
    tl.store(inside + 2 * size, total2)
    tl.store(inside + 3 * size, total3)


@triton.jit
def _product(gradient, chosen, patches):
    """Gradients of one place, times patches, (filters, values)."""
    mine = tl.where(chosen, gradient, 0.0).to(patches.dtype)
    return tl.dot(tl.trans(mine), patches, input_precision="ieee")


def _geometry(x: Tensor) -> tuple[int, ...]:
    """Pixels of the pooled map, height, width and strides, as the kernels take them."""
    images, _, height, width = x.shape
    return images * (height // 2) * (width // 2), height, width, *x.stride()


def _total(partial: Tensor) -> Tensor:
    """The sum over programs, float64: PyTorch's would first write all of them as float64."""
    size = partial[0].numel()
    out = partial.new_empty(partial.shape[1:], dtype=torch.float64)
    _total_kernel[(size // COLUMNS,)](partial, out, len(partial), size, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=8)
    return out


def _spread(weight: Tensor) -> Tensor:
    """Filters (F, 3, 3, 3) at the four places of a patch, (4, filters, values) with zeros elsewhere; filters up to a power of 2."""
    padded = max(16, triton.next_power_of_2(len(weight)))
    placed = [functional.pad(weight, (x, 1 - x, y, 1 - y)) for y in (0, 1) for x in (0, 1)]
    values = torch.stack([each.permute(0, 2, 3, 1).flatten(1) for each in placed])
    return functional.pad(values, (0, VALUES - values.shape[2], 0, padded - len(weight))).contiguous()


def _gathered(values: Tensor, filters: int) -> Tensor:
    """The reverse of `_spread`, for gradients: the sum of what belongs to a weight at the four places, (F, 3, 3, 3)."""
    pixels = values[:, :filters, :ONE].unflatten(2, (4, 4, 3))
    parts = [pixels[2 * y + x, :, y : y + 3, x : x + 3] for y in (0, 1) for x in (0, 1)]
    return sum(parts[1:], parts[0]).permute(0, 3, 1, 2)


def _affine(scale: Tensor, shift: Tensor, mean: Tensor, deviation: Tensor, padded: int) -> list[Tensor]:
    """What a batch norm multiplies by and adds, with zeros up to the filters that the kernels take."""
    times = scale / deviation
    return [functional.pad(each, (0, padded - len(scale))) for each in (times, shift - mean * times)]


@torch.library.custom_op("yolov2_training::first_block", mutates_args=())
def first_block(
    x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, epsilon: float, slope: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Convolution of 3 x 3, batch norm with the batch's statistics, leaky ReLU, and pooling of 2 x 2.

    Args:
        x: (N, 3, H, W) images, float16, bfloat16 or float32, in any memory layout; H and W are even.
        weight: (F, 3, 3, 3), F at most `LARGEST`; is rounded to the type of ``x``.
        scale: (F,) float32, of the batch norm.
        shift: (F,) float32, likewise.
        epsilon: What is added to the variance.
        slope: Of the leaky ReLU.

    Returns:
        The pooled map (N, F, H/2, W/2) in the type and layout of ``x``; mean and variance (F,) of the convolution's outputs, float32; the
        second moments of the patches, (64, 64) float64, for the backward pass.
    """
    count, height, width, *strides = _geometry(x)
    programs = triton.cdiv(count, PIXELS * TILES)
    partial = x.new_empty((programs, VALUES, VALUES), dtype=torch.float32)
    how = {"PIXELS": PIXELS, "VALUES": VALUES, "num_warps": WARPS}
    _moments_kernel[(programs,)](x, partial, count, height, width, *strides, TILES=TILES, **how)
    moments = _total(partial)
    filters = _spread(weight.to(x.dtype))
    spread = filters[:, : len(weight)].double()
    mean = (spread @ moments[:, ONE]).sum(0) / (4 * count)
    variance = ((spread @ moments) * spread).sum((0, 2)) / (4 * count) - mean**2
    mean, variance = mean.float(), variance.clamp(min=0).float()
    times, plus = _affine(scale, shift, mean, (variance + epsilon).sqrt(), filters.shape[1])
    out = _pooled(x, len(weight))
    _forward_kernel[(triton.cdiv(count, PIXELS),)](
        *(x, filters, times, plus, out, slope, count, height, width, *strides, *out.stride(), len(weight)),
        FILTERS=len(times),
        **how,
    )
    return out, mean, variance, moments


@first_block.register_fake
def _(x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, epsilon: float, slope: float) -> tuple[Tensor, ...]:
    moments = x.new_empty((VALUES, VALUES), dtype=torch.float64)
    return _pooled(x, len(weight)), torch.empty_like(scale), torch.empty_like(scale), moments


def _pooled(x: Tensor, filters: int) -> Tensor:
    """An empty pooled map, with the channels last where those of the images are."""
    images, _, height, width = x.shape
    last = x.stride(1) == 1
    layout = torch.channels_last if last else torch.contiguous_format
    return torch.empty((images, filters, height // 2, width // 2), dtype=x.dtype, device=x.device, memory_format=layout)


@torch.library.custom_op("yolov2_training::first_block_gradients", mutates_args=())
def _gradients(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    shift: Tensor,
    mean: Tensor,
    variance: Tensor,
    moments: Tensor,
    epsilon: float,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of weight, scale and shift."""
    count, height, width, *strides = _geometry(x)
    deviation = (variance + epsilon).sqrt()
    filters = _spread(weight.to(x.dtype))
    times, plus = _affine(scale, shift, mean, deviation, filters.shape[1])
    programs = triton.cdiv(count, PIXELS * TILES)
    partial = x.new_empty((programs, *filters.shape), dtype=torch.float32)
    _backward_kernel[(programs,)](
        *(x, filters, times, plus, gradient, partial, slope, count, height, width, *strides, *gradient.stride()),
        len(weight),
        PIXELS=PIXELS,
        TILES=TILES,
        VALUES=VALUES,
        FILTERS=len(times),
        num_warps=WARPS,
    )
    n = len(weight)
    products = _total(partial)[:, :n]  # Σ g v
    spread, centre, deviation = filters[:, :n].double(), mean.double(), deviation.double()
    of_shift = products[:, :, ONE].sum(0)
    of_scale = ((products * spread).sum((0, 2)) - centre * of_shift) / deviation  # Σ g x̂
    sums = moments[ONE].expand_as(products)  # Σ v
    correlated = (spread @ moments - centre[:, None] * sums) / deviation[:, None]  # Σ x̂ v
    centred = products - (of_shift[:, None] * sums + of_scale[:, None] * correlated) / (4 * count)
    of_weight = _gathered(centred, n) * (scale / deviation)[:, None, None, None]
    return of_weight.to(weight.dtype).contiguous(), of_scale.to(scale.dtype), of_shift.to(shift.dtype)


@_gradients.register_fake
def _(gradient: Tensor, x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, *_: object) -> tuple[Tensor, ...]:
    return (
        torch.empty_like(weight, memory_format=torch.contiguous_format),
        torch.empty_like(scale),
        torch.empty_like(shift),
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.epsilon, ctx.slope = inputs
    ctx.save_for_backward(*tensors, *output[1:])


def _backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    found = _gradients(gradient, *ctx.saved_tensors, ctx.epsilon, ctx.slope)
    return None, *found, None, None


first_block.register_autograd(_backward, setup_context=_keep)
