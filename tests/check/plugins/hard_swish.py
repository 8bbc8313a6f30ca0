"""Hard-swish, x * clip(x / 6 + 0.5, 0, 1), in float32, float16 and int8."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.tensor import DType

FLOATS = """
__device__ float hard_swish_of(float x) { return x * fminf(fmaxf(x / 6.0f + 0.5f, 0.0f), 1.0f); }

// a thread for two neighbouring values
template <typename T>
__global__ void hard_swish(const T* x, T* y, int n) {
    const int pair = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    for (int i = pair; i < min(pair + 2, n); ++i) {
        y[i] = T(hard_swish_of(float(x[i])));
    }
}
"""
CODES = """
__device__ float hard_swish_of(float x) { return x * fminf(fmaxf(x / 6.0f + 0.5f, 0.0f), 1.0f); }

// a thread for a code; a code times its scale is the value that it stands for
__global__ void hard_swish_codes(const int8_t* x, int8_t* y, int n, float x_scale, float y_scale) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float value = hard_swish_of(x[i] * x_scale);
    const float code = rintf(value / y_scale);
    y[i] = static_cast<int8_t>(fminf(fmaxf(code, -128.0f), 127.0f));
}
"""


@ptp.plugin(namespace="wanted")
class HardSwish(ptp.Plugin):
    """x * clip(x / 6 + 0.5, 0, 1) of each value; on int8 codes with the scales of the input and of the output."""

    int8: ClassVar[str] = "requantize"
    floats: ClassVar[ptp.CudaKernel] = ptp.CudaKernel.from_source(FLOATS, "hard_swish")
    codes: ClassVar[ptp.CudaKernel] = ptp.CudaKernel.from_source(CODES, "hard_swish_codes")

    def output_dims(self, x):
        return x

    def compute(self, x):
        values = x.astype(np.float32)
        return (values * np.clip(values / np.float32(6) + np.float32(0.5), 0, 1)).astype(x.dtype)

    def supports_format(self, position, descs):
        accepted = (DType.FLOAT32, DType.FLOAT16, DType.INT8)
        desc = descs[position]
        return desc.layout == "linear" and desc.dtype in accepted and desc.dtype == descs[0].dtype

    def configure(self, inputs, outputs):
        self.scales = inputs[0].scale, outputs[0].scale

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        if DType.of(x) is DType.INT8:
            self.codes.launch(x, y, x.size, self.scales, threads=x.size, stream=stream)
        else:
            self.floats.launch(x, y, x.size, threads=(x.size + 1) // 2, stream=stream)
