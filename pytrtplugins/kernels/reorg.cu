// darknet's reorg and its reverse: the same move of values, read in one direction or the other.
//
// Deep: [N, s, s, C/s2, H, W]; wide: [N, C/s2, H, s, W, s], where C, H and W are the dims of the input. Value m of the
// plane (by, bx) of the deep tensor, m = (k * H + h) * W + w, lies at ((k * H + h) * s + by) * W * s + w * s + bx of the
// wide one. Forward reads wide and writes deep; reverse reads deep and writes wide.
//
// A thread moves 16 bytes of each of the s planes (by, 0..s-1): on the deep side one 16-byte access for each, on the wide
// side s of them side by side, so that both sides are whole lines of memory for a warp. Where rows, planes or pointers
// are not multiples of 16 bytes, a block moves the same values one by one, neighbouring threads neighbouring values.
//
// threads = (ceil(plane / (16 / sizeof(T))), s, N)

template <typename T, int S>
__device__ __forceinline__ void move_vectors(const T* __restrict__ from, T* __restrict__ to, long long deep,
                                             long long wide, long long plane, bool reverse) {
    constexpr int V = 16 / sizeof(T);
    union Lines {
        int4 words[S];
        T values[S * V];
    } in, out;
    if (!reverse) {
#pragma unroll
        for (int j = 0; j < S; ++j) in.words[j] = reinterpret_cast<const int4*>(from + wide)[j];
#pragma unroll
        for (int i = 0; i < V; ++i) {
#pragma unroll
            for (int bx = 0; bx < S; ++bx) out.values[bx * V + i] = in.values[i * S + bx];
        }
#pragma unroll
        for (int bx = 0; bx < S; ++bx) *reinterpret_cast<int4*>(to + deep + bx * plane) = out.words[bx];
    } else {
#pragma unroll
        for (int bx = 0; bx < S; ++bx) in.words[bx] = *reinterpret_cast<const int4*>(from + deep + bx * plane);
#pragma unroll
        for (int i = 0; i < V; ++i) {
#pragma unroll
            for (int bx = 0; bx < S; ++bx) out.values[i * S + bx] = in.values[bx * V + i];
        }
#pragma unroll
        for (int j = 0; j < S; ++j) reinterpret_cast<int4*>(to + wide)[j] = out.words[j];
    }
}

// x: the input; y: the output; n images of `maps` = C / s2 maps of h x w (the input's dims); s: the stride.
template <typename T>
__global__ void reorg(const T* __restrict__ x, T* __restrict__ y, int maps, int h, int w, int s, bool reverse) {
    constexpr int V = 16 / sizeof(T);
    const unsigned plane = static_cast<unsigned>(maps) * h * w;
    const int by = blockIdx.y;
    const long long image = static_cast<long long>(blockIdx.z) * s * s * plane;
    const long long deep = image + static_cast<long long>(by) * s * plane;  // of value 0 of plane (by, 0)
    const unsigned first = blockIdx.x * blockDim.x * V;
    const bool vectors = w % V == 0 && s <= 4 && s != 3
                         && ((reinterpret_cast<unsigned long long>(x) | reinterpret_cast<unsigned long long>(y)) & 15) == 0;
    if (vectors) {
        const unsigned m = first + threadIdx.x * V;
        if (m >= plane) return;
        const unsigned row = m / w;
        const long long wide = image + ((static_cast<long long>(row) * s + by) * w + (m - row * w)) * s;
        if (s == 1) move_vectors<T, 1>(x, y, deep + m, wide, plane, reverse);
        if (s == 2) move_vectors<T, 2>(x, y, deep + m, wide, plane, reverse);
        if (s == 4) move_vectors<T, 4>(x, y, deep + m, wide, plane, reverse);
        return;
    }
    for (int i = 0; i < V; ++i) {
        const unsigned m = first + i * blockDim.x + threadIdx.x;
        if (m >= plane) return;
        const unsigned row = m / w;
        const long long wide = image + ((static_cast<long long>(row) * s + by) * w + (m - row * w)) * s;
        for (int bx = 0; bx < s; ++bx) {
            const long long far = deep + static_cast<long long>(bx) * plane + m;
            if (reverse) {
                y[wide + bx] = x[far];
            } else {
                y[far] = x[wide + bx];
            }
        }
    }
}

// The same on tensors whose channels lie innermost: [N, H, W, C] in memory, dims still named as above.
//
// Reverse is then a move of whole groups of C / s2 neighbouring channels; forward of all C, where s2 divides H, since value
// m of a plane lies H * W values behind value m - H * W / s2 in the wide tensor. A thread moves 16 bytes of such a group.
// Elsewhere a block moves values one by one, neighbouring threads neighbouring channels of the output.
//
// threads = (ceil(C * H * W / (16 / sizeof(T))), 1, N)
template <typename T>
__global__ void reorg_nhwc(const T* __restrict__ x, T* __restrict__ y, int maps, int h, int w, int s, bool reverse) {
    constexpr unsigned V = 16 / sizeof(T);
    const unsigned width = w, stride = s, s2 = stride * stride, area = static_cast<unsigned>(h) * width;
    const unsigned plane = maps * area, total = plane * s2, in_channels = maps * s2;
    const unsigned out_area = reverse ? area * s2 : area / s2, out_channels = total / out_area;
    const unsigned group = reverse ? maps : in_channels;
    const unsigned first = blockIdx.x * blockDim.x * V;
    x += static_cast<long long>(blockIdx.z) * total;
    y += static_cast<long long>(blockIdx.z) * total;
    const bool vectors = group % V == 0 && (reverse || h % s2 == 0)
                         && ((reinterpret_cast<unsigned long long>(x) | reinterpret_cast<unsigned long long>(y)) & 15) == 0;
    if (vectors) {
        const unsigned place = first + threadIdx.x * V;
        if (place >= total) return;
        const unsigned pixel = place / out_channels, channel = place - pixel * out_channels;
        unsigned from;
        if (reverse) {
            const unsigned row = pixel / (width * stride), column = pixel - row * width * stride;
            from = ((row / stride) * width + column / stride) * in_channels
                   + ((row % stride) * stride + column % stride) * maps + channel;
        } else {
            const unsigned block = channel / in_channels, row = pixel / width, by = block / stride;
            from = (((row * stride + by) * width + (pixel - row * width)) * stride + (block - by * stride)) * in_channels
                   + (channel - block * in_channels);
        }
        *reinterpret_cast<int4*>(y + place) = *reinterpret_cast<const int4*>(x + from);
        return;
    }
    for (unsigned i = 0; i < V; ++i) {
        const unsigned place = first + i * blockDim.x + threadIdx.x;
        if (place >= total) return;
        const unsigned pixel = place / out_channels, channel = place - pixel * out_channels;
        const unsigned target = channel * out_area + pixel;  // where the value stands in [C, H, W] order
        unsigned source;
        if (reverse) {
            const unsigned bx = target % stride, wide = target / stride, column = wide % width, line = wide / width;
            source = ((line % stride) * stride + bx) * plane + (line / stride) * width + column;
        } else {
            const unsigned block = target / plane, m = target - block * plane, row = m / width;
            source = ((row * stride + block / stride) * width + (m - row * width)) * stride + block % stride;
        }
        y[place] = x[source % area * in_channels + source / area];
    }
}
