// Convolution on Hopper: wgmma on tiles that the copy engine (TMA) brings, with K split over a cluster where tiles are few.
//
// One warp fills a ring of STAGES; each of WARPGROUPS consumers multiplies 64 rows (pixels) by TILE_N filters. Activations
// come through a tensor map (im2col mode, or patches of 8 columns), which also pads with zeros; weights lie in memory as
// shared memory wants them, so that one plain bulk copy brings a stage's. After common.cu; `multiply` is put in between.
// Products of FP8 are exact; their sums keep about 14 bits in the matrix units.
//
// Further constants: WARPGROUPS, TILE_N, DEPTH (bytes of channels in a unit: 32, 64, 128), UNITS (units in a stage), STAGES,
// SPLIT (blocks of a cluster that share the sum), MIN_BLOCKS.

struct __align__(64) TensorMap {
    u64 words[16];
};

constexpr int CONSUMERS = WARPGROUPS * 128, THREADS = CONSUMERS + 32;
constexpr int A_BYTES = TILE_M * DEPTH, B_BYTES = TILE_N * DEPTH, STAGE_BYTES = UNITS * (A_BYTES + B_BYTES);

__device__ __forceinline__ void barrier_init(u32 barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ __forceinline__ void barrier_expect(u32 barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 barrier, int parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

__device__ __forceinline__ void copy_weights(u32 to, const char* from, int bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(bytes), "r"(barrier)
                 : "memory");
}
// TILE_M pixels from (image, row, column) on, moved by a tap's offsets.
__device__ __forceinline__ void copy_pixels(u32 to, const TensorMap* map, int channel, int column, int row, int image,
                                            int right, int down, u32 barrier) {
    if (PATCH) {
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::
                "r"(to),
            "l"(map), "r"(channel), "r"(column + right), "r"(row + down), "r"(image), "r"(barrier)
            : "memory");
    } else {
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
            "[%6], {%7, %8};" ::"r"(to),
            "l"(map), "r"(channel), "r"(column), "r"(row), "r"(image), "r"(barrier), "h"(static_cast<short>(right)),
            "h"(static_cast<short>(down))
            : "memory");
    }
}

// What wgmma wants to know of a matrix in shared memory: where, 8 rows apart how far, which swizzle.
__device__ __forceinline__ u64 descriptor(u32 address) {
    constexpr u64 LAYOUT = DEPTH == 128 ? 1 : DEPTH == 64 ? 2 : 3;
    return ((address & 0x3FFFF) >> 4) | (1ull << 16) | (static_cast<u64>(8 * DEPTH / 16) << 32) | (LAYOUT << 62);
}

struct Ring {
    u32 data, full, empty;
    __device__ __forceinline__ u32 stage(int slot) const { return data + slot * STAGE_BYTES; }
};

// The filling warp's work: units first .. last of UNITS each.
__device__ __forceinline__ void fill(const ConvArgs& a, const TensorMap* map, const Ring& ring, const Tile& tile, int tile_n,
                                     int first, int count) {
    const char* weights = a.weights + (static_cast<long long>(tile_n) * a.units + static_cast<long long>(first) * UNITS) * B_BYTES;
    int const unit = first * UNITS, tap = unit / a.chunks;
    int chunk = unit - tap * a.chunks, r = tap / a.kernel_w, s = tap - r * a.kernel_w;
    int const column = tile.left * a.stride_w - a.pad_w, row = tile.top * a.stride_h - a.pad_h;
    int const channel = first_byte(a, tile_n * TILE_N) / ELEMENT_BYTES;
    int const early = count < STAGES ? count : STAGES;
    for (int i = 0; i < early; ++i) {  // weights do not depend on the kernels before
        barrier_expect(ring.full + 8 * i, STAGE_BYTES);
        copy_weights(ring.stage(i) + UNITS * A_BYTES, weights + static_cast<long long>(i) * UNITS * B_BYTES, UNITS * B_BYTES,
                     ring.full + 8 * i);
    }
    wait_for_inputs();
    for (int i = 0; i < count; ++i) {
        int const slot = i % STAGES;
        u32 const stage = ring.stage(slot), full = ring.full + 8 * slot;
        if (i >= STAGES) {
            barrier_wait(ring.empty + 8 * slot, (i / STAGES - 1) & 1);
            barrier_expect(full, STAGE_BYTES);
            copy_weights(stage + UNITS * A_BYTES, weights + static_cast<long long>(i) * UNITS * B_BYTES, UNITS * B_BYTES, full);
        }
        for (int u = 0; u < UNITS; ++u) {
            copy_pixels(stage + u * A_BYTES, map, channel + chunk * (DEPTH / ELEMENT_BYTES), column, row, tile.image,
                        s * a.dilation_w, r * a.dilation_h, full);
            if (++chunk == a.chunks) {
                chunk = 0;
                if (++s == a.kernel_w) s = 0, ++r;
            }
        }
    }
}

__device__ __forceinline__ void keep(int& v) { asm volatile("" : "+r"(v)::"memory"); }
__device__ __forceinline__ void keep(float& v) { asm volatile("" : "+f"(v)::"memory"); }

// A consumer's work: its 64 rows of the tile, over all stages.
__device__ __forceinline__ void accumulate(const Ring& ring, int count, Sum (&sums)[TILE_N / 2]) {
    int const group = threadIdx.x / 128, lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sums[i] = 0;
    for (int i = 0; i < count; ++i) {
        int const slot = i % STAGES;
        u32 const stage = ring.stage(slot);
        barrier_wait(ring.full + 8 * slot, (i / STAGES) & 1);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int u = 0; u < UNITS; ++u) {
            u64 const rows = descriptor(stage + u * A_BYTES + group * 64 * DEPTH);
            u64 const filters = descriptor(stage + UNITS * A_BYTES + u * B_BYTES);
#pragma unroll
            for (int k = 0; k < DEPTH / 32; ++k) multiply(sums, rows + 2 * k, filters + 2 * k);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (i > 0 && lane == 0) barrier_arrive(ring.empty + 8 * ((i - 1) % STAGES));  // the stage before is free
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) keep(sums[i]);
}

// The cluster's blocks add their sums: each writes its own to shared memory, and finishes its part of the tile.
// A thread takes 4 filters of two rows at a time.
__device__ __forceinline__ void reduce(const ConvArgs& a, const Tile& tile, u32 exchange, int rank, int filter, const float* scale,
                                       const float* bias, const Sum (&sums)[TILE_N / 2]) {
    constexpr int RUN = run_of<TILE_N>(), PARTS = CONSUMERS * (TILE_N / 16) / SPLIT;
    int const self = threadIdx.x;
    asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory");  // all have read the ring
#pragma unroll
    for (int block = 0; block < TILE_N / 8; ++block) {
        const u32* v = reinterpret_cast<const u32*>(&sums[4 * block]);
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(exchange + (block * CONSUMERS + self) * 16), "r"(v[0]),
                     "r"(v[1]), "r"(v[2]), "r"(v[3])
                     : "memory");
    }
    cluster_sync();
    wait_for_inputs();
    for (int part = rank * PARTS + self; part < (rank + 1) * PARTS; part += CONSUMERS) {
        int const thread = part % CONSUMERS, pair = part / CONSUMERS;
        Sum total[8] = {};
#pragma unroll
        for (int other = 0; other < SPLIT; ++other) {
#pragma unroll
            for (int block = 0; block < 2; ++block) {
                u32 remote, v[4];
                u32 const local = exchange + ((2 * pair + block) * CONSUMERS + thread) * 16;
                asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(other));
                asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                             : "r"(remote)
                             : "memory");
#pragma unroll
                for (int i = 0; i < 4; ++i) total[4 * block + i] += reinterpret_cast<Sum&>(v[i]);
            }
        }
        int const row = thread / 128 * 64 + thread / 32 % 4 * 16 + thread % 32 / 4;
        int const at = 4 * pair / RUN * 4 * RUN + thread % 4 * RUN + 4 * pair % RUN;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int const pixel = tile.pixel(a, row + 8 * half);
            float v[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float const sum = static_cast<float>(total[4 * (i / 2) + 2 * half + i % 2]);
                v[i] = activate_sum(a, fmaf(sum, scale[at + i], bias[at + i]), bias + at + i);
            }
            if (pixel >= 0) write_run(a, pixel, filter + at, bias + at, v);
        }
    }
    cluster_sync();  // nobody leaves while others read its sums
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    conv_hopper(const __grid_constant__ TensorMap map, const __grid_constant__ ConvArgs a) {
    extern __shared__ char memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES];
    __shared__ __align__(16) float scale[TILE_N], bias[OFFSETS];
    u32 const bars = shared_address(barriers);
    Ring const ring = {(shared_address(memory) + 1023) & ~1023u, bars, bars + 8 * STAGES};
    int const rank = blockIdx.x % SPLIT, tile_index = blockIdx.x / SPLIT, tile_n = tile_index % a.tiles_n;
    Tile const tile(a, tile_index / a.tiles_n);
    int const steps = a.units / UNITS, first = steps * rank / SPLIT, count = steps * (rank + 1) / SPLIT - first;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(ring.full + 8 * i, 1);
            barrier_init(ring.empty + 8 * i, WARPGROUPS * 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    load_numbers<THREADS>(a, tile_n, scale, bias);
    __syncthreads();
    launch_dependents();
    if (threadIdx.x >= CONSUMERS) {
        if (threadIdx.x == CONSUMERS) fill(a, &map, ring, tile, tile_n, first, count);
        __syncwarp();
        if (SPLIT > 1) {
            cluster_sync();
            cluster_sync();
        }
        return;
    }
    Sum sums[TILE_N / 2];
    accumulate(ring, count, sums);
    if (SPLIT > 1) {
        reduce(a, tile, ring.data, rank, tile_n * TILE_N, scale, bias, sums);
    } else {
        int const warp = threadIdx.x / 32, row = warp / 4 * 64 + warp % 4 * 16 + threadIdx.x % 32 / 4;
        wait_for_inputs();
        write_rows<TILE_N>(a, tile, row, tile_n * TILE_N, scale, bias, sums);
    }
}
