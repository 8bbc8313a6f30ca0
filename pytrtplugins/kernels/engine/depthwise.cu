// A depthwise convolution, NHWC: behind nhwc.cu, whose epilogue it has, early.cu, and constants that fixed.py writes.
//
// A thread has LANES channels (16 bytes of floats, 8 of codes) at TILE_H rows and TILE_W columns of y, so that what it loads of a
// row of x serves several columns, and weights several pixels. With a dilation these rows, or columns, are as far apart as the taps.
// Threads side by side have neighbouring channels. Weights are [tap][channel], padded to LANES; PACKED ones, of int8, [row][four
// taps][channel][tap of the four]. Where there is little to do, SLICES threads of a block share the rows of a filter. Sums are
// float32, exact int32 of int8.

typedef typename Sum<T>::type Total;
constexpr int TAPS = KERNEL_H * KERNEL_W, PIECES = (FILTERS + LANES - 1) / LANES, READ = (K + LANES - 1) / LANES * LANES;
constexpr int ROWS = (TILE_H - 1) * STRIDE_H + KERNEL_H, COLUMNS = (TILE_W - 1) * STRIDE_W + KERNEL_W;
constexpr int SPAN_H = TILE_H * DILATION_H, SPAN_W = TILE_W * DILATION_W;  // of as many tiles side by side as the dilation says
constexpr int DOWN = (OH + SPAN_H - 1) / SPAN_H * DILATION_H, ACROSS = (OW + SPAN_W - 1) / SPAN_W * DILATION_W;
constexpr unsigned ITEMS = static_cast<unsigned>(N) * DOWN * ACROSS * PIECES;
constexpr int SHARE = THREADS / SLICES, TURNS = (ROWS + SLICES - 1) / SLICES;
constexpr int WORDS = (KERNEL_W + 3) / 4, GROUPS = (COLUMNS + 3) / 4;  // four taps of a filter's row, four columns of x
constexpr int PRODUCTS = PACKED ? 2 * KERNEL_H * WORDS : TAPS;         // instructions for a value of y, about
constexpr int UNROLLED = PRODUCTS * TILE_H * TILE_W * LANES <= 2048 ? TURNS : 1;  // rows: more code would not stay in the cache
constexpr unsigned WEIGHT_BYTES = PIECES * LANES * (PACKED ? KERNEL_H * WORDS * 4 : TAPS * sizeof(T));
static_assert(THREADS % SLICES == 0 && (SLICES == 1 || TILE_H == 1), "slices share rows of filters");

template <typename U> struct alignas(sizeof(U) * LANES < 16 ? sizeof(U) * LANES : 16) Lanes { U values[LANES]; };

// A thread's channels of a pixel where they are PACKED: words of four.
struct alignas(LANES) Quads { unsigned words[(LANES + 3) / 4]; };
template <bool> struct PixelOf { typedef Lanes<T> type; };
template <> struct PixelOf<true> { typedef Quads type; };
typedef typename PixelOf<PACKED>::type Pixel;

// Row `i` of what a tile reads, added to the rows of y that it is part of.
__device__ __forceinline__ void add_row(const Lanes<T> (&line)[COLUMNS], int i, const void* weights, int first,
                                        Total (&sums)[TILE_H][TILE_W][LANES]) {
#pragma unroll
    for (int t = 0; t < TILE_H; ++t) {
        int const r = i - t * STRIDE_H;
        if (r < 0 || r >= KERNEL_H) continue;
#pragma unroll
        for (int s = 0; s < KERNEL_W; ++s) {
            const T* const from = static_cast<const T*>(weights) + (r * KERNEL_W + s) * PIECES * LANES + first;
            Lanes<T> const factors = *reinterpret_cast<const Lanes<T>*>(from);
#pragma unroll
            for (int u = 0; u < TILE_W; ++u) {
#pragma unroll
                for (int lane = 0; lane < LANES; ++lane) {
                    sums[t][u][lane] += number<Total>(line[u * STRIDE_W + s].values[lane]) * number<Total>(factors.values[lane]);
                }
            }
        }
    }
}

// Four columns of four channels: a word for each channel instead of one for each column.
__device__ __forceinline__ void transpose(const unsigned (&columns)[4], unsigned* channels) {
    unsigned const even = __byte_perm(columns[0], columns[1], 0x5140), odd = __byte_perm(columns[0], columns[1], 0x7362);
    unsigned const even_2 = __byte_perm(columns[2], columns[3], 0x5140), odd_2 = __byte_perm(columns[2], columns[3], 0x7362);
    channels[0] = __byte_perm(even, even_2, 0x5410);
    channels[1] = __byte_perm(even, even_2, 0x7632);
    channels[2] = __byte_perm(odd, odd_2, 0x5410);
    channels[3] = __byte_perm(odd, odd_2, 0x7632);
}

__device__ __forceinline__ int plus_products(int sum, unsigned a, unsigned b) {
    return __dp4a(static_cast<int>(a), static_cast<int>(b), sum);
}
__device__ __forceinline__ float plus_products(float sum, unsigned, unsigned) { return sum; }  // of codes sums are int

// The same of codes, of which one instruction adds four products.
__device__ __forceinline__ void add_row(const Quads (&line)[COLUMNS], int i, const void* weights, int first,
                                        Total (&sums)[TILE_H][TILE_W][LANES]) {
    unsigned across[GROUPS][LANES];
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
#pragma unroll
        for (int quad = 0; quad < LANES / 4; ++quad) {
            unsigned columns[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) columns[j] = 4 * group + j < COLUMNS ? line[4 * group + j].words[quad] : 0;
            transpose(columns, across[group] + 4 * quad);
        }
    }
#pragma unroll
    for (int t = 0; t < TILE_H; ++t) {
        int const r = i - t * STRIDE_H;
        if (r < 0 || r >= KERNEL_H) continue;
        Lanes<unsigned> taps[WORDS];
#pragma unroll
        for (int word = 0; word < WORDS; ++word) {
            const unsigned* const from = static_cast<const unsigned*>(weights) + (r * WORDS + word) * PIECES * LANES + first;
            taps[word] = *reinterpret_cast<const Lanes<unsigned>*>(from);
        }
#pragma unroll
        for (int u = 0; u < TILE_W; ++u) {
            int const begin = u * STRIDE_W, shift = begin % 4 * 8;  // its first column, and how far taps move within words
#pragma unroll
            for (int word = 0; word <= WORDS; ++word) {
                if (begin % 4 + KERNEL_W <= 4 * word) continue;  // no taps are left
#pragma unroll
                for (int lane = 0; lane < LANES; ++lane) {
                    unsigned moved = word < WORDS ? taps[word % WORDS].values[lane] << shift : 0;
                    if (shift > 0 && word > 0) moved |= taps[(word + WORDS - 1) % WORDS].values[lane] >> (32 - shift) % 32;
                    unsigned const x = across[(begin / 4 + word) % GROUPS][lane];
                    sums[t][u][lane] = plus_products(sums[t][u][lane], x, moved);
                }
            }
        }
    }
}

// A number of each of a thread's channels; of padding any.
__device__ __forceinline__ Lanes<float> numbers_of(const float* from, int first) {
    if (K == PIECES * LANES) return *reinterpret_cast<const Lanes<float>*>(from + first);
    Lanes<float> found;
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) found.values[lane] = from[first + lane < K ? first + lane : 0];
    return found;
}

// A thread's channels of one pixel, finished and stored; padding becomes zero where a pixel of y has room for it.
__device__ __forceinline__ void finish_pixel(const Total (&sums)[LANES], long long pixel, int first, const float* scale,
                                             const float* bias, const float* slopes, const float* steps, const void* residual, Y* y) {
    Lanes<Y> out;
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) {
        bool const exists = K == PIECES * LANES || first + lane < K;
        if (RESIDUAL < 0 || exists) {  // without a residual all lanes take one way
            finish_value<OUT != FLOAT>(static_cast<float>(sums[lane]), lane, SCALED ? scale : nullptr, bias, slopes, ACTIVATION, A, B,
                                       RESIDUAL < 0 ? nullptr : residual, pixel * RESIDUAL_PITCH + first + lane, RESIDUAL, steps[0],
                                       RESIDUAL_ACTIVATION, RESIDUAL_A, RESIDUAL_B, out.values, lane, OUT, steps[1]);
        }
        if (!exists) out.values[lane] = Y();
    }
    Y* const to = y + pixel * Y_PITCH + first;
    if (Y_PITCH % LANES == 0 && (FILTERS % LANES == 0 || first + LANES <= FILTERS)) {
        store_whole(to, out);
        return;
    }
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) {
        if (first + lane < FILTERS) to[lane] = out.values[lane];
    }
}

// `given_steps`: the scales of the residual and of y; 1 for floats.
extern "C" __global__ void __launch_bounds__(THREADS)
depthwise(const void* x, const void* weights, const void* scale, const void* bias, const void* given_steps, const void* residual, void* y) {
    __shared__ Total parts[SLICES == 1 ? 1 : (SLICES - 1) * TILE_W * LANES * SHARE];
    unsigned const thread = blockIdx.x * THREADS + threadIdx.x, index = SLICES == 1 ? thread : blockIdx.x * SHARE + threadIdx.x % SHARE;
    int const slice = SLICES == 1 ? 0 : threadIdx.x / SHARE;
    if (thread < (WEIGHT_BYTES + 31) / 32) fetch_ahead(static_cast<const char*>(weights) + 32 * thread);
    int const first = static_cast<int>(index % PIECES) * LANES;
    Lanes<float> const offsets = numbers_of(static_cast<const float*>(bias), first);
    Lanes<float> const slopes = SLOPED ? numbers_of(static_cast<const float*>(bias) + K, first) : Lanes<float>();
    Lanes<float> const scales = SCALED ? numbers_of(static_cast<const float*>(scale), first) : Lanes<float>();
    begin_kernel();
    if (SLICES == 1 && index >= ITEMS) return;
    unsigned const tile = index / PIECES;
    int const image = static_cast<int>(tile / (ACROSS * DOWN));
    int const place = static_cast<int>(tile % ACROSS), level = static_cast<int>(tile / ACROSS % DOWN);
    int const left = place / DILATION_W * SPAN_W + place % DILATION_W, top = level / DILATION_H * SPAN_H + level % DILATION_H;
    const T* const channels = static_cast<const T*>(x) + static_cast<long long>(image) * H * W * X_PITCH + first;
    Total sums[TILE_H][TILE_W][LANES] = {};
#pragma unroll UNROLLED
    for (int turn = 0; turn < TURNS; ++turn) {
        int const i = turn * SLICES + slice;
        if (index >= ITEMS || i >= ROWS) break;
        int const row = top * STRIDE_H - PAD_H + i * DILATION_H;
        Pixel line[COLUMNS];
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            int const column = left * STRIDE_W - PAD_W + j * DILATION_W;
            line[j] = {};
            if (row >= 0 && row < H && column >= 0 && column < W && (READ == PIECES * LANES || first < READ)) {
                line[j] = *reinterpret_cast<const Pixel*>(channels + (row * W + column) * X_PITCH);
            }
        }
        add_row(line, i, weights, first, sums);
    }
    if (SLICES > 1) {
        Total* const own = parts + threadIdx.x % SHARE;
#pragma unroll
        for (int at = 0; at < TILE_W * LANES; ++at) {
            if (slice > 0) own[((slice - 1) * TILE_W * LANES + at) * SHARE] = sums[0][at / LANES][at % LANES];
        }
        __syncthreads();
        if (slice > 0 || index >= ITEMS) return;
#pragma unroll
        for (int at = 0; at < TILE_W * LANES; ++at) {
#pragma unroll
            for (int other = 0; other < SLICES - 1; ++other) sums[0][at / LANES][at % LANES] += own[(other * TILE_W * LANES + at) * SHARE];
        }
    }
    float const steps[2] = {is_codes(RESIDUAL) ? static_cast<const float*>(given_steps)[0] : 1.0f,
                            is_codes(OUT) ? static_cast<const float*>(given_steps)[1] : 1.0f};
#pragma unroll
    for (int t = 0; t < TILE_H; ++t) {
#pragma unroll
        for (int u = 0; u < TILE_W; ++u) {
            int const row = top + t * DILATION_H, column = left + u * DILATION_W;
            if (row >= OH || column >= OW) continue;
            long long const pixel = (static_cast<long long>(image) * OH + row) * OW + column;
            finish_pixel(sums[t][u], pixel, first, scales.values, offsets.values, slopes.values, steps, residual, static_cast<Y*>(y));
        }
    }
}
