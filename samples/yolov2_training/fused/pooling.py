"""Batch norm, leaky ReLU and the pooling behind them in two passes over a feature map, and two more for the gradient, with Triton.

The first pass of each adds up, the second one writes. What the pooling chose is computed again, so nothing is stored but the feature map.
With x̂ the normalized values, s the scale, d the standard deviation, and g the gradient at the places that were chosen, times the slope
where their value is negative, the gradient of the feature map is

    s/d (g - Σ g / n - x̂ Σ g x̂ / n)

by the derivative of batch norm (Ioffe and Szegedy 2015, section 3).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["norm_and_pool"]

ROWS = 32  # pixels of the pooled map, in a tile
CHANNELS = 64  # in a tile, at most
TILES = 16  # that a program adds up
WARPS = 8


@triton.jit
def _rows(tile, count, height, width, channels, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """Where the first of four values lies in the feature map and where their largest in the pooled map, and which exist."""
    pixel = tile * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    column, row = pixel % (width // 2), pixel // (width // 2)  # rows of all images: heights are even
    place = (2 * row * width + 2 * column).to(tl.int64) * channels
    there = (pixel < count)[:, None] & (channel < channels)[None, :]
    return place[:, None] + channel[None, :], pixel.to(tl.int64)[:, None] * channels + channel[None, :], there


@triton.jit
def _sums_kernel(
    x, out, count, height, width, channels, ROWS: tl.constexpr, TILES: tl.constexpr, CHANNELS: tl.constexpr
):
    """Sums of values and of their squares, (programs, 2, channels)."""
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    squares = tl.zeros((ROWS, CHANNELS), tl.float32)
    for number in range(TILES):
        place, _, there = _rows(tl.program_id(0) * TILES + number, count, height, width, channels, ROWS, CHANNELS)
        for which in tl.static_range(4):
            value = tl.load(x + place + (which // 2 * width + which % 2) * channels, mask=there, other=0.0).to(
                tl.float32
            )
            total += value
            squares += value * value
    _store_sums(out, tl.sum(total, 0), tl.sum(squares, 0), channels, CHANNELS)


@triton.jit
def _store_sums(out, first, second, channels, CHANNELS: tl.constexpr):
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    place = out + tl.program_id(0) * 2 * channels + channel
    tl.store(place, first, mask=channel < channels)
    tl.store(place + channels, second, mask=channel < channels)


@triton.jit
def _added(partial, programs, channels, channel, STEP: tl.constexpr, CHANNELS: tl.constexpr):
    """The two sums of all programs, float64."""
    first = tl.zeros((STEP, CHANNELS), tl.float64)
    second = tl.zeros((STEP, CHANNELS), tl.float64)
    for begin in range(0, programs, STEP):
        program = begin + tl.arange(0, STEP)
        place = partial + program[:, None] * 2 * channels + channel[None, :]
        there = (program < programs)[:, None] & (channel < channels)[None, :]
        first += tl.load(place, mask=there, other=0.0).to(tl.float64)
        second += tl.load(place + channels, mask=there, other=0.0).to(tl.float64)
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def _statistics_kernel(
    partial, scale, shift, out, programs, number, channels, epsilon, STEP: tl.constexpr, CHANNELS: tl.constexpr
):
    """Mean, variance, and what the norm multiplies by and adds, (4, channels)."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    there = channel < channels
    first, second = _added(partial, programs, channels, channel, STEP, CHANNELS)
    mean = first / number
    variance = tl.maximum(second / number - mean * mean, 0.0)
    times = tl.load(scale + channel, mask=there, other=0.0) / tl.sqrt(variance + epsilon)
    plus = tl.load(shift + channel, mask=there, other=0.0) - mean * times
    tl.store(out + channel, mean.to(tl.float32), mask=there)
    tl.store(out + channels + channel, variance.to(tl.float32), mask=there)
    tl.store(out + 2 * channels + channel, times.to(tl.float32), mask=there)
    tl.store(out + 3 * channels + channel, plus.to(tl.float32), mask=there)


@triton.jit
def _affine(statistics, channels, CHANNELS: tl.constexpr):
    """What the norm multiplies by and adds, each (1, channels)."""
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    there = channel < channels
    times = tl.load(statistics + 2 * channels + channel, mask=there, other=0.0)
    plus = tl.load(statistics + 3 * channels + channel, mask=there, other=0.0)
    return times[None, :], plus[None, :]


@triton.jit
def _pool_kernel(x, statistics, out, slope, count, height, width, channels, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    place, pooled, there = _rows(tl.program_id(0), count, height, width, channels, ROWS, CHANNELS)
    times, plus = _affine(statistics, channels, CHANNELS)
    best = tl.load(x + place, mask=there, other=0.0).to(tl.float32) * times + plus
    for which in tl.static_range(1, 4):
        value = tl.load(x + place + (which // 2 * width + which % 2) * channels, mask=there, other=0.0).to(tl.float32)
        best = tl.maximum(best, value * times + plus)
    best = tl.where(best > 0, best, best * slope)
    tl.store(out + pooled, best.to(out.dtype.element_ty), mask=there)


@triton.jit
def _chosen(x, place, there, times, plus, gradients, pooled, slope, width, channels):
    """The four values, which of them the pooling chose, the first of equal ones, and the gradient there."""
    value0 = tl.load(x + place, mask=there, other=0.0).to(tl.float32)
    value1 = tl.load(x + place + channels, mask=there, other=0.0).to(tl.float32)
    value2 = tl.load(x + place + width * channels, mask=there, other=0.0).to(tl.float32)
    value3 = tl.load(x + place + (width + 1) * channels, mask=there, other=0.0).to(tl.float32)
    out0, out1, out2, out3 = value0 * times + plus, value1 * times + plus, value2 * times + plus, value3 * times + plus
    best = tl.maximum(tl.maximum(out0, out1), tl.maximum(out2, out3))
    which = tl.where(out0 == best, 0, tl.where(out1 == best, 1, tl.where(out2 == best, 2, 3)))
    gradient = tl.load(gradients + pooled, mask=there, other=0.0).to(tl.float32)
    return value0, value1, value2, value3, which, tl.where(best > 0, gradient, gradient * slope)


@triton.jit
def _gradient_sums_kernel(
    x,
    statistics,
    gradients,
    out,
    slope,
    count,
    height,
    width,
    channels,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Sums of the gradients, and of the gradients times the values less their mean, (programs, 2, channels)."""
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    mean = tl.load(statistics + channel, mask=channel < channels, other=0.0)[None, :]
    times, plus = _affine(statistics, channels, CHANNELS)
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    products = tl.zeros((ROWS, CHANNELS), tl.float32)
    for number in range(TILES):
        place, pooled, there = _rows(tl.program_id(0) * TILES + number, count, height, width, channels, ROWS, CHANNELS)
        value0, value1, value2, value3, which, gradient = _chosen(
            x, place, there, times, plus, gradients, pooled, slope, width, channels
        )
        value = tl.where(which == 0, value0, tl.where(which == 1, value1, tl.where(which == 2, value2, value3)))
        total += gradient
        products += gradient * (value - mean)
    _store_sums(out, tl.sum(total, 0), tl.sum(products, 0), channels, CHANNELS)


@triton.jit
def _finish_kernel(
    partial, statistics, out, programs, number, channels, epsilon, STEP: tl.constexpr, CHANNELS: tl.constexpr
):
    """Gradients of scale and shift, and the factors a, b of x̂'s part and the constant: dx = times g + a x + b, (4, channels)."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    there = channel < channels
    of_shift, products = _added(partial, programs, channels, channel, STEP, CHANNELS)
    mean = tl.load(statistics + channel, mask=there, other=0.0)
    variance = tl.load(statistics + channels + channel, mask=there, other=1.0).to(tl.float64)
    times = tl.load(statistics + 2 * channels + channel, mask=there, other=0.0)
    factor = -times * products / ((variance + epsilon) * number)
    tl.store(out + channel, (products / tl.sqrt(variance + epsilon)).to(tl.float32), mask=there)
    tl.store(out + channels + channel, of_shift.to(tl.float32), mask=there)
    tl.store(out + 2 * channels + channel, factor.to(tl.float32), mask=there)
    tl.store(out + 3 * channels + channel, (-times * of_shift / number - factor * mean).to(tl.float32), mask=there)


@triton.jit
def _gradient_kernel(
    x,
    statistics,
    finished,
    gradients,
    out,
    slope,
    count,
    height,
    width,
    channels,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    place, pooled, there = _rows(tl.program_id(0), count, height, width, channels, ROWS, CHANNELS)
    times, plus = _affine(statistics, channels, CHANNELS)
    factor, constant = _affine(finished, channels, CHANNELS)
    value0, value1, value2, value3, which, gradient = _chosen(
        x, place, there, times, plus, gradients, pooled, slope, width, channels
    )
    gradient *= times
    kind = out.dtype.element_ty
    found0 = tl.where(which == 0, gradient, 0.0) + factor * value0 + constant
    found1 = tl.where(which == 1, gradient, 0.0) + factor * value1 + constant
    found2 = tl.where(which == 2, gradient, 0.0) + factor * value2 + constant
    found3 = tl.where(which == 3, gradient, 0.0) + factor * value3 + constant
    tl.store(out + place, found0.to(kind), mask=there)
    tl.store(out + place + channels, found1.to(kind), mask=there)
    tl.store(out + place + width * channels, found2.to(kind), mask=there)
    tl.store(out + place + (width + 1) * channels, found3.to(kind), mask=there)


def _geometry(x: Tensor) -> tuple[int, int, int, int]:
    images, channels, height, width = x.shape
    return images * (height // 2) * (width // 2), height, width, channels


def _tiles(x: Tensor) -> tuple[dict[str, int], int, int]:
    """Sizes of a tile, and how many of them there are in pixels and in channels."""
    count, *_, channels = _geometry(x)
    wide = min(CHANNELS, max(16, triton.next_power_of_2(channels)))
    rows = ROWS * CHANNELS // wide
    return {"ROWS": rows, "CHANNELS": wide, "num_warps": WARPS}, triton.cdiv(count, rows), triton.cdiv(channels, wide)


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


@torch.library.custom_op("yolov2_training::norm_and_pool", mutates_args=())
def norm_and_pool(x: Tensor, scale: Tensor, shift: Tensor, epsilon: float, slope: float) -> tuple[Tensor, Tensor]:
    """Batch norm with the batch's statistics, leaky ReLU, and pooling of 2 x 2.

    Args:
        x: (N, C, H, W), float16, bfloat16 or float32; H and W are even.
        scale: (C,) float32, of the batch norm.
        shift: (C,) float32, likewise.
        epsilon: What is added to the variance.
        slope: Of the leaky ReLU, 0 to 1.

    Returns:
        The pooled map (N, C, H/2, W/2), channels last in memory; mean, variance, and what the norm multiplies by and adds, (4, C) float32.
    """
    x = _last(x)
    geometry, (how, tiles, blocks) = _geometry(x), _tiles(x)
    programs, channels = triton.cdiv(tiles, TILES), x.shape[1]
    partial = x.new_empty((programs, 2, channels), dtype=torch.float32)
    _sums_kernel[programs, blocks](x, partial, *geometry, TILES=TILES, **how)
    statistics = x.new_empty((4, channels), dtype=torch.float32)
    number = 4 * geometry[0]
    _statistics_kernel[(triton.cdiv(channels, 16),)](
        partial, scale, shift, statistics, programs, number, channels, epsilon, STEP=64, CHANNELS=16
    )
    out = _pooled(x)
    _pool_kernel[tiles, blocks](x, statistics, out, slope, *geometry, **how)
    return out, statistics


@norm_and_pool.register_fake
def _(x: Tensor, scale: Tensor, shift: Tensor, epsilon: float, slope: float) -> tuple[Tensor, Tensor]:
    return _pooled(x), scale.new_empty((4, len(scale)))


def _pooled(x: Tensor) -> Tensor:
    images, channels, height, width = x.shape
    shape = images, channels, height // 2, width // 2
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


@torch.library.custom_op("yolov2_training::norm_and_pool_gradients", mutates_args=())
def _gradients(
    gradient: Tensor, x: Tensor, statistics: Tensor, epsilon: float, slope: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the feature map, scale and shift."""
    x, gradient = _last(x), _last(gradient)
    geometry, (how, tiles, blocks) = _geometry(x), _tiles(x)
    programs, channels = triton.cdiv(tiles, TILES), x.shape[1]
    partial = x.new_empty((programs, 2, channels), dtype=torch.float32)
    _gradient_sums_kernel[programs, blocks](x, statistics, gradient, partial, slope, *geometry, TILES=TILES, **how)
    finished = torch.empty_like(statistics)
    number = 4 * geometry[0]
    _finish_kernel[(triton.cdiv(channels, 16),)](
        partial, statistics, finished, programs, number, channels, epsilon, STEP=64, CHANNELS=16
    )
    out = torch.empty_like(x)
    _gradient_kernel[tiles, blocks](x, statistics, finished, gradient, out, slope, *geometry, **how)
    return out, finished[0].clone(), finished[1].clone()


@_gradients.register_fake
def _(gradient: Tensor, x: Tensor, statistics: Tensor, epsilon: float, slope: float) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.empty_like(x, memory_format=torch.channels_last),
        torch.empty_like(statistics[0]),
        torch.empty_like(statistics[1]),
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, _, _, ctx.epsilon, ctx.slope = inputs
    ctx.save_for_backward(x, output[1])


def _backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    return *_gradients(gradient, *ctx.saved_tensors, ctx.epsilon, ctx.slope), None, None


norm_and_pool.register_autograd(_backward, setup_context=_keep)
