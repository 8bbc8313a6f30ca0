// darknet's reorg and its reverse: the same move of values, read in one direction or the other.
//
// Deep: [N, s, s, C/s2, H, W]; wide: [N, C/s2, H, s, W, s], where C, H and W are the dims of the input. Value m of the
// plane (by, bx) of the deep tensor, m = (k * H + h) * W + w, lies at ((k * H + h) * s + by) * W * s + w * s + bx of the
// wide one. Forward reads wide and writes deep; reverse reads deep and writes wide.
//
// A thread moves 16 bytes of each of the s planes (by, 0..s-1): on the deep side one 16-byte access for each; on the wide
// side as many values side by side as rows allow (all s * 16 bytes where 16 bytes of values divide w), so that a warp uses
// whole lines of memory on both sides. Where runs of the wide side are shorter than 16 bytes and written, a thread gathers
// 16 bytes of the wide side instead. Other strides, and planes or pointers that are no multiple of 16 bytes: a block moves
// the same values one by one, neighbouring threads neighbouring values.
//
// threads = (ceil(plane / (16 / sizeof(T))), s, N)

template <int Bytes> struct Word;
template <> struct Word<1> { typedef signed char type; };
template <> struct Word<2> { typedef short type; };
template <> struct Word<4> { typedef unsigned type; };
template <> struct Word<8> { typedef unsigned long long type; };
template <> struct Word<16> { typedef int4 type; };

// Rows of the wide side hold runs of U * S values. `wide`: place of the first value there, in column `column`.
template <typename T, int S, int U>
__device__ __forceinline__ void move_runs(const T* __restrict__ from, T* __restrict__ to, long long deep, long long wide,
                                          int column, int w, long long plane, bool reverse) {
    constexpr int V = 16 / sizeof(T), runs = V / U, run_bytes = U * S * static_cast<int>(sizeof(T));
    constexpr int word_bytes = run_bytes < 16 ? run_bytes : 16, words = run_bytes / word_bytes;
    typedef typename Word<word_bytes>::type Piece;
    union Wide {
        Piece words[S * 16 / word_bytes];
        T values[S * V];
    } rows;
    union Deep {
        int4 words[S];
        T values[S * V];
    } planes;
    long long starts[runs];
#pragma unroll
    for (int run = 0; run < runs; ++run) {
        starts[run] = wide;
        wide += U * S;
        column += U;
        if (column == w) {
            column = 0;
            wide += static_cast<long long>(S - 1) * S * w;
        }
    }
    if (!reverse) {
#pragma unroll
        for (int run = 0; run < runs; ++run) {
#pragma unroll
            for (int j = 0; j < words; ++j) {
                rows.words[run * words + j] = reinterpret_cast<const Piece*>(from + starts[run])[j];
            }
        }
#pragma unroll
        for (int i = 0; i < V; ++i) {
#pragma unroll
            for (int bx = 0; bx < S; ++bx) planes.values[bx * V + i] = rows.values[i * S + bx];
        }
#pragma unroll
        for (int bx = 0; bx < S; ++bx) *reinterpret_cast<int4*>(to + deep + bx * plane) = planes.words[bx];
    } else {
#pragma unroll
        for (int bx = 0; bx < S; ++bx) planes.words[bx] = *reinterpret_cast<const int4*>(from + deep + bx * plane);
#pragma unroll
        for (int i = 0; i < V; ++i) {
#pragma unroll
            for (int bx = 0; bx < S; ++bx) rows.values[i * S + bx] = planes.values[bx * V + i];
        }
#pragma unroll
        for (int run = 0; run < runs; ++run) {
#pragma unroll
            for (int j = 0; j < words; ++j) {
                reinterpret_cast<Piece*>(to + starts[run])[j] = rows.words[run * words + j];
            }
        }
    }
}

// Reverse, in the wide tensor's order: a thread writes S times 16 bytes, each from K values of S planes, read U at a time.
// These stand in one row of the wide tensor, or the last of them in the next one: w >= K, a multiple of U.
template <typename T, int S, int U>
__device__ __forceinline__ void gather(const T* __restrict__ x, T* __restrict__ y, unsigned w, unsigned plane) {
    constexpr unsigned V = 16 / sizeof(T), K = V / S;
    typedef typename Word<U * sizeof(T)>::type Piece;
    union Planes {
        Piece words[V / U];
        T values[V];
    } planes[S];
    union Line {
        int4 word;
        T values[V];
    } line;
    const unsigned length = w * S, total = plane * S * S, step = blockDim.x * V;
    const unsigned begin = (blockIdx.x * S + blockIdx.y) * step * S + threadIdx.x * V;
#pragma unroll
    for (int i = 0; i < S; ++i) {
        const unsigned place = begin + i * step, row = place / length, next = row + 1, column = (place - row * length) / S;
        if (place >= total) break;
        const T* const here = x + (row % S * S * plane + row / S * w + column);
        const T* const there = x + (next % S * S * plane + next / S * w) - (w - column);
#pragma unroll
        for (unsigned k = 0; k < K; k += U) {
            const T* const from = (column + k < w ? here : there) + k;
#pragma unroll
            for (int bx = 0; bx < S; ++bx) planes[i].words[(bx * K + k) / U] = *reinterpret_cast<const Piece*>(from + bx * plane);
        }
    }
#pragma unroll
    for (int i = 0; i < S; ++i) {
        const unsigned place = begin + i * step;
        if (place >= total) return;
#pragma unroll
        for (unsigned k = 0; k < V; ++k) line.values[k] = planes[i].values[k % S * K + k / S];
        *reinterpret_cast<int4*>(y + place) = line.word;
    }
}

// gather with the largest U that divides w, where that is less than K.
template <typename T, int S, int U>
struct Short {
    __device__ __forceinline__ static bool move(const T* x, T* y, unsigned w, unsigned plane) {
        if (w % (2 * U) == 0) return false;
        if (w % U) return Short<T, S, U / 2>::move(x, y, w, plane);
        gather<T, S, U>(x, y, w, plane);
        return true;
    }
};
template <typename T, int S>
struct Short<T, S, 0> {
    __device__ __forceinline__ static bool move(const T*, T*, unsigned, unsigned) { return false; }
};

// move_runs with the longest runs that divide w.
template <typename T, int S, int U>
struct Longest {
    __device__ __forceinline__ static void move(const T* from, T* to, long long deep, long long wide, int column, int w,
                                                long long plane, bool reverse) {
        if (w % U == 0) {
            move_runs<T, S, U>(from, to, deep, wide, column, w, plane, reverse);
        } else {
            Longest<T, S, U / 2>::move(from, to, deep, wide, column, w, plane, reverse);
        }
    }
};
template <typename T, int S>
struct Longest<T, S, 1> {
    __device__ __forceinline__ static void move(const T* from, T* to, long long deep, long long wide, int column, int w,
                                                long long plane, bool reverse) {
        move_runs<T, S, 1>(from, to, deep, wide, column, w, plane, reverse);
    }
};

// x: the input; y: the output; n images of `maps` = C / s2 maps of h x w (the input's dims); s: the stride.
template <typename T>
__global__ void __launch_bounds__(256, 5)  // more threads at a time hide more latency; int8 needs the limit
reorg(const T* __restrict__ x, T* __restrict__ y, int maps, int h, int w, int s, bool reverse) {
    constexpr int V = 16 / sizeof(T);
    const unsigned plane = static_cast<unsigned>(maps) * h * w;
    const int by = blockIdx.y;
    const long long image = static_cast<long long>(blockIdx.z) * s * s * plane;
    const long long deep = image + static_cast<long long>(by) * s * plane;  // of value 0 of plane (by, 0)
    const unsigned first = blockIdx.x * blockDim.x * V;
    const bool vectors = plane % V == 0 && (s == 1 || s == 2 || s == 4)
                         && ((reinterpret_cast<unsigned long long>(x) | reinterpret_cast<unsigned long long>(y)) & 15) == 0;
    if (vectors) {
        if (reverse && s == 2 && w >= V / 2 && Short<T, 2, V / 4>::move(x + image, y + image, w, plane)) return;
        if (reverse && s == 4 && w >= V / 4 && Short<T, 4, V / 8>::move(x + image, y + image, w, plane)) return;
        const unsigned m = first + threadIdx.x * V;
        if (m >= plane) return;
        const unsigned row = m / w, column = m - row * w;
        const long long wide = image + ((static_cast<long long>(row) * s + by) * w + column) * s;
        if (s == 1) *reinterpret_cast<int4*>(y + deep + m) = *reinterpret_cast<const int4*>(x + deep + m);
        if (s == 2) Longest<T, 2, V>::move(x, y, deep + m, wide, column, w, plane, reverse);
        if (s == 4) Longest<T, 4, V>::move(x, y, deep + m, wide, column, w, plane, reverse);
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
// Where s2 divides H, and in reverse, this is a move of whole groups of neighbouring channels, twice 16 bytes for a thread.
// With s = 2 and H no multiple of 4, the H * W / s2 values of a plane are an odd number of half rows: the even channels of a
// group of the output stand in one row of pixels and the odd ones in the row above or below, where another group has the
// other channels. `exchange` reads and writes both. Elsewhere a block moves values one by one, neighbouring threads
// neighbouring channels of the output.
//
// threads = (ceil(C * H * W / (32 / sizeof(T))), 1, N)

// 16 bytes of column `column` in the rows of pixels 2 * pair + 1 and 2 * pair + 2. The last row goes with row 0: the even
// channels of both make one group, and the odd ones the other.
template <typename T>
__device__ __forceinline__ void exchange(const T* __restrict__ x, T* __restrict__ y, unsigned pair, unsigned column,
                                         unsigned channel, unsigned channels, unsigned h, unsigned w) {
    constexpr unsigned V = 16 / sizeof(T);
    union Group {
        int4 word;
        T values[V];
    } upper, lower, one, other;
    const bool last = 2 * pair + 2 == h;
    const unsigned below = last ? 0 : pair + 1, right = column / 2;
    const unsigned first = below / 2 * w + right, second = last ? h / 4 * w + right : pair / 2 * w + w / 2 + right;
    upper.word = *reinterpret_cast<const int4*>(x + ((2 * pair + 1) * w + column) * channels + channel);
    lower.word = *reinterpret_cast<const int4*>(x + (2 * below * w + column) * channels + channel);
#pragma unroll
    for (unsigned i = 0; i < V; i += 2) {
        one.values[i] = lower.values[i];
        one.values[i + 1] = last ? upper.values[i] : upper.values[i + 1];
        other.values[i] = last ? lower.values[i + 1] : upper.values[i];
        other.values[i + 1] = last ? upper.values[i + 1] : lower.values[i + 1];
    }
    const unsigned to = column % 2 * channels + channel, by = last ? 1 : pair % 2;
    *reinterpret_cast<int4*>(y + (4 * first + below % 2 * 2) * channels + to) = one.word;
    *reinterpret_cast<int4*>(y + (4 * second + by * 2) * channels + to) = other.word;
}

template <typename T>
__global__ void __launch_bounds__(256, 8)
reorg_nhwc(const T* __restrict__ x, T* __restrict__ y, int maps, int h, int w, int s, bool reverse) {
    constexpr unsigned V = 16 / sizeof(T);
    const unsigned width = w, stride = s, s2 = stride * stride, area = static_cast<unsigned>(h) * width;
    const unsigned plane = maps * area, total = plane * s2, in_channels = maps * s2;
    const unsigned out_area = reverse ? area * s2 : area / s2, out_channels = total / out_area;
    const unsigned group = reverse ? maps : in_channels;
    const unsigned step = blockDim.x * V, first = blockIdx.x * 2 * step;
    x += static_cast<long long>(blockIdx.z) * total;
    y += static_cast<long long>(blockIdx.z) * total;
    const bool whole = reverse || h % s2 == 0;
    const bool vectors = group % V == 0 && (whole || stride == 2)
                         && ((reinterpret_cast<unsigned long long>(x) | reinterpret_cast<unsigned long long>(y)) & 15) == 0;
    if (vectors && !whole) {
        const unsigned place = (blockIdx.x * blockDim.x + threadIdx.x) * V, pixel = place / in_channels, pair = pixel / width;
        if (2 * pair >= static_cast<unsigned>(h)) return;
        return exchange(x, y, pair, pixel - pair * width, place - pixel * in_channels, in_channels, h, width);
    }
    if (vectors) {
        int4 words[2];
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
            const unsigned place = first + i * step + threadIdx.x * V;
            if (place >= total) break;
            const unsigned pixel = place / out_channels, channel = place - pixel * out_channels;
            const unsigned line = reverse ? width * stride : width, row = pixel / line, column = pixel - row * line;
            unsigned from;
            if (reverse) {
                from = ((row / stride) * width + column / stride) * in_channels
                       + ((row % stride) * stride + column % stride) * maps + channel;
            } else {
                const unsigned block = channel / in_channels, by = block / stride, bx = block - by * stride;
                from = (((row * stride + by) * width + column) * stride + bx) * in_channels + channel - block * in_channels;
            }
            words[i] = *reinterpret_cast<const int4*>(x + from);
        }
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
            const unsigned place = first + i * step + threadIdx.x * V;
            if (place < total) *reinterpret_cast<int4*>(y + place) = words[i];
        }
        return;
    }
    for (unsigned i = 0; i < 2 * V; ++i) {
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
