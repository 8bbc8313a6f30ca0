"""Modulated deformable convolution (DCNv2): each tap of the kernel reads x at a place of its own, and has a factor."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.errors import DimsError, FieldError
from pytrtplugins.tensor import check_divisible, check_equal, check_rank, is_concrete


@ptp.plugin(namespace="wanted")
class DeformableConv(ptp.Plugin):
    """A convolution with an offset and a factor (mask) for each tap and each place; the weights are inputs.

    x: [N, C, H, W]; offset: [N, 2 * offset_groups * KH * KW, OH, OW], of each tap first along y, then along x;
    mask: [N, offset_groups * KH * KW, OH, OW]; weight: [O, C, KH, KW]; bias: [O].
    """

    stride: int = 1
    padding: int = 1
    dilation: int = 1
    offset_groups: int = 1
    kernel: ClassVar[ptp.CudaKernel] = ptp.CudaKernel.from_file("deformable_conv.cu", "deformable_conv")

    def validate(self):
        if min(self.stride, self.dilation, self.offset_groups) < 1 or self.padding < 0:
            raise FieldError(f"{self!r}: stride, dilation and offset_groups must be at least 1, padding at least 0")

    def output_dims(self, x, offset, mask, weight, bias):
        for name, dims, rank in (("x", x, 4), ("offset", offset, 4), ("mask", mask, 4), ("weight", weight, 4)):
            check_rank(dims, rank, f"DeformableConv: {name}")
        check_rank(bias, 1, "DeformableConv: bias")
        check_equal(weight[1], x[1], "DeformableConv: channels of weight")
        check_equal(bias[0], weight[0], "DeformableConv: size of bias")
        check_divisible(x[1], self.offset_groups, "DeformableConv: channels of x")
        taps = self.offset_groups * weight[2] * weight[3]
        places = tuple(self._places(size, taps_here) for size, taps_here in zip(x[2:], weight[2:], strict=True))
        for name, dims, channels in (("offset", offset, 2 * taps), ("mask", mask, taps)):
            check_equal(dims[0], x[0], f"DeformableConv: batch of {name}")
            check_equal(dims[1], channels, f"DeformableConv: channels of {name}")
            check_equal(dims[2], places[0], f"DeformableConv: height of {name}")
            check_equal(dims[3], places[1], f"DeformableConv: width of {name}")
        return x[0], weight[0], *places

    def _places(self, size, taps):
        """How many places the kernel has along an axis."""
        room = size + 2 * self.padding - self.dilation * (taps - 1) - 1
        if is_concrete(room) and room < 0:
            raise DimsError(f"DeformableConv: {taps} taps do not fit into {size} pixels with padding {self.padding}")
        return room // self.stride + 1

    def compute(self, x, offset, mask, weight, bias):
        n, c, _, _ = x.shape
        kh, kw = weight.shape[2:]
        groups, (oh, ow) = self.offset_groups, offset.shape[2:]
        x, weight = x.astype(np.float32), weight.astype(np.float32)
        offset = offset.astype(np.float32).reshape(n, groups, kh, kw, 2, oh, ow)
        mask = mask.astype(np.float32).reshape(n, groups, kh, kw, oh, ow)
        rows, columns = (self._taps(*sizes) for sizes in ((kh, oh), (kw, ow)))
        py = rows[:, None, :, None] + offset[:, :, :, :, 0]  # [N, groups, KH, KW, OH, OW]
        px = columns[:, None] + offset[:, :, :, :, 1]
        values = self._between(x.reshape(n, groups, c // groups, *x.shape[2:]), py, px) * mask[:, :, None]
        total = np.einsum("ocyx,ncyxhw->nohw", weight, values.reshape(n, c, kh, kw, oh, ow))
        return (total + bias.astype(np.float32)[:, None, None]).astype(bias.dtype)

    def _taps(self, taps, places):
        """Where each tap reads along an axis without an offset: [taps, places]."""
        first = (np.arange(places) * self.stride - self.padding).astype(np.float32)
        return first + np.float32(self.dilation) * np.arange(taps, dtype=np.float32)[:, None]

    @staticmethod
    def _between(x, py, px):
        """Values of x [N, groups, C, H, W] between pixels, at places [N, groups, ...]; 0 outside."""
        n, groups, c, h, w = x.shape
        more = (1,) * (py.ndim - 2)
        image, group = np.arange(n).reshape(n, 1, *more), np.arange(groups).reshape(1, groups, *more)
        top, left = np.floor(py).astype(np.int64), np.floor(px).astype(np.int64)
        total = np.zeros((*py.shape, c), np.float32)
        for row in (top, top + 1):
            for column in (left, left + 1):
                inside = (row >= 0) & (row < h) & (column >= 0) & (column < w)
                share = np.where(inside, (1 - abs(py - row)) * (1 - abs(px - column)), 0).astype(np.float32)
                values = x[image, group, :, np.clip(row, 0, h - 1), np.clip(column, 0, w - 1)]
                total += share[..., None] * values
        return np.moveaxis(total, -1, 2)

    def enqueue(self, inputs, outputs, workspace, stream):
        (x, _, _, weight, _), (y,) = inputs, outputs
        sizes = (*x.shape[1:], weight.shape[0], *weight.shape[2:], *y.shape[2:])
        fields = (self.stride, self.padding, self.dilation, self.offset_groups)
        self.kernel.launch(*inputs, y, y.size, sizes, fields, threads=y.size, stream=stream)
