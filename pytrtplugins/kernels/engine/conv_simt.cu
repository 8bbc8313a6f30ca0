// Convolution in true float32 on any GPU from compute capability 8.0 on: multiply-adds of registers, on tiles that cp.async
// brings, in a ring of stages.
//
// A thread multiplies THREAD_M pixels by THREAD_N filters, the 8 x 4 lanes of a warp 8 and 4 times as many. K runs over taps
// and their channels without gaps, so that few channels waste nothing. The 16-byte pieces of a unit are shared out to SLICES
// groups of warps, and the units to SPLIT blocks of a cluster (from 9.0 on); their sums are added at the end, in fixed order.
// After common.cu. Further constants: TILE_N, THREAD_M, THREAD_N, SLICES, SPLIT, DEPTH (bytes of a pixel in a unit: 32, 64),
// STAGES, MIN_BLOCKS, PLANES (channels of x where it is [image][channel][pixel]; 0: NHWC), DEPENDENT (whether launches overlap).

constexpr int WARP_M = 8 * THREAD_M, WARP_N = 4 * THREAD_N, WARPS_N = TILE_N / WARP_N;
constexpr int GROUP = TILE_M / WARP_M * WARPS_N * 32, THREADS = GROUP * SLICES;
constexpr int PIECES = DEPTH / 16, ROW_STEP = THREADS / PIECES, ROWS = (TILE_M + ROW_STEP - 1) / ROW_STEP;
constexpr int A_BYTES = ROWS * ROW_STEP * DEPTH, B_BYTES = TILE_N * DEPTH, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int JOIN = POOL ? 4 : 1, PARTS = THREAD_M / JOIN * (THREAD_N / 4);  // of a thread: 4 filters of a pixel that is written
static_assert(ELEMENT == FLOAT && !PATCH, "successive pixels of float32");
static_assert(PIECES % SLICES == 0 && THREAD_M % JOIN == 0, "threads share evenly");

__device__ __forceinline__ void copy_word(u32 to, const char* from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(inside ? 4 : 0) : "memory");
}
__device__ __forceinline__ float4 load_shared(u32 address, int rank) {
    float4 v;
    u32 remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(remote)
                 : "memory");
    return v;
}

// Which rows and filters of the tile a thread of a group multiplies: rows `row + 8 * i`; of 16 filters 4, in `column` and later.
struct Place {
    int row, quarter, column;
    __device__ __forceinline__ explicit Place(int thread) {
        int const lane = thread % 32, warp = thread / 32;
        row = warp / WARPS_N * WARP_M + lane / 2 % 8;
        quarter = lane % 2 + lane / 16 * 2;
        column = warp % WARPS_N * WARP_N;
    }
};

// The pixel of the tile that a row holds; with a pool 4 rows of a thread are the 4 of a window, one after the other.
__device__ __forceinline__ int pixel_of(int row) {
    int const held = row % WARP_M;
    return POOL ? row - held + (held / 32 * 8 + held % 8) * 4 + held / 8 % 4 : row;
}

// Keeps the compiler from working a number out again in every turn of the loop.
__device__ __forceinline__ u32 pinned(u32 v) {
    asm volatile("" : "+r"(v));
    return v;
}

// The pieces that a thread copies, the same of each row, and where it stands: units come in order.
struct Loader {
    u32 from[ROWS];     // offset in x of the pixel under the filter's first tap
    u32 taps[ROWS];     // bit r: row r of the filter meets x; bit 16 + s: column s
    u32 to, filters_to;  // the first row's place in the first stage; the first filter's
    u32 tap;            // bits of r and s
    int channel, r, s;  // of the next unit
    int offset;         // of its tap and channel
    const char* filters;

    __device__ __forceinline__ Loader(const ConvArgs& a, u32 ring, int first, int tile_n, int unit) {
        int const row = threadIdx.x / PIECES, at = unit * DEPTH + threadIdx.x % PIECES * 16, tap_index = at / a.channel_bytes;
        channel = at - tap_index * a.channel_bytes;
        r = tap_index / a.kernel_w;
        s = tap_index - r * a.kernel_w;
        to = pinned(ring + swizzle(threadIdx.x * 16));
        filters_to = pinned(ring + A_BYTES + threadIdx.x * 16);
        filters = a.weights + (static_cast<long long>(tile_n) * a.units + unit) * B_BYTES + threadIdx.x * 16;
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            int const held = row + i * ROW_STEP, pixel = held < TILE_M ? first + pixel_of(held) : a.pixels;
            int const width = POOL ? a.ow / 2 : a.ow, plane = POOL ? a.oh / 2 * width : a.oh * width, place = pixel / JOIN;
            int const n = place / plane, y = place % plane / width, x = place % plane % width, corner = pixel % JOIN;
            int const top = (POOL ? 2 * y + corner / 2 : y) * a.stride_h - a.pad_h;
            int const left = (POOL ? 2 * x + corner % 2 : x) * a.stride_w - a.pad_w;
            from[i] = static_cast<u32>((n * a.h * (PLANES ? PLANES : 1) + top) * a.w + left) * a.x_pitch;
            taps[i] = 0;
            for (int down = 0; down < a.kernel_h; ++down) {
                int const line = top + down * a.dilation_h;
                taps[i] |= static_cast<u32>(line >= 0 && line < a.h && pixel < a.pixels) << down;
            }
            for (int right = 0; right < a.kernel_w; ++right) {
                int const line = left + right * a.dilation_w;
                taps[i] |= static_cast<u32>(line >= 0 && line < a.w) << (16 + right);
            }
        }
        enter(a);
    }

    __device__ __forceinline__ void enter(const ConvArgs& a) {
        offset = (r * a.dilation_h * a.w + s * a.dilation_w) * a.x_pitch + channel;
        tap = 1u << r | 0x10000u << s;
    }

    __device__ __forceinline__ void copy_pixels(const ConvArgs& a, u32 stage) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            bool const inside = (taps[i] & tap) == tap;
            const char* const source = a.x + (from[i] + offset);
            u32 const target = to + stage + i * ROW_STEP * DEPTH;
            if (PLANES == 0) copy_piece(target, source, inside);
#pragma unroll
            for (int c = 0; c < (PLANES ? 4 : 0); ++c) copy_word(target + 4 * c, source + c * a.h * a.w * a.x_pitch, inside && c < PLANES);
        }
        channel += DEPTH;
        offset += DEPTH;
        if (channel < a.channel_bytes) return;
        do {
            channel -= a.channel_bytes;
            if (++s == a.kernel_w) s = 0, ++r;
        } while (channel >= a.channel_bytes);
        enter(a);
    }

    // Weights lie in memory as in shared memory: a row of filters for each value of a pixel.
    __device__ __forceinline__ void copy_filters(u32 stage) {
#pragma unroll
        for (int i = 0; i < B_BYTES; i += THREADS * 16) {
            if (B_BYTES % (THREADS * 16) == 0 || threadIdx.x * 16 + i < B_BYTES) copy_piece(filters_to + stage + i, filters + i, true);
        }
        filters += B_BYTES;
    }
};

__device__ __forceinline__ float4 four_at(const char* p) { return *reinterpret_cast<const float4*>(p); }

// `rows` and `filters` are where a thread's first pieces lie. A piece is 4 values of a pixel, or one of each of 4 filters.
// Registers have two banks that give one value each at a time, so that a multiply-add at full speed reuses a factor (hence the
// way to and fro) and adds to a register of the other factor's other bank (hence the order that `reduce` leaves sums in).
__device__ __forceinline__ void multiply_stage(const char* stage, u32 rows, u32 filters, float (&sums)[THREAD_M][THREAD_N]) {
#pragma unroll 1  // more would leave fewer registers to choose from
    for (int piece = 0; piece < PIECES / SLICES; ++piece) {
        float pixels[THREAD_M][4], weights[THREAD_N];
#pragma unroll
        for (int i = 0; i < THREAD_M; ++i) {  // every 8 rows the places of pieces repeat
            float4 const v = four_at(stage + (rows ^ (piece * 16)) + 8 * i * DEPTH);
            pixels[i][0] = v.x, pixels[i][1] = v.y, pixels[i][2] = v.z, pixels[i][3] = v.w;
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
#pragma unroll
            for (int j = 0; j < THREAD_N; j += 4) {
                float4 const v = four_at(stage + filters + (piece * 4 + k) * TILE_N * 4 + j * 16);
                weights[j] = v.x, weights[j + 1] = v.y, weights[j + 2] = v.z, weights[j + 3] = v.w;
            }
#pragma unroll
            for (int i = 0; i < THREAD_M; ++i) {
#pragma unroll
                for (int step = 0; step < THREAD_N; ++step) {
                    int const j = i % 2 ? THREAD_N - 1 - step : step;
                    sums[i][j] = fmaf(pixels[i][k], weights[j], sums[i][j]);
                }
            }
        }
    }
}

// A part of a thread's sums: the largest of its window, scaled and activated, to memory.
__device__ __forceinline__ void finish(const ConvArgs& a, const Place& place, int part, int first, int filter, const float* scale,
                                       const float* bias, const float4 (&sums)[JOIN]) {
    float4 v = sums[0];
#pragma unroll
    for (int i = 1; i < JOIN; ++i) {
        v = make_float4(larger(v.x, sums[i].x), larger(v.y, sums[i].y), larger(v.z, sums[i].z), larger(v.w, sums[i].w));
    }
    int const row = place.row + part / (THREAD_N / 4) * JOIN * 8, pixel = (first + pixel_of(row)) / JOIN;
    int const at = place.column + part % (THREAD_N / 4) * 16 + place.quarter * 4;
    float out[4] = {fmaf(v.x, scale[at], bias[at]), fmaf(v.y, scale[at + 1], bias[at + 1]), fmaf(v.z, scale[at + 2], bias[at + 2]),
                    fmaf(v.w, scale[at + 3], bias[at + 3])};
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = activate_sum(a, out[i], bias + at + i);
    if (pixel < a.pixels / JOIN) write_run(a, pixel, filter + at, bias + at, out);
}

// Slices and blocks add their sums: each thread leaves its own in shared memory, and each block finishes its part of the tile.
__device__ __forceinline__ void reduce(const ConvArgs& a, char* exchange, int rank, int first, int filter, const float* scale,
                                       const float* bias, const float (&sums)[THREAD_M][THREAD_N]) {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();  // all have read the ring
    float4* const slots = reinterpret_cast<float4*>(exchange);  // [slice][row of the thread][filters 1, 0, 3, 2][thread]
    int const self = threadIdx.x % GROUP + threadIdx.x / GROUP * (THREAD_M * THREAD_N / 4 * GROUP);
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i) {
#pragma unroll
        for (int j = 0; j < THREAD_N; j += 4) {
            slots[self + (i * THREAD_N + j) / 4 * GROUP] = make_float4(sums[i][j + 1], sums[i][j], sums[i][j + 3], sums[i][j + 2]);
        }
    }
    if (SPLIT > 1) cluster_sync();
    else __syncthreads();
    for (int share = rank * THREADS + threadIdx.x; share < PARTS * GROUP; share += SPLIT * THREADS) {
        int const thread = share % GROUP, part = share / GROUP, column = part % (THREAD_N / 4), row = part / (THREAD_N / 4) * JOIN;
        float4 total[JOIN];
#pragma unroll
        for (int i = 0; i < JOIN; ++i) {
            total[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (int other = 0; other < SPLIT * SLICES; ++other) {
                int const slot = (other % SLICES * THREAD_M + row + i) * (THREAD_N / 4) + column;
                const float4* const local = &slots[slot * GROUP + thread];
                float4 const v = SPLIT > 1 ? load_shared(shared_address(local), other / SLICES) : *local;
                total[i] = make_float4(total[i].x + v.y, total[i].y + v.x, total[i].z + v.w, total[i].w + v.z);
            }
        }
        finish(a, Place(thread), part, first, filter, scale, bias, total);
    }
    if (SPLIT > 1) cluster_sync();  // nobody leaves while others read its sums
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) conv_simt(const __grid_constant__ ConvArgs a) {
    extern __shared__ __align__(128) char memory[];
    __shared__ __align__(16) float scale[TILE_N], bias[OFFSETS];
    int const rank = blockIdx.x % SPLIT, tile = blockIdx.x / SPLIT, tile_n = tile % a.tiles_n, first = tile / a.tiles_n * TILE_M;
    int const begin = a.units * rank / SPLIT, end = a.units * (rank + 1) / SPLIT;
    load_numbers<THREADS>(a, tile_n, scale, bias);
    Loader loader(a, shared_address(memory), first, tile_n, begin);
    for (int i = 0; i < STAGES - 1 && begin + i < end; ++i) loader.copy_filters(i * STAGE_BYTES);
#if DEPENDENT
    launch_dependents();
    wait_for_inputs();
#endif
    for (int i = 0; i < STAGES - 1; ++i) {
        if (begin + i < end) loader.copy_pixels(a, i * STAGE_BYTES);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    Place const place(threadIdx.x % GROUP);
    int const slice = threadIdx.x / GROUP;
    u32 const rows = pinned(swizzle(place.row * DEPTH + slice * (DEPTH / SLICES)));
    u32 const filters = pinned(A_BYTES + slice * (B_BYTES / SLICES) + (place.column + place.quarter * 4) * 4);
    float sums[THREAD_M][THREAD_N] = {};
    int use = 0, fetch = (STAGES - 1) * STAGE_BYTES;  // stages of the ring
    for (int unit = begin; unit < end; ++unit) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();  // the unit is here for all, and nobody reads the one before it any more
        if (unit + STAGES - 1 < end) {
            loader.copy_pixels(a, fetch);
            loader.copy_filters(fetch);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        multiply_stage(memory + use, rows, filters, sums);
        fetch = use;
        use = use + STAGE_BYTES == STAGES * STAGE_BYTES ? 0 : use + STAGE_BYTES;
    }
    if (SPLIT * SLICES > 1) {
        reduce(a, memory, rank, first, tile_n * TILE_N, scale, bias, sums);
        return;
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        int const i = part / (THREAD_N / 4) * JOIN, j = part % (THREAD_N / 4) * 4;
        float4 window[JOIN];
#pragma unroll
        for (int c = 0; c < JOIN; ++c) window[c] = make_float4(sums[i + c][j], sums[i + c][j + 1], sums[i + c][j + 2], sums[i + c][j + 3]);
        finish(a, place, part, first, tile_n * TILE_N, scale, bias, window);
    }
}
