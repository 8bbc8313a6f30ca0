// Photo -> network input: fit into the middle, grey around, values in 0..1, in darknet's rounding (src/image.c resize_image,
// rows first, in float).
//
// image: [height, width, 3] uint8, RGB. y: [3, out_h, out_w], or [out_h, out_w, 3] with nhwc. The photo fills new_w x new_h
// at (left, top). step_x, step_y: photo pixels from one pixel of the input to the next, (width - 1) / (new_w - 1).
// step: the value of one step of an int8 output; 1 for floats.
//
// threads = (out_w, out_h), a thread per pixel

__device__ __forceinline__ void store(float* y, float value, float) { *y = value; }
__device__ __forceinline__ void store(__half* y, float value, float) { *y = __half(value); }
__device__ __forceinline__ void store(int8_t* y, float value, float step) {
    *y = static_cast<int8_t>(max(-128, min(127, __float2int_rn(__fdiv_rn(value, step)))));
}

__device__ __forceinline__ float mix(float share, float a, float rest, float b) {
    return __fadd_rn(__fmul_rn(share, a), __fmul_rn(rest, b));
}

template <typename T>
__global__ void letterbox(const uint8_t* __restrict__ image, T* __restrict__ y, int width, int height, int out_w, int out_h,
                          int new_w, int new_h, int left, int top, float step_x, float step_y, bool nhwc, float step) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= out_w || row >= out_h) return;
    const int c = column - left, r = row - top;
    const bool inside = c >= 0 && c < new_w && r >= 0 && r < new_h;
    int x0 = 0, x1 = 0, y0 = 0, y1 = 0;
    float right = 0, down = 0, below = 0;
    if (inside) {
        const float px = __fmul_rn(static_cast<float>(c), step_x), py = __fmul_rn(static_cast<float>(r), step_y);
        x0 = min(static_cast<int>(px), width - 1);
        x1 = min(x0 + 1, width - 1);
        right = __fsub_rn(px, static_cast<float>(x0));
        if (width == 1 || new_w == 1 || c == new_w - 1) {  // darknet takes the last column as it is
            x0 = x1 = width - 1;
            right = 0;
        }
        y0 = min(static_cast<int>(py), height - 1);
        y1 = min(y0 + 1, height - 1);
        down = __fsub_rn(py, static_cast<float>(y0));
        below = height == 1 || r == new_h - 1 ? 0 : down;  // and leaves the share of the row below the last out
    }
    for (int channel = 0; channel < 3; ++channel) {
        float value = 0.5f;
        if (inside) {
            const long long upper = static_cast<long long>(y0) * width, lower = static_cast<long long>(y1) * width;
            const float keep = __fsub_rn(1.0f, right);
            const float a = mix(keep, __fdiv_rn(image[(upper + x0) * 3 + channel], 255.0f), right,
                                __fdiv_rn(image[(upper + x1) * 3 + channel], 255.0f));
            const float b = mix(keep, __fdiv_rn(image[(lower + x0) * 3 + channel], 255.0f), right,
                                __fdiv_rn(image[(lower + x1) * 3 + channel], 255.0f));
            value = mix(__fsub_rn(1.0f, down), a, below, b);
        }
        const long long pixel = static_cast<long long>(row) * out_w + column;
        store(y + (nhwc ? pixel * 3 + channel : static_cast<long long>(channel) * out_w * out_h + pixel), value, step);
    }
}
