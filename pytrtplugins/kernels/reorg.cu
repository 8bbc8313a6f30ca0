// darknet's reorg and its reverse: the same move of values, read in one direction or the other.
//
// Deep: [N, s, s, C/s2, H, W]; wide: [N, C/s2, H, s, W, s], where C, H and W are the dims of the input. Value m of the
// plane (by, bx) of the deep tensor, m = (k * H + h) * W + w, lies at ((k * H + h) * s + by) * W * s + w * s + bx of the
// wide one. Forward reads wide and writes deep; reverse reads deep and writes wide.
//
// A thread moves 16 bytes of each of the s planes (by, 0..s-1): on the deep side one 16-byte access for each; on the wide
// side as many values side by side as rows allow (all s * 16 bytes where 16 bytes of values divide w), so that a warp uses
// whole lines of memory on both sides. Where runs of the wide side are shorter than 16 bytes and written, neighbouring threads
// write neighbouring runs instead. Other strides, and planes or pointers that are no multiple of 16 bytes: a block moves the
// same values one by one, neighbouring threads neighbouring values.
//
// threads = (ceil(plane / (16 / sizeof(T))), s, N)

template <int Bytes> struct Word;
template <> struct Word<1> { typedef signed char type; };
template <> struct Word<2> { typedef short type; };
template <> struct Word<4> { typedef int type; };
template <> struct Word<8> { typedef int2 type; };
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

// Reverse, in the wide tensor's order: the grid's blocks cover it one after the other, and neighbouring threads write
// neighbouring runs of U * S values, so that lines of memory are written whole though they hold several short rows.
template <typename T, int S, int U>
__device__ __forceinline__ void write_runs(const T* __restrict__ from, T* __restrict__ to, unsigned w, unsigned plane) {
    constexpr int V = 16 / sizeof(T), runs = V / U, at_once = runs < 4 ? runs : 4;
    typedef typename Word<U * sizeof(T)>::type In;
    typedef typename Word<U * S * sizeof(T)>::type Out;
    union Planes {
        In words[S];
        T values[S * U];
    } planes[at_once];
    union Row {
        Out word;
        T values[S * U];
    } run;
    const unsigned length = w * S, total = plane * S * S, step = blockDim.x * U * S;
    unsigned place = (blockIdx.x * S + blockIdx.y) * blockDim.x * V * S + threadIdx.x * U * S;
    unsigned line = place / length, column = place - line * length;
    const unsigned lines = step / length, columns = step - lines * length;
#pragma unroll 1
    for (int done = 0; done < runs; done += at_once) {
        const unsigned begin = place;
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            const T* const source = from + static_cast<long long>(line % S * S) * plane + line / S * w + column / S;
#pragma unroll
            for (int bx = 0; bx < S; ++bx) {
                if (place < total) planes[i].words[bx] = *reinterpret_cast<const In*>(source + static_cast<long long>(bx) * plane);
            }
            place += step;
            line += lines;
            column += columns;
            if (column >= length) {
                column -= length;
                ++line;
            }
        }
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            if (begin + i * step >= total) return;
#pragma unroll
            for (int k = 0; k < U * S; ++k) run.values[k] = planes[i].values[k % S * U + k / S];
            *reinterpret_cast<Out*>(to + begin + i * step) = run.word;
        }
    }
}

// write_runs where runs are shorter than 16 bytes, with the longest that divide w.
template <typename T, int S, int U>
struct Short {
    __device__ __forceinline__ static bool write(const T* from, T* to, unsigned w, unsigned plane) {
        if (w % (2 * U) == 0) return false;  // there are longer ones
        if (w % U == 0) {
            write_runs<T, S, U>(from, to, w, plane);
            return true;
        }
        return Short<T, S, U / 2>::write(from, to, w, plane);
    }
};
template <typename T, int S>
struct Short<T, S, 0> {
    __device__ __forceinline__ static bool write(const T*, T*, unsigned, unsigned) { return false; }
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
        if (reverse && s == 2 && Short<T, 2, V / 4>::write(x + image, y + image, w, plane)) return;
        if (reverse && s == 4 && Short<T, 4, V / 8>::write(x + image, y + image, w, plane)) return;
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
// Reverse is then a move of whole groups of C / s2 neighbouring channels, 16 bytes for a thread. Forward: value m of a plane
// lies `period` channels behind value m - period * H * W / s2 of the wide tensor, in the same pixel, where s2 divides
// period * H. So 16 bytes of the output come from `period` pixels, from every period-th channel of the same 16 bytes there.
// Elsewhere a block moves values one by one, neighbouring threads neighbouring channels of the output.
//
// threads = (ceil(C * H * W / (16 / sizeof(T))), 1, N)

// x: an image; the channels from `channel` on of block (by, bx) of output pixel `pixel`.
template <typename T, int P>
__device__ __forceinline__ void gather(const T* __restrict__ x, T* __restrict__ y, unsigned channel, unsigned pixel, unsigned by,
                                       unsigned bx, unsigned width, unsigned stride, unsigned area, unsigned out_area,
                                       unsigned in_channels) {
    constexpr int V = 16 / sizeof(T);
    union Line {
        int4 word;
        T values[V];
    } in[P], out;
    unsigned shift[P];
#pragma unroll
    for (int r = 0; r < P; ++r) {
        const unsigned m = (channel + r) * out_area + pixel, row = m / width;
        const unsigned flat = ((row * stride + by) * width + (m - row * width)) * stride + bx;
        const unsigned found = flat / area;
        shift[r] = found - channel;
        in[r].word = *reinterpret_cast<const int4*>(x + static_cast<long long>(flat - found * area) * in_channels + channel);
    }
#pragma unroll
    for (int i = 0; i < V; ++i) {
        T value = in[i % P].values[i / P * P];
#pragma unroll
        for (int d = 1; d < P; ++d) {
            if (shift[i % P] == static_cast<unsigned>(d)) value = in[i % P].values[i / P * P + d];
        }
        out.values[i] = value;
    }
    *reinterpret_cast<int4*>(y) = out.word;
}

template <typename T>
__global__ void __launch_bounds__(256, 8)
reorg_nhwc(const T* __restrict__ x, T* __restrict__ y, int maps, int h, int w, int s, bool reverse) {
    constexpr unsigned V = 16 / sizeof(T);
    const unsigned width = w, stride = s, s2 = stride * stride, area = static_cast<unsigned>(h) * width;
    const unsigned plane = maps * area, total = plane * s2, in_channels = maps * s2;
    const unsigned out_area = reverse ? area * s2 : area / s2, out_channels = total / out_area;
    const unsigned group = reverse ? maps : in_channels;
    const unsigned first = blockIdx.x * blockDim.x * V;
    x += static_cast<long long>(blockIdx.z) * total;
    y += static_cast<long long>(blockIdx.z) * total;
    unsigned period = 1;
    while (!reverse && h * period % s2) ++period;
    const bool vectors = group % V == 0 && (period == 1 || period == 2 || period == 4)
                         && ((reinterpret_cast<unsigned long long>(x) | reinterpret_cast<unsigned long long>(y)) & 15) == 0;
    if (vectors) {
        const unsigned place = first + threadIdx.x * V;
        if (place >= total) return;
        const unsigned pixel = place / out_channels, channel = place - pixel * out_channels;
        if (reverse) {
            const unsigned row = pixel / (width * stride), column = pixel - row * width * stride;
            const unsigned from = ((row / stride) * width + column / stride) * in_channels
                                  + ((row % stride) * stride + column % stride) * maps + channel;
            *reinterpret_cast<int4*>(y + place) = *reinterpret_cast<const int4*>(x + from);
            return;
        }
        const unsigned block = channel / in_channels, by = block / stride, bx = block - by * stride;
        const unsigned inner = channel - block * in_channels;
        if (period == 1) {
            const unsigned row = pixel / width;
            const unsigned from = (((row * stride + by) * width + (pixel - row * width)) * stride + bx) * in_channels + inner;
            *reinterpret_cast<int4*>(y + place) = *reinterpret_cast<const int4*>(x + from);
        }
        if (period == 2) gather<T, 2>(x, y + place, inner, pixel, by, bx, width, stride, area, out_area, in_channels);
        if (period == 4) gather<T, 4>(x, y + place, inner, pixel, by, bx, width, stride, area, out_area, in_channels);
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
