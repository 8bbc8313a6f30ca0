// The value of a plane [h, w] between pixels, 0 outside of it.
template <typename T>
__device__ float between(const T* plane, int h, int w, float py, float px) {
    if (py <= -1.0f || py >= h || px <= -1.0f || px >= w) return 0.0f;
    const int top = static_cast<int>(floorf(py)), left = static_cast<int>(floorf(px));
    const float down = py - top, right = px - left;
    float sum = 0.0f;
    if (top >= 0 && left >= 0) sum += (1.0f - down) * (1.0f - right) * float(plane[top * w + left]);
    if (top >= 0 && left + 1 < w) sum += (1.0f - down) * right * float(plane[top * w + left + 1]);
    if (top + 1 < h && left >= 0) sum += down * (1.0f - right) * float(plane[(top + 1) * w + left]);
    if (top + 1 < h && left + 1 < w) sum += down * right * float(plane[(top + 1) * w + left + 1]);
    return sum;
}

// x: [N, C, H, W]; offset: [N, 2 * groups * KH * KW, OH, OW], of each tap first along y, then along x;
// mask: [N, groups * KH * KW, OH, OW]; weight: [O, C, KH, KW]; bias: [O]; y: [N, O, OH, OW], a thread for each value
template <typename T>
__global__ void deformable_conv(const T* x, const T* offset, const T* mask, const T* weight, const T* bias, T* y,
                                int total, int c, int h, int w, int o, int kh, int kw, int oh, int ow,
                                int stride, int padding, int dilation, int groups) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    const int column = i % ow, row = i / ow % oh, out = i / ow / oh % o;
    const int taps = kh * kw, area = oh * ow, place = row * ow + column;
    const long long image = i / area / o;
    float sum = float(bias[out]);
    for (int channel = 0; channel < c; ++channel) {
        const int group = channel / (c / groups);
        for (int tap = 0; tap < taps; ++tap) {
            const long long number = (image * groups + group) * taps + tap;
            const float dy = float(offset[2 * number * area + place]);
            const float dx = float(offset[(2 * number + 1) * area + place]);
            const float py = row * stride - padding + tap / kw * dilation + dy;
            const float px = column * stride - padding + tap % kw * dilation + dx;
            const float value = between(x + (image * c + channel) * h * w, h, w, py, px);
            sum += float(weight[(out * c + channel) * taps + tap]) * float(mask[number * area + place]) * value;
        }
    }
    y[i] = T(sum);
}
