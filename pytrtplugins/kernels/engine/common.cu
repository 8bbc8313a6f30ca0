// What the convolution kernels share: their arguments, which pixel a row of a tile is, and the way from sums to memory.
//
// Constants that the compiler is given: ELEMENT, OUT, RESIDUAL (a Kind, or NONE), PATCH, POOL, REORG (darknet's reorg
// with this stride on the way to memory; 0: none), BLOCKS (blocks of pixels with this side, made of the filters on the way to
// memory; 0: none), CUT (whether pixels around these are left out), LINEAR (y is [image][filter][pixel]), GATE (the activation;
// LINEAR: max(v, slope * v)), RESIDUAL_GATE (the same behind the residual: PRELU, RELU or LINEAR), GROUPED (whether filters read the
// channels of their group only), HALO (whether pixels are fetched with those around them: see conv_halo.cu), TILE_M, TILE_N, DEPTH.
typedef unsigned int u32;
typedef unsigned long long u64;
enum Kind { NONE = -1, FLOAT = 0, HALF = 1, INT8 = 2, FP8 = 4 };

__device__ constexpr int bytes_of(int kind) { return kind == FLOAT ? 4 : kind == HALF ? 2 : 1; }
constexpr int ELEMENT_BYTES = bytes_of(ELEMENT), OUT_BYTES = bytes_of(OUT);
constexpr bool OUT_CODES = OUT == INT8 || OUT == FP8;
constexpr bool SLOPES = GATE == ACTIVATION_PRELU || RESIDUAL_GATE == ACTIVATION_PRELU;  // whether each filter has a slope
constexpr int OFFSETS = SLOPES ? 2 * TILE_N : TILE_N;             // of a tile of filters: biases, and slopes behind them
template <int KIND> struct SumOf { typedef float type; };
template <> struct SumOf<INT8> { typedef int type; };
typedef typename SumOf<ELEMENT>::type Sum;

struct ConvArgs {
    const char* x;
    const char* weights;
    const float* scale;  // of each filter, the output's step divided out
    const float* bias;   // and slopes behind those of all tiles, where there are SLOPES
    const char* residual;
    char* y;
    int h, w, channel_bytes, x_pitch;  // pitches count bytes
    int oh, ow, pixels;                // of y before pool, reorg and blocks
    int kernel_h, kernel_w;
    int units, chunks;                 // units = taps * chunks, a chunk is DEPTH bytes of channels; see conv_simt.cu for float
    int stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int filters, y_pitch, residual_pitch;
    int tiles_m, tiles_n, patches_h, patches_w;  // where HALO without PATCH, patches_h is the tiles of an image
    int halo_lines, halo_pitch;         // lines of a halo, and pixels of one; read where HALO
    int vector;                         // whether 16 bytes of y can be written at once
    int group_filters, group_bytes;     // filters of a group, and bytes of its channels; read where GROUPED
    int cut_top, cut_left;              // pixels of the blocks that are left out first; read where CUT
    int rows, columns;                  // of y, where it is written in blocks
    float slope, residual_scale, residual_slope;
    float step;                         // of y's codes; 1 for floats
    float low, high;                    // of CLIP; the slope and the offset of HARD_SIGMOID
};

// Programmatic dependent launch: the next kernel may start early, and waits before it touches what others wrote.
__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void wait_for_inputs() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// What a tile's filters need behind their sums, to shared memory.
template <int THREADS>
__device__ __forceinline__ void load_numbers(const ConvArgs& a, int tile_n, float (&scale)[TILE_N], float (&bias)[OFFSETS]) {
    for (int i = threadIdx.x; i < TILE_N; i += THREADS) {
        scale[i] = a.scale[tile_n * TILE_N + i];
        bias[i] = a.bias[tile_n * TILE_N + i];
        if (SLOPES) bias[TILE_N + i] = a.bias[(a.tiles_n + tile_n) * TILE_N + i];
    }
}

// 16 bytes to shared memory, of zeros where there is nothing.
__device__ __forceinline__ void copy_piece(u32 to, const char* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
// All blocks of a cluster have come here.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// Rows of bytes in shared memory without bank conflicts: 16-byte pieces change places within 8 rows, as TMA does it.
__device__ __forceinline__ u32 swizzle(u32 offset) { return offset ^ (((offset >> 7) & (DEPTH / 16 - 1)) << 4); }

// The first byte of a pixel that a tile of filters reads: its first group's, at a multiple of 16. The tile's groups are multiplied
// as one, with weights of zero where a filter meets another group.
__device__ __forceinline__ int first_byte(const ConvArgs& a, int filter) {
    return GROUPED ? filter / a.group_filters * a.group_bytes & ~15 : 0;
}

// A tile's rows: successive pixels of y, or a patch of 8 columns; with a HALO, successive pixels of lines of `halo_pitch` pixels.
struct Tile {
    int first;            // pixel, where PATCH is 0
    int image, top, left;

    __device__ __forceinline__ Tile(const ConvArgs& a, int index) {
        if (PATCH) {
            first = 0;
            image = index / (a.patches_h * a.patches_w);
            int const rest = index - image * (a.patches_h * a.patches_w);
            top = rest / a.patches_w * (TILE_M / 8);
            left = rest % a.patches_w * 8;
        } else if (HALO) {
            image = index / a.patches_h;
            first = (index - image * a.patches_h) * TILE_M;
            top = first / a.halo_pitch;
            left = first - top * a.halo_pitch;
        } else {
            first = index * TILE_M;
            image = first / (a.oh * a.ow);
            int const rest = first - image * (a.oh * a.ow);
            top = rest / a.ow;
            left = rest % a.ow;
        }
    }

    // The pixel of a row, counted over all images; -1 outside.
    __device__ __forceinline__ int pixel(const ConvArgs& a, int row) const {
        if (!PATCH && !HALO) return first + row < a.pixels ? first + row : -1;
        int const line = PATCH ? row / 8 : (first + row) / a.halo_pitch;
        int const y = PATCH ? top + line : line, x = PATCH ? left + row % 8 : first + row - line * a.halo_pitch;
        int const found = (image * a.oh + y) * a.ow + x;
        return y < a.oh && x < a.ow && found < a.pixels ? found : -1;
    }
};

__device__ __forceinline__ float activate(float v, float slope) { return fmaxf(v, v * slope); }

// Also of minus infinity, of which max(v, 0 * v) makes nothing but itself. NaN stays NaN.
__device__ __forceinline__ float relu(float v) { return v < 0.0f ? 0.0f : v; }

// With any slope.
__device__ __forceinline__ float prelu(float v, float slope) { return v < 0.0f ? v * slope : v; }

// NaN stays NaN.
__device__ __forceinline__ float between(float v, float low, float high) { return v < low ? low : v > high ? high : v; }

// The activation of a sum, both of them divided by the step of y's codes; `real` is the sum itself, `bias` is where its filter's
// was found.
__device__ __forceinline__ float activate_sum(const ConvArgs& a, float v, const float* bias) {
    if (GATE == ACTIVATION_LINEAR) return activate(v, a.slope);
    if (GATE == ACTIVATION_PRELU) return prelu(v, bias[TILE_N]);
    if (GATE == ACTIVATION_RELU) return relu(v);
    float const real = OUT_CODES ? v * a.step : v;
    if (GATE != ACTIVATION_LOGISTIC && GATE != ACTIVATION_HARD_SIGMOID && GATE != ACTIVATION_CLIP) return quick_gated(v, real, GATE);
    float result = 0.0f;
    if (GATE == ACTIVATION_LOGISTIC) result = quick_sigmoid(real);
    if (GATE == ACTIVATION_HARD_SIGMOID) result = between(fmaf(real, a.low, a.high), 0.0f, 1.0f);
    if (GATE == ACTIVATION_CLIP) result = between(real, a.low, a.high);
    return OUT_CODES ? __fdividef(result, a.step) : result;
}

__device__ __forceinline__ int round_even(float v) {
    int r;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(r) : "f"(v));
    return r;
}

// Two floats as halves, four as saturated int8.
__device__ __forceinline__ u32 halves(float low, float high) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
__device__ __forceinline__ u32 codes(float a, float b, float c, float d) {
    u32 high, r;
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(high) : "r"(round_even(d)), "r"(round_even(c)), "r"(0));
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(round_even(b)), "r"(round_even(a)), "r"(high));
    return r;
}

// Four as saturated FP8, and two of FP8 as halves: instructions that begin with compute capability 8.9.
__device__ __forceinline__ u32 fp8_codes(float a, float b, float c, float d) {
    unsigned short low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return low | static_cast<u32>(high) << 16;
}
__device__ __forceinline__ u32 fp8_halves(unsigned short codes) {
    u32 r;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(codes));
    return r;
}

__device__ __forceinline__ float half_bits(unsigned short bits) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
}

__device__ __forceinline__ void store_one(char* to, float v) {
    if (OUT == FLOAT) *reinterpret_cast<float*>(to) = v;
    if (OUT == HALF) *reinterpret_cast<unsigned short*>(to) = static_cast<unsigned short>(halves(v, 0.0f));
    if (OUT == INT8) *to = static_cast<char>(codes(v, 0.0f, 0.0f, 0.0f));
    if (OUT == FP8) *to = static_cast<char>(fp8_codes(v, 0.0f, 0.0f, 0.0f));
}

// COUNT successive filters of a pixel to memory; COUNT is 4 or more.
template <int COUNT> __device__ __forceinline__ void store_run(char* to, const float (&v)[COUNT]) {
    constexpr int WORDS = COUNT * OUT_BYTES / 4;
    u32 words[WORDS];
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        if (OUT == FLOAT) words[i] = __float_as_uint(v[i]);
        if (OUT == HALF) words[i] = halves(v[2 * i % COUNT], v[(2 * i + 1) % COUNT]);
        if (OUT == INT8) words[i] = codes(v[4 * i % COUNT], v[(4 * i + 1) % COUNT], v[(4 * i + 2) % COUNT], v[(4 * i + 3) % COUNT]);
        if (OUT == FP8) words[i] = fp8_codes(v[4 * i % COUNT], v[(4 * i + 1) % COUNT], v[(4 * i + 2) % COUNT], v[(4 * i + 3) % COUNT]);
    }
    if (WORDS == 1) *reinterpret_cast<u32*>(to) = words[0];
    if (WORDS == 2) *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1 % WORDS]);
#pragma unroll
    for (int i = 0; i + 4 <= WORDS; i += 4) {
        reinterpret_cast<uint4*>(to)[i / 4] = make_uint4(words[i], words[(i + 1) % WORDS], words[(i + 2) % WORDS], words[(i + 3) % WORDS]);
    }
}

__device__ __forceinline__ float load_residual(const ConvArgs& a, int pixel, int filter) {
    const char* from = a.residual + static_cast<long long>(pixel) * a.residual_pitch;
    if (RESIDUAL == FLOAT) return reinterpret_cast<const float*>(from)[filter];
    if (RESIDUAL == HALF) return half_bits(reinterpret_cast<const unsigned short*>(from)[filter]);
    if (RESIDUAL == FP8) return half_bits(static_cast<unsigned short>(fp8_halves(reinterpret_cast<const unsigned char*>(from)[filter])));
    return static_cast<float>(reinterpret_cast<const signed char*>(from)[filter]);
}

// Where darknet's reorg puts a value: the image's channels are read again as channels of s * s fewer, larger planes. `s`
// divides rows and columns, so that s rows of a channel are one line of such a plane, and s * s channels are one plane.
__device__ __forceinline__ char* reorg_place(const ConvArgs& a, int pixel, int filter) {
    constexpr int s = REORG > 0 ? REORG : 1;
    int const plane = a.oh * a.ow, image = pixel / plane, rest = pixel % plane, y = rest / a.ow, x = rest % a.ow;
    int const along = y % s * a.ow + x, j = along % s, column = along / s;
    int const line = filter % (s * s) * (a.oh / s) + y / s, i = line % s, row = line / s;
    int const small = plane / (s * s);
    int place = row * a.ow + column, quarter = 0;
#pragma unroll
    for (int part = 1; part < s * s; ++part) quarter += place >= part * small;
    place -= quarter * small;
    int const target = ((i * s + j) * (a.filters / (s * s)) + filter / (s * s)) * s * s + quarter;
    return a.y + static_cast<long long>(image * small + place) * a.y_pitch + target * OUT_BYTES;
}

// Where a run of filters of a pixel lies in a block of pixels, each of which has as many filters, a multiple of any run; null
// where that is cut off.
__device__ __forceinline__ char* block_place(const ConvArgs& a, int pixel, int filter) {
    constexpr int s = BLOCKS > 0 ? BLOCKS : 1;
    int const channels = a.filters / (s * s), phase = filter / channels, row = pixel / a.ow;
    int y = row * s + phase / s, x = (pixel - row * a.ow) * s + phase % s - a.cut_left;
    if (CUT) {
        int const image = row / a.oh;
        y -= image * a.oh * s + a.cut_top;
        if (static_cast<u32>(y) >= static_cast<u32>(a.rows) || static_cast<u32>(x) >= static_cast<u32>(a.columns)) return nullptr;
        y += image * a.rows;
    }
    return a.y + (static_cast<long long>(y) * a.columns + x) * a.y_pitch + (filter - phase * channels) * OUT_BYTES;
}

// Where a value lies in [image][filter][pixel].
__device__ __forceinline__ char* linear_place(const ConvArgs& a, int pixel, int filter) {
    int const plane = POOL ? a.oh / 2 * (a.ow / 2) : a.oh * a.ow, image = pixel / plane;
    return a.y + ((static_cast<long long>(image) * a.filters + filter) * plane + pixel % plane) * OUT_BYTES;
}

// COUNT successive filters of a pixel, activated: residual, then memory. `pixel` counts pixels of what is written; `bias` is the
// first filter's.
template <int COUNT>
__device__ __forceinline__ void write_run(const ConvArgs& a, int pixel, int filter, const float* bias, float (&v)[COUNT]) {
    if (RESIDUAL != NONE) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (filter + i < a.filters) {
                v[i] = fmaf(load_residual(a, pixel, filter + i), a.residual_scale, v[i]);
                if (RESIDUAL_GATE == ACTIVATION_LINEAR) v[i] = activate(v[i], a.residual_slope);
                if (RESIDUAL_GATE == ACTIVATION_PRELU) v[i] = prelu(v[i], bias[TILE_N + i]);
                if (RESIDUAL_GATE == ACTIVATION_RELU) v[i] = relu(v[i]);
            }
        }
    }
    char* const to = BLOCKS ? block_place(a, pixel, filter) : a.y + static_cast<long long>(pixel) * a.y_pitch + filter * OUT_BYTES;
    if (CUT && to == nullptr) return;
    if (a.vector && filter + COUNT <= a.filters) {
        store_run(to, v);
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if (filter + i >= a.filters) continue;
        store_one(REORG ? reorg_place(a, pixel, filter + i) : LINEAR ? linear_place(a, pixel, filter + i) : to + i * OUT_BYTES, v[i]);
    }
}

// Filters that a thread holds side by side, of COLUMNS that four threads share: see packing.py.
template <int COLUMNS> __device__ constexpr int run_of() {
    return COLUMNS / 4 < 16 / ELEMENT_BYTES ? COLUMNS / 4 : 16 / ELEMENT_BYTES;
}

__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ int larger(int a, int b) { return max(a, b); }

// A run of filters of two rows, which are two lines of a patch: the largest of both and of the neighbours in the line,
// four threads away. Sums are compared, since scales are positive; each of the two threads finishes half of the run.
template <int RUN>
__device__ __forceinline__ void pool_rows(const ConvArgs& a, const Tile& tile, int row, int filter, int at, const float* scale,
                                          const float* bias, const Sum* sums) {
    constexpr int HALF_RUN = RUN / 2;
    int const right = threadIdx.x >> 2 & 1, mine = at + right * HALF_RUN;
    float v[HALF_RUN];
#pragma unroll
    for (int i = 0; i < HALF_RUN; ++i) {
        int const j = i + HALF_RUN;  // the sums of filters i and j
        Sum const low = larger(sums[i / 2 * 4 + i % 2], sums[i / 2 * 4 + 2 + i % 2]);
        Sum const high = larger(sums[j / 2 * 4 + j % 2], sums[j / 2 * 4 + 2 + j % 2]);
        Sum const other = __shfl_xor_sync(0xffffffffu, right ? low : high, 4);
        float const sum = static_cast<float>(larger(right ? high : low, other));
        v[i] = activate_sum(a, fmaf(sum, scale[mine + i], bias[mine + i]), bias + mine + i);
    }
    int const y = tile.top + row / 8, x = tile.left + row % 8;
    int const pooled = (tile.image * (a.oh / 2) + y / 2) * (a.ow / 2) + x / 2;
    if (tile.pixel(a, row) >= 0) write_run(a, pooled, filter + mine, bias + mine, v);
}

// Two rows (`row` and `row + 8`) of a tile's COLUMNS filters, as the matrix instructions leave them in a thread:
// sums[4 * block + 2 * half + i]. `scale` and `bias` begin at the first of the columns, whose filter is `filter`.
template <int COLUMNS>
__device__ __forceinline__ void write_rows(const ConvArgs& a, const Tile& tile, int row, int filter, const float* scale,
                                           const float* bias, const Sum (&sums)[COLUMNS / 2]) {
    constexpr int RUN = run_of<COLUMNS>();
    int const quarter = threadIdx.x & 3, upper = tile.pixel(a, row), lower = tile.pixel(a, row + 8);
#pragma unroll
    for (int first = 0; first < COLUMNS / 4; first += RUN) {
        int const at = first * 4 + quarter * RUN;
        if (POOL) {
            pool_rows<RUN>(a, tile, row, filter, at, scale, bias, &sums[2 * first]);
            continue;
        }
        float v[2][RUN];
#pragma unroll
        for (int i = 0; i < RUN; ++i) {
            int const block = (first + i) / 2, odd = i & 1;
            float const factor = scale[at + i], offset = bias[at + i];
            v[0][i] = activate_sum(a, fmaf(static_cast<float>(sums[4 * block + odd]), factor, offset), bias + at + i);
            v[1][i] = activate_sum(a, fmaf(static_cast<float>(sums[4 * block + 2 + odd]), factor, offset), bias + at + i);
        }
        if (upper >= 0) write_run(a, upper, filter + at, bias + at, v[0]);
        if (lower >= 0) write_run(a, lower, filter + at, bias + at, v[1]);
    }
}
