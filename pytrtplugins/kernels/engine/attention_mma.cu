// Attention in float16 on matrix units, from compute capability 8.0 on: as attention.cu, with products by mma.sync. A warp does
// 16 rows of one head; the 4 warps of a block share tiles of keys. Scores, maxima and sums are float32; weights are rounded to
// float16 for the second product. On a CPU the matrix instruction and the exchange between lanes go through shared memory.
//
// Constants: DEPTH, values of a head rounded up to a multiple of 16, 128 at most.
typedef unsigned int u32;

constexpr int THREADS = 128, ROWS = 64, KEYS = 64, BLOCKS = KEYS / 8, STEPS = DEPTH / 16;
constexpr int K_PITCH = DEPTH / 2 + 4, V_PITCH = KEYS / 2 + 4;  // in pairs of values; with them no two lanes meet in a bank

#ifdef __CUDACC__
__device__ __forceinline__ float exchanged(float value, int lanes) { return __shfl_xor_sync(0xffffffffu, value, lanes); }

// 16 rows by 8 columns of sums, plus products of 16 values each.
__device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#else
inline float exchanged(float value, int lanes) {
    __shared__ float values[THREADS];
    values[threadIdx.x] = value;
    __syncthreads();
    float const found = values[threadIdx.x ^ lanes];
    __syncthreads();
    return found;
}

inline void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    __shared__ u32 left[THREADS][4], right[THREADS][2];
    for (int i = 0; i < 4; ++i) left[threadIdx.x][i] = a[i];
    right[threadIdx.x][0] = b0, right[threadIdx.x][1] = b1;
    __syncthreads();
    int const lane = threadIdx.x % 32, warp = threadIdx.x - lane;
    for (int i = 0; i < 4; ++i) {
        int const row = lane / 4, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k) {
            u32 const x = left[warp + row * 4 + k % 8 / 2][i / 2 + k / 8 * 2], w = right[warp + column * 4 + k % 8 / 2][k / 8];
            __half h, g;
            h.bits = static_cast<unsigned short>(x >> k % 2 * 16), g.bits = static_cast<unsigned short>(w >> k % 2 * 16);
            d[i] += static_cast<float>(h) * static_cast<float>(g);
        }
    }
    __syncthreads();
}
#endif

__device__ __forceinline__ u32 packed(float low, float high) {
    return static_cast<u32>(__half(low).bits) | static_cast<u32>(__half(high).bits) << 16;
}

__device__ __forceinline__ u32 low_halves(u32 a, u32 b) { return (a & 0xFFFFu) | b << 16; }
__device__ __forceinline__ u32 high_halves(u32 a, u32 b) { return a >> 16 | (b & 0xFFFF0000u); }

// 8 values of a row, zeros outside.
__device__ __forceinline__ uint4 load_eight(const __half* x, bool inside) {
    return inside ? *reinterpret_cast<const uint4*>(x) : make_uint4(0, 0, 0, 0);
}

// Arguments as those of attention.cu, without the strides between the values of a head, which lie side by side.
__global__ void __launch_bounds__(128)
attention_mma(const __half* q, const __half* k, const __half* v, const void* bias, __half* y, int heads, int rows, int keys,
              int head, int values, long long qb, long long qh, long long qr, long long kb, long long kh, long long kr,
              long long vb, long long vh, long long vr, long long yb, long long yh, long long yr, long long bb, long long bh,
              long long br, long long bk, int period, bool half_bias, float scale, bool zero) {
    __shared__ uint4 key_tile[KEYS][K_PITCH / 4];    // [key][pair of values]
    __shared__ u32 value_tile[DEPTH][V_PITCH];       // [value][pair of keys]
    int const row_tiles = (rows + ROWS - 1) / ROWS, lane = threadIdx.x % 32, quad = lane % 4;
    long long place = blockIdx.x;
    int const row = static_cast<int>(place % row_tiles) * ROWS + threadIdx.x / 32 * 16 + lane / 4;  // and the one 8 below
    place /= row_tiles;
    long long const number = place % heads, batch = place / heads;
    q += batch * qb + number * qh;
    k += batch * kb + number * kh;
    v += batch * vb + number * vh;
    y += batch * yb + number * yh;
    long long const bias_begin = batch % period * bb + number * bh;
    float const none = __int_as_float(static_cast<int>(0xFF800000u));

    u32 queries[STEPS][4];
#pragma unroll
    for (int i = 0; i < 4 * STEPS; ++i) {
        int const at = row + i % 2 * 8, value = i / 4 * 16 + i % 4 / 2 * 8 + quad * 2;
        bool const inside = at < rows && value < head;
        queries[i / 4][i % 4] = inside ? *reinterpret_cast<const u32*>(q + at * qr + value) : 0;
    }
    float best[2] = {none, none}, total[2] = {0.0f, 0.0f}, sums[DEPTH / 8][4];
#pragma unroll
    for (int i = 0; i < DEPTH / 2; ++i) sums[i / 4][i % 4] = 0.0f;

    for (int first = 0; first < keys; first += KEYS) {
        float scores[BLOCKS][4];  // what is added to them first, so that it is on its way while tiles are copied
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                int const key = first + block * 8 + quad * 2 + i % 2, at = row + i / 2 * 8;
                scores[block][i] = 0.0f;
                if (bias && key < keys && at < rows) {
                    long long const offset = bias_begin + at * br + key * bk;
                    scores[block][i] = half_bias ? static_cast<float>(static_cast<const __half*>(bias)[offset])
                                                 : static_cast<const float*>(bias)[offset];
                }
            }
        }
        __syncthreads();  // nobody reads the tiles any more
        for (int index = threadIdx.x; index < KEYS * (DEPTH / 8); index += THREADS) {
            int const key = index / (DEPTH / 8), piece = index % (DEPTH / 8);
            key_tile[key][piece] = load_eight(k + (first + key) * kr + piece * 8, first + key < keys && piece * 8 < head);
        }
        for (int index = threadIdx.x; index < KEYS / 2 * (DEPTH / 8); index += THREADS) {
            int const pair = index % (KEYS / 2), piece = index / (KEYS / 2), key = first + pair * 2;
            bool const inside = piece * 8 < values;
            uint4 const even = load_eight(v + key * vr + piece * 8, inside && key < keys);
            uint4 const odd = load_eight(v + (key + 1) * vr + piece * 8, inside && key + 1 < keys);
            u32 const evens[4] = {even.x, even.y, even.z, even.w}, odds[4] = {odd.x, odd.y, odd.z, odd.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                value_tile[piece * 8 + i * 2][pair] = low_halves(evens[i], odds[i]);
                value_tile[piece * 8 + i * 2 + 1][pair] = high_halves(evens[i], odds[i]);
            }
        }
        __syncthreads();
        float products[BLOCKS][4];
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
            const u32* const pairs = reinterpret_cast<const u32*>(key_tile[block * 8 + lane / 4]) + quad;
#pragma unroll
            for (int i = 0; i < 4; ++i) products[block][i] = 0.0f;
#pragma unroll
            for (int step = 0; step < STEPS; ++step) multiply(products[block], queries[step], pairs[step * 8], pairs[step * 8 + 4]);
        }
        float top[2] = {best[0], best[1]};
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                int const key = first + block * 8 + quad * 2 + i % 2;
                scores[block][i] = key < keys ? products[block][i] * scale + scores[block][i] : none;
                top[i / 2] = fmaxf(top[i / 2], scores[block][i]);
            }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {  // over the four lanes that share the row
            top[i] = fmaxf(top[i], exchanged(top[i], 1));
            top[i] = fmaxf(top[i], exchanged(top[i], 2));
            float const from = top[i] == none ? 0.0f : top[i], smaller = expf(best[i] - from);
            best[i] = top[i];
            total[i] *= smaller;
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
#pragma unroll
                for (int j = 2 * i; j < 2 * i + 2; ++j) {
                    scores[block][j] = expf(scores[block][j] - from);
                    total[i] += scores[block][j];
                }
            }
#pragma unroll
            for (int column = 0; column < DEPTH / 8; ++column) sums[column][2 * i] *= smaller, sums[column][2 * i + 1] *= smaller;
        }
#pragma unroll
        for (int step = 0; step < KEYS / 16; ++step) {
            const float(&even)[4] = scores[2 * step];
            const float(&odd)[4] = scores[2 * step + 1];
            u32 const weights[4] = {packed(even[0], even[1]), packed(even[2], even[3]), packed(odd[0], odd[1]), packed(odd[2], odd[3])};
#pragma unroll
            for (int column = 0; column < DEPTH / 8; ++column) {
                const u32* const pairs = value_tile[column * 8 + lane / 4] + step * 8 + quad;
                multiply(sums[column], weights, pairs[0], pairs[4]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        total[i] += exchanged(total[i], 1);
        total[i] += exchanged(total[i], 2);
        int const at = row + i * 8;
        if (at >= rows) continue;
        bool const empty = zero && !(total[i] > 0.0f);
#pragma unroll
        for (int column = 0; column < DEPTH / 8; ++column) {
            int const value = column * 8 + quad * 2;
            float const low = empty ? 0.0f : sums[column][2 * i] / total[i], high = empty ? 0.0f : sums[column][2 * i + 1] / total[i];
            if (value < values) *reinterpret_cast<u32*>(y + at * yr + value) = packed(low, high);
        }
    }
}
