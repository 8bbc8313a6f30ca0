// A network's first convolution: 3x3 over at most 4 channels, any layout and type, with its 2x2 pool where POOL is 1.
//
// A block casts or quantizes a tile of the image into shared memory, 4 channels a pixel, and 8 warps multiply it on the
// matrix units: K is 12 taps (9 and 3 empty ones) of 4 channels. A block does every gridDim.x-th tile; the next one's values
// are on their way while it multiplies. FP8 is multiplied as halves, which hold its values exactly. Constants: ELEMENT, OUT (HALF,
// INT8 or FP8), POOL, FILTERS (a multiple of 16, at most 64), CHANNELS (1 to 4), PRELU (whether slopes stand behind the biases),
// RELU (whether what is below 0 becomes 0), X (Kind of the image, 3 for uint8), DEPENDENT.

typedef unsigned int u32;
enum Kind { FLOAT = 0, HALF = 1, INT8 = 2, UINT8 = 3, FP8 = 4 };
constexpr int BLOCK_W = 32, BLOCK_H = 16, PATCH_W = BLOCK_W + 2, PATCH_H = BLOCK_H + 2, BLOCKS = FILTERS / 8;
constexpr int RUN = FILTERS / 4, OUT_BYTES = OUT == HALF ? 2 : 1, WORDS = RUN * OUT_BYTES / 4;
constexpr int PIXELS = PATCH_H * PATCH_W, PARTS = (PIXELS + 255) / 256;

struct StemArgs {
    const char* x;
    const uint2* weights;  // [filter][12 taps] of 4 channels, see pack_stem
    const float* scale;
    const float* bias;
    char* y;
    long long x_image, x_channel, x_row, x_column;  // in values
    int h, w, tiles_w, tiles_h, tiles;
    int y_pitch, vector;  // y_pitch in bytes; vector: whether y may be written 16 bytes at a time
    float x_factor, x_scale, slope;                 // a value counts x_factor; codes are value / x_scale
};

template <int KIND> struct Pixels;  // FP8 as HALF
template <> struct Pixels<HALF> {
    typedef uint2 type;  // 4 halves
    typedef float sum;
};
template <> struct Pixels<INT8> {
    typedef u32 type;  // 4 codes
    typedef int sum;
};
typedef Pixels<ELEMENT == FP8 ? HALF : ELEMENT>::type Pixel;
typedef Pixels<ELEMENT == FP8 ? HALF : ELEMENT>::sum Sum;

__device__ __forceinline__ u32 halves(float low, float high) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
__device__ __forceinline__ u32 codes(float a, float b, float c, float d) {
    int const i = __float2int_rn(a), j = __float2int_rn(b), k = __float2int_rn(c), l = __float2int_rn(d);
    u32 high, r;
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(high) : "r"(l), "r"(k), "r"(0));
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(j), "r"(i), "r"(high));
    return r;
}
// Two floats as saturated FP8, from compute capability 8.9 on, and two of FP8 as halves.
__device__ __forceinline__ unsigned short fp8_codes(float low, float high) {
    unsigned short r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
    return r;
}
__device__ __forceinline__ u32 fp8_halves(unsigned short codes) {
    u32 r;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(codes));
    return r;
}
__device__ __forceinline__ float load(const char* x, long long i) {
    if (X == FLOAT) return reinterpret_cast<const float*>(x)[i];
    if (X == INT8) return static_cast<float>(reinterpret_cast<const signed char*>(x)[i]);
    if (X == UINT8) return static_cast<float>(reinterpret_cast<const unsigned char*>(x)[i]);
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(reinterpret_cast<const unsigned short*>(x)[i]));
    return v;
}
__device__ __forceinline__ void pack(const float (&v)[4], uint2& pixel) {
    pixel = ELEMENT == FP8 ? make_uint2(fp8_halves(fp8_codes(v[0], v[1])), fp8_halves(fp8_codes(v[2], v[3])))
                           : make_uint2(halves(v[0], v[1]), halves(v[2], v[3]));
}
__device__ __forceinline__ void pack(const float (&v)[4], u32& pixel) { pixel = codes(v[0], v[1], v[2], v[3]); }

// 8 filters of 16 pixels: taps q, q + 4 and q + 8 in thread q of four; an odd pixel's products behind an even one's.
__device__ __forceinline__ void step(float (&d)[4], uint2 even, uint2 odd, uint2 w) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(even.x), "r"(odd.x), "r"(even.y), "r"(odd.y), "r"(w.x), "r"(w.y));
}
__device__ __forceinline__ void multiply(float (&d)[4], const uint2 (&even)[3], const uint2 (&odd)[3], const uint2 (&w)[3]) {
#pragma unroll
    for (int t = 0; t < 3; ++t) step(d, even[t], odd[t], w[t]);
}
__device__ __forceinline__ void multiply(int (&d)[4], const u32 (&even)[3], const u32 (&odd)[3], const u32 (&w)[3]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(even[0]), "r"(odd[0]), "r"(even[1]), "r"(odd[1]), "r"(w[0]), "r"(w[1]));
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(even[2]), "r"(odd[2]), "r"(w[2]));
}

// The activation of a sum; `slopes` are those of the filters. Minus infinity times 0 would be NaN.
__device__ __forceinline__ float activate(float v, float slope, const float* slopes) {
    if (PRELU) return v < 0.0f ? v * *slopes : v;
    return RELU ? (v < 0.0f ? 0.0f : v) : fmaxf(v, v * slope);
}

__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ int larger(int a, int b) { return max(a, b); }

// A thread's quarter of a pixel's filters.
__device__ __forceinline__ void store(const StemArgs& a, long long pixel, int quarter, const float* scale, const float* bias,
                                      const Sum (&sums)[RUN]) {
    u32* const to = reinterpret_cast<u32*>(a.y + pixel * a.y_pitch + quarter * RUN * OUT_BYTES);
    float v[RUN];
    u32 words[WORDS];
#pragma unroll
    for (int i = 0; i < RUN; ++i) {
        int const filter = quarter * RUN + i;
        float const sum = fmaf(static_cast<float>(sums[i]), scale[filter], bias[filter]);
        v[i] = activate(sum, a.slope, bias + FILTERS + filter);
    }
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        float const low = v[4 * i % RUN], second = v[(4 * i + 1) % RUN], third = v[(4 * i + 2) % RUN], high = v[(4 * i + 3) % RUN];
        if (OUT == HALF) words[i] = halves(v[2 * i % RUN], v[(2 * i + 1) % RUN]);
        if (OUT == INT8) words[i] = codes(low, second, third, high);
        if (OUT == FP8) words[i] = fp8_codes(low, second) | static_cast<u32>(fp8_codes(third, high)) << 16;
    }
    if (WORDS % 4 == 0 && a.vector) {
#pragma unroll
        for (int i = 0; i + 4 <= WORDS; i += 4) {
            reinterpret_cast<uint4*>(to)[i / 4] = make_uint4(words[i], words[(i + 1) % WORDS], words[(i + 2) % WORDS], words[(i + 3) % WORDS]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < WORDS; ++i) to[i] = words[i];
}

struct Place {
    int image, top, left;

    __device__ __forceinline__ Place(const StemArgs& a, int tile) {
        int const row = tile / a.tiles_w;
        image = row / a.tiles_h;
        top = (row - image * a.tiles_h) * BLOCK_H;
        left = (tile - row * a.tiles_w) * BLOCK_W;
    }
};

// A thread's pixels of a tile and of its border; 0 outside of the image.
__device__ __forceinline__ void fetch(const StemArgs& a, int tile, float (&v)[PARTS][CHANNELS]) {
    Place const place(a, tile);
    long long const image = place.image * a.x_image;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        int const i = part * 256 + threadIdx.x;
        int const y = place.top + i / PATCH_W - 1, x = place.left + i % PATCH_W - 1;
        bool const inside = y >= 0 && y < a.h && x >= 0 && x < a.w && i < PIXELS;
        long long const pixel = image + y * a.x_row + x * a.x_column;
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c) v[part][c] = inside ? load(a.x, pixel + c * a.x_channel) : 0.0f;
    }
}

__device__ __forceinline__ void cast(const StemArgs& a, const float (&v)[PARTS][CHANNELS], Pixel* patch) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        int const i = part * 256 + threadIdx.x;
        float values[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c) {
            values[c] = v[part][c] * a.x_factor;
            if (ELEMENT == INT8 || ELEMENT == FP8) values[c] = in_steps(values[c], a.x_scale);
        }
        if (i < PIXELS) pack(values, patch[i]);
    }
}

// A warp's two lines of a tile.
__device__ __forceinline__ void convolve(const StemArgs& a, const Place& place, const Pixel* patch, const Pixel (&w)[BLOCKS][3],
                                         const float* scale, const float* bias) {
    int const lane = threadIdx.x & 31, quarter = lane & 3, group = lane >> 2, warp = threadIdx.x / 32;
    // Tap t is right * 1 + down * 3; a thread's third tap is 8 in thread 0, and nothing in the others.
    int const near = quarter / 3 * PATCH_W + quarter % 3, far = (quarter + 4) / 3 * PATCH_W + (quarter + 4) % 3;
#pragma unroll
    for (int part = 0; part < BLOCK_W / 16; ++part) {
        int const x = part * 16 + 2 * group, y = warp * 2;
        Sum best[RUN];
#pragma unroll
        for (int line = 0; line < 2; ++line) {
            const Pixel* p = patch + (y + line) * PATCH_W + x;
            Pixel even[3] = {p[near], p[far], Pixel()}, odd[3] = {p[near + 1], p[far + 1], Pixel()};
            if (quarter == 0) even[2] = p[2 * PATCH_W + 2], odd[2] = p[2 * PATCH_W + 3];
            Sum sums[2][RUN];
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                Sum d[4] = {0, 0, 0, 0};
                multiply(d, even, odd, w[block]);
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[i / 2][2 * block + i % 2] = d[i];
            }
            if (POOL) {
#pragma unroll
                for (int i = 0; i < RUN; ++i) {
                    Sum const wider = larger(sums[0][i], sums[1][i]);
                    best[i] = line == 0 ? wider : larger(best[i], wider);
                }
            } else if (place.top + y + line < a.h) {
                long long const row = static_cast<long long>(place.image) * a.h + place.top + y + line;
                if (place.left + x < a.w) store(a, row * a.w + place.left + x, quarter, scale, bias, sums[0]);
                if (place.left + x + 1 < a.w) store(a, row * a.w + place.left + x + 1, quarter, scale, bias, sums[1]);
            }
        }
        if (POOL && place.top + y < a.h && place.left + x < a.w) {
            long long const row = static_cast<long long>(place.image) * (a.h / 2) + (place.top + y) / 2;
            store(a, row * (a.w / 2) + (place.left + x) / 2, quarter, scale, bias, best);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, FILTERS <= 32 ? 3 : 1) stem(const __grid_constant__ StemArgs a) {
    __shared__ __align__(16) Pixel patches[2][PIXELS + 1];
    __shared__ float scale[FILTERS], bias[PRELU ? 2 * FILTERS : FILTERS];
    int const lane = threadIdx.x & 31;
    const Pixel* weights = reinterpret_cast<const Pixel*>(a.weights);
    Pixel w[BLOCKS][3];
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) {
#pragma unroll
        for (int t = 0; t < 3; ++t) w[block][t] = weights[(8 * block + (lane >> 2)) * 12 + (lane & 3) + 4 * t];
    }
    if (threadIdx.x < FILTERS) {
        scale[threadIdx.x] = a.scale[threadIdx.x];
        bias[threadIdx.x] = a.bias[threadIdx.x];
        if (PRELU) bias[FILTERS + threadIdx.x] = a.bias[FILTERS + threadIdx.x];
    }
#if DEPENDENT
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    float values[PARTS][CHANNELS];
    fetch(a, blockIdx.x, values);
    int turn = 0;
    for (int tile = blockIdx.x; tile < a.tiles; tile += gridDim.x, turn ^= 1) {
        cast(a, values, patches[turn]);
        __syncthreads();  // who is here has left the other patch behind
        if (tile + gridDim.x < a.tiles) fetch(a, tile + gridDim.x, values);
        convolve(a, Place(a, tile), patches[turn], w, scale, bias);
    }
}
