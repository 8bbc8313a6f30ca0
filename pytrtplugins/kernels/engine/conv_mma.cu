// Convolution on any GPU from compute capability 8.0 on: mma.sync on tiles that cp.async brings, in a ring of stages.
//
// WARPS_M * WARPS_N warps multiply TILE_M pixels by TILE_N filters. Padding is a copy of nothing, which writes zeros. After
// common.cu. Further constants: TILE_N, WARPS_M, WARPS_N, DEPTH (bytes of channels in a unit: 32, 64, 128), STAGES,
// DEPENDENT (whether launches overlap, from capability 9.0 on). FP8 begins with capability 8.9.

constexpr int THREADS = WARPS_M * WARPS_N * 32, WARP_M = TILE_M / WARPS_M, WARP_N = TILE_N / WARPS_N;
constexpr int A_BYTES = TILE_M * DEPTH, STAGE_BYTES = A_BYTES + TILE_N * DEPTH, PIECES = DEPTH / 16;
constexpr int ROW_STEP = THREADS / PIECES, ROWS = TILE_M / ROW_STEP, FILTER_PIECES = TILE_N * PIECES / THREADS;
static_assert(TILE_M % ROW_STEP == 0 && TILE_N * PIECES % THREADS == 0, "threads share a stage evenly");

__device__ __forceinline__ void load_matrices(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
__device__ __forceinline__ void multiply(float* d, const u32 (&a)[4], u32 b0, u32 b1) {
    if (ELEMENT == FP8) {
        asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
        return;
    }
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply(int* d, const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The rows that a thread copies, and where it stands: units come in order.
struct Loader {
    int top[ROWS], left[ROWS];  // the pixel under the filter's first tap; far outside for rows behind the last pixel
    const char* image[ROWS];
    int first, chunk, r, s;  // `first`: the first byte of a pixel that is read

    __device__ __forceinline__ Loader(const ConvArgs& a, const Tile& tile, int filter)
        : first(first_byte(a, filter)), chunk(0), r(0), s(0) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            int const pixel = tile.pixel(a, threadIdx.x / PIECES + i * ROW_STEP), inside = pixel < 0 ? 0 : pixel;
            int const n = inside / (a.oh * a.ow), rest = inside - n * (a.oh * a.ow);
            top[i] = pixel < 0 ? -(1 << 20) : rest / a.ow * a.stride_h - a.pad_h;
            left[i] = rest % a.ow * a.stride_w - a.pad_w;
            image[i] = a.x + static_cast<long long>(n) * a.h * a.w * a.x_pitch;
        }
    }

    __device__ __forceinline__ void pixels(const ConvArgs& a, u32 stage) {
        int const piece = threadIdx.x % PIECES, channel = first + chunk * DEPTH + piece * 16;
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            int const y = top[i] + r * a.dilation_h, x = left[i] + s * a.dilation_w;
            bool const inside = y >= 0 && y < a.h && x >= 0 && x < a.w && channel < a.channel_bytes;
            const char* from = inside ? image[i] + static_cast<long long>(y * a.w + x) * a.x_pitch + channel : a.x;
            copy_piece(stage + swizzle((threadIdx.x / PIECES + i * ROW_STEP) * DEPTH + piece * 16), from, inside);
        }
        if (++chunk == a.chunks) {
            chunk = 0;
            if (++s == a.kernel_w) s = 0, ++r;
        }
    }
};

// Weights lie in memory as shared memory wants them.
__device__ __forceinline__ void copy_filters(const ConvArgs& a, u32 stage, int tile_n, int unit) {
    const char* from = a.weights + (static_cast<long long>(tile_n) * a.units + unit) * (TILE_N * DEPTH);
#pragma unroll
    for (int i = 0; i < FILTER_PIECES; ++i) {
        int const at = (i * THREADS + threadIdx.x) * 16;
        copy_piece(stage + A_BYTES + at, from + at, true);
    }
}

__device__ __forceinline__ void multiply_stage(u32 stage, int warp_m, int warp_n, Sum (&sums)[WARP_M / 16][WARP_N / 2]) {
    int const lane = threadIdx.x & 31;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 32) {
        u32 rows[WARP_M / 16][4], filters[WARP_N / 16][4];
#pragma unroll
        for (int m = 0; m < WARP_M / 16; ++m) {
            load_matrices(rows[m], stage + swizzle((warp_m * WARP_M + m * 16 + lane % 16) * DEPTH + k + lane / 16 * 16));
        }
#pragma unroll
        for (int n = 0; n < WARP_N / 16; ++n) {
            int const filter = warp_n * WARP_N + n * 16 + lane / 16 * 8 + lane % 8;
            load_matrices(filters[n], stage + A_BYTES + swizzle(filter * DEPTH + k + lane / 8 % 2 * 16));
        }
#pragma unroll
        for (int m = 0; m < WARP_M / 16; ++m) {
#pragma unroll
            for (int n = 0; n < WARP_N / 8; ++n) {
                multiply(&sums[m][4 * n], rows[m], filters[n / 2][n % 2 * 2], filters[n / 2][n % 2 * 2 + 1]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) conv_mma(const __grid_constant__ ConvArgs a) {
    extern __shared__ char memory[];
    __shared__ __align__(16) float scale[TILE_N], bias[OFFSETS];
    u32 const ring = (shared_address(memory) + 1023) & ~1023u;
    int const tile_n = blockIdx.x % a.tiles_n, warp = threadIdx.x / 32, warp_m = warp / WARPS_N, warp_n = warp % WARPS_N;
    Tile const tile(a, blockIdx.x / a.tiles_n);
    load_numbers<THREADS>(a, tile_n, scale, bias);
#if DEPENDENT
    launch_dependents();
    wait_for_inputs();
#endif
    Loader loader(a, tile, tile_n * TILE_N);
    Sum sums[WARP_M / 16][WARP_N / 2];
#pragma unroll
    for (int m = 0; m < WARP_M / 16; ++m) {
#pragma unroll
        for (int i = 0; i < WARP_N / 2; ++i) sums[m][i] = 0;
    }
    auto fetch = [&](int unit) {
        if (unit < a.units) {
            u32 const stage = ring + unit % STAGES * STAGE_BYTES;
            loader.pixels(a, stage);
            copy_filters(a, stage, tile_n, unit);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int unit = 0; unit < STAGES - 1; ++unit) fetch(unit);
    for (int unit = 0; unit < a.units; ++unit) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();  // the unit is here for all, and nobody reads the one before it any more
        fetch(unit + STAGES - 1);
        multiply_stage(ring + unit % STAGES * STAGE_BYTES, warp_m, warp_n, sums);
    }
#pragma unroll
    for (int m = 0; m < WARP_M / 16; ++m) {
        write_rows<WARP_N>(a, tile, warp_m * WARP_M + m * 16 + threadIdx.x % 32 / 4, tile_n * TILE_N + warp_n * WARP_N,
                           scale + warp_n * WARP_N, bias + warp_n * WARP_N, sums[m]);
    }
}
