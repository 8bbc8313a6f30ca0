"""Samples an image at the places of a grid, with bilinear weights, as PyTorch's grid_sample and ONNX's GridSample."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.errors import FieldError
from pytrtplugins.tensor import DType, check_equal, check_rank

KERNEL = """
// Pixels along an axis for a place from -1 to 1. With align_corners -1 and 1 are the centres of the outer pixels, else the
// edges of the image.
__device__ float pixel_of(float place, int size, bool align_corners, bool border) {
    float pixel = align_corners ? (place + 1.0f) * 0.5f * (size - 1) : ((place + 1.0f) * size - 1.0f) * 0.5f;
    if (border) pixel = fminf(fmaxf(pixel, 0.0f), size - 1.0f);
    return fminf(fmaxf(pixel, -2.0f), size + 1.0f);  // farther away all is 0, and an int may not hold it
}

// x: [N, C, H, W]; grid: [N, OH, OW, 2], x before y; y: [N, C, OH, OW], a thread for each value
template <typename T>
__global__ void sample(const T* x, const float* grid, T* y, int total, int c, int h, int w, int oh, int ow,
                       bool align_corners, bool border) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    const int place = i % (oh * ow), plane = i / (oh * ow);
    const float* at = grid + 2LL * (plane / c * oh * ow + place);
    const float px = pixel_of(at[0], w, align_corners, border), py = pixel_of(at[1], h, align_corners, border);
    const int left = static_cast<int>(floorf(px)), top = static_cast<int>(floorf(py));
    const T* pixels = x + static_cast<long long>(plane) * h * w;
    float sum = 0.0f;
    for (int row = top; row <= top + 1; ++row) {
        for (int column = left; column <= left + 1; ++column) {
            const float weight = (1.0f - fabsf(px - column)) * (1.0f - fabsf(py - row));
            if (row >= 0 && row < h && column >= 0 && column < w) sum += weight * float(pixels[row * w + column]);
        }
    }
    y[i] = T(sum);
}
"""


@ptp.plugin(namespace="wanted")
class BilinearSampler(ptp.Plugin):
    """Values of x at the places of grid: -1 and 1 are the borders of the image; outside are zeros, or the nearest pixel."""

    align_corners: bool = False
    padding: str = "zeros"
    kernel: ClassVar[ptp.CudaKernel] = ptp.CudaKernel.from_source(KERNEL, "sample")

    def validate(self):
        if self.padding not in ("zeros", "border"):
            raise FieldError(f"BilinearSampler.padding: expected 'zeros' or 'border', found {self.padding!r}")

    def output_dims(self, x, grid):
        check_rank(x, 4, "BilinearSampler: x")
        check_rank(grid, 4, "BilinearSampler: grid")
        check_equal(grid[0], x[0], "BilinearSampler: batch of grid")
        check_equal(grid[3], 2, "BilinearSampler: last axis of grid")
        return x[0], x[1], grid[1], grid[2]

    def output_dtypes(self, x, grid):
        return x

    def supports_format(self, position, descs):
        desc, accepted = descs[position], (DType.FLOAT32, DType.FLOAT16)
        if position == 1:
            return desc.layout == "linear" and desc.dtype == DType.FLOAT32
        return desc.layout == "linear" and desc.dtype in accepted and desc.dtype == descs[0].dtype

    def compute(self, x, grid):
        n, c, h, w = x.shape
        px, py = self._pixels(grid[..., 0], w), self._pixels(grid[..., 1], h)  # [N, OH, OW]
        left, top = np.floor(px).astype(np.int64), np.floor(py).astype(np.int64)
        images = np.arange(n)[:, None, None]
        total = np.zeros((*px.shape, c), np.float32)
        for row in (top, top + 1):
            for column in (left, left + 1):
                inside = (row >= 0) & (row < h) & (column >= 0) & (column < w)
                weight = np.where(inside, (1 - abs(px - column)) * (1 - abs(py - row)), 0).astype(np.float32)
                values = x[images, :, np.clip(row, 0, h - 1), np.clip(column, 0, w - 1)]  # [N, OH, OW, C]
                total += weight[..., None] * values.astype(np.float32)
        return np.ascontiguousarray(total.transpose(0, 3, 1, 2)).astype(x.dtype)

    def _pixels(self, places, size):
        places = places.astype(np.float32)
        pixels = (places + 1) * 0.5 * (size - 1) if self.align_corners else ((places + 1) * size - 1) * 0.5
        return np.clip(pixels, 0, size - 1) if self.padding == "border" else pixels

    def enqueue(self, inputs, outputs, workspace, stream):
        (x, grid), (y,) = inputs, outputs
        sizes = (*x.shape[1:], *y.shape[2:])
        self.kernel.launch(
            x, grid, y, y.size, sizes, self.align_corners, self.padding == "border", threads=y.size, stream=stream
        )
