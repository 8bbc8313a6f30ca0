// Convolution on Hopper: wgmma on tiles that the copy engine (TMA) brings, with K split over a cluster where tiles are few.
//
// One warp fills a ring of STAGES; each of WARPGROUPS consumers multiplies 64 rows (pixels) by TILE_N filters. Activations
// come through a tensor map (im2col mode, or patches of 8 columns), which also pads with zeros; weights lie in memory as
// shared memory wants them, so that one plain bulk copy brings a stage's. After common.cu, `multiply` and hopper.cu.
//
// Further constants: WARPGROUPS, TILE_N, DEPTH (bytes of channels in a unit: 32, 64, 128), UNITS (units in a stage), STAGES,
// SPLIT (blocks of a cluster that share the sum), MIN_BLOCKS.

constexpr int A_BYTES = TILE_M * DEPTH, B_BYTES = TILE_N * DEPTH, STAGE_BYTES = UNITS * (A_BYTES + B_BYTES);

// TILE_M pixels from (image, row, column) on, moved by a tap's offsets.
__device__ __forceinline__ void copy_pixels(u32 to, const TensorMap* map, int channel, int column, int row, int image,
                                            int right, int down, u32 barrier) {
    if (PATCH) {
        copy_box(to, map, channel, column + right, row + down, image, barrier);
    } else {
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
            "[%6], {%7, %8};" ::"r"(to),
            "l"(map), "r"(channel), "r"(column), "r"(row), "r"(image), "r"(barrier), "h"(static_cast<short>(right)),
            "h"(static_cast<short>(down))
            : "memory");
    }
}

struct Ring {
    u32 data, full, empty;
    __device__ __forceinline__ u32 stage(int slot) const { return data + slot * STAGE_BYTES; }
};

// The filling warp's work: units first .. last of UNITS each.
__device__ __forceinline__ void fill(const ConvArgs& a, const TensorMap* map, const Ring& ring, const Tile& tile, int tile_n,
                                     int first, int count) {
    constexpr int WEIGHTS = UNITS * B_BYTES;
    const char* weights = a.weights + (static_cast<long long>(tile_n) * a.units + static_cast<long long>(first) * UNITS) * B_BYTES;
    int const unit = first * UNITS, tap = unit / a.chunks;
    int chunk = unit - tap * a.chunks, r = tap / a.kernel_w, s = tap - r * a.kernel_w;
    int const column = tile.left * a.stride_w - a.pad_w, row = tile.top * a.stride_h - a.pad_h;
    int const channel = first_byte(a, tile_n * TILE_N) / ELEMENT_BYTES;
    int const early = min(count, early_stages(WEIGHTS));
    prefetch(map);
    for (int i = 0; i < early; ++i) {
        barrier_expect(ring.full + 8 * i, STAGE_BYTES);
        copy_weights(ring.stage(i) + UNITS * A_BYTES, weights + static_cast<long long>(i) * WEIGHTS, WEIGHTS, ring.full + 8 * i);
    }
    wait_for_inputs();
    Turn<STAGES> turn;
    for (int i = 0; i < count; ++i) {
        u32 const stage = ring.stage(turn.slot), full = ring.full + 8 * turn.slot;
        if (i >= early) {
            if (i >= STAGES) barrier_wait(ring.empty + 8 * turn.slot, turn.parity ^ 1);
            barrier_expect(full, STAGE_BYTES);
            copy_weights(stage + UNITS * A_BYTES, weights + static_cast<long long>(i) * WEIGHTS, WEIGHTS, full);
        }
        for (int u = 0; u < UNITS; ++u) {
            copy_pixels(stage + u * A_BYTES, map, channel + chunk * (DEPTH / ELEMENT_BYTES), column, row, tile.image,
                        s * a.dilation_w, r * a.dilation_h, full);
            if (++chunk == a.chunks) {
                chunk = 0;
                if (++s == a.kernel_w) s = 0, ++r;
            }
        }
        turn.advance();
    }
}

// A consumer's work: its 64 rows of the tile, over all stages.
__device__ __forceinline__ void accumulate(const Ring& ring, int count, Sum (&sums)[TILE_N / 2]) {
    int const group = threadIdx.x / 128, lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sums[i] = 0;
    u64 const rows = descriptor(ring.data + group * 64 * DEPTH), filters = descriptor(ring.data + UNITS * A_BYTES);
    Totals totals;
    Turn<STAGES> turn;
    u32 before = 0;
    for (int i = 0; i < count; ++i) {
        barrier_wait(ring.full + 8 * turn.slot, turn.parity);
        u32 const stage = turn.slot * (STAGE_BYTES / 16);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int u = 0; u < UNITS; ++u) {
#pragma unroll
            for (int k = 0; k < DEPTH / 32; ++k) {
                multiply(sums, rows + (stage + u * (A_BYTES / 16) + 2 * k), filters + (stage + u * (B_BYTES / 16) + 2 * k));
            }
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (i > 0 && lane == 0) barrier_arrive(before);  // the stage before is free
        before = ring.empty + 8 * turn.slot;
        turn.advance();
        totals.take<UNITS * DEPTH>(i, count, sums);
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) keep(sums[i]);
    totals.give(sums);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    conv_hopper(const __grid_constant__ TensorMap map, const __grid_constant__ ConvArgs a) {
    extern __shared__ char memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES + 1];
    __shared__ __align__(16) float scale[TILE_N], bias[OFFSETS];
    u32 const bars = once(shared_address(barriers)), data = once((shared_address(memory) + 1023) & ~1023u);
    Ring const ring = {data, bars, bars + 8 * STAGES};
    int const rank = blockIdx.x % SPLIT, tile_index = blockIdx.x / SPLIT, tile_n = tile_index % a.tiles_n;
    Exchange const exchange = {data + STAGES * STAGE_BYTES, bars + 16 * STAGES, rank};
    Tile const tile(a, tile_index / a.tiles_n);
    int const steps = a.units / UNITS, first = steps * rank / SPLIT, count = steps * (rank + 1) / SPLIT - first;
    launch_dependents();
    if (threadIdx.x >= CONSUMERS) {
        if (threadIdx.x == CONSUMERS) {
            for (int i = 0; i < STAGES; ++i) {
                barrier_init(ring.full + 8 * i, 1);
                barrier_init(ring.empty + 8 * i, WARPGROUPS * 4);
            }
            if (SPLIT > 1) exchange.init();
            publish_barriers();
        }
        __syncwarp();
        barriers_are_there();
        cluster_arrive();
        if (threadIdx.x == CONSUMERS) fill(a, &map, ring, tile, tile_n, first, count);
        __syncwarp();
        cluster_wait();
        return;
    }
    cluster_arrive();
    load_numbers<CONSUMERS>(a, tile_n, scale, bias);
    wait_for_barriers();
    Sum sums[TILE_N / 2];
    accumulate(ring, count, sums);
    finish(a, tile, exchange, tile_n, scale, bias, sums);
}
