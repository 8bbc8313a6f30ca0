// Convolution on Hopper for filters of several taps and stride 1: pixels are fetched once for all taps.
//
// A tile's pixels and those around them, its halo, lie in shared memory for a run of DEPTH bytes of channels; each tap multiplies
// the rows of this halo that it needs, which begin so many rows later. wgmma swizzles by addresses, so a matrix may begin at any
// row. Weights come tap by tap in a ring of STAGES; HALOS halos are in memory, so that the next one comes while one is used.
// Tiles are patches of 8 columns, or successive pixels of lines that share their zeros: the zeros behind a line are those before
// the next one, and a line's last columns, which are no pixels of y, are computed and left out. After common.cu, `multiply`
// and hopper.cu.
//
// With LOOP a block computes one tile of pixels after the other, for the same filters: the next tile's pixels come while one is
// finished. With KEEP, which is a LOOP whose ring has room for all taps, weights come once.
//
// Further constants: WARPGROUPS, TILE_N, DEPTH, HALOS, UNITS (taps in a stage: one, or those of a line of the filter), STAGES, SPLIT,
// LOOP, KEEP, MIN_BLOCKS.

constexpr int B_BYTES = TILE_N * DEPTH, STAGE_BYTES = UNITS * B_BYTES;

struct Rings {
    u32 halos, weights;  // data
    u32 halo_full, halo_empty, full, empty;
    int halo_bytes;      // from one halo to the next
};

// A block's tiles: one, or with LOOP every so many.
struct Tiles {
    int first, step, end;
    __device__ __forceinline__ Tiles(const ConvArgs& a) {
        first = blockIdx.x / SPLIT / a.tiles_n;
        step = LOOP ? gridDim.x / a.tiles_n : 1;
        end = LOOP ? a.tiles_m : first + 1;
    }
};

// The filling warp's work: for each tile `count` stages from tap `first` on, counted over all runs of channels.
__device__ __forceinline__ void fill(const ConvArgs& a, const TensorMap* map, const Rings& rings, const Tiles& tiles, int tile_n,
                                     int first, int count) {
    const char* weights = a.weights + (static_cast<long long>(tile_n) * a.units + first) * B_BYTES;
    int const taps = a.kernel_h * a.kernel_w, channel = first_byte(a, tile_n * TILE_N) / ELEMENT_BYTES;
    int const early = min(count, early_stages(STAGE_BYTES));
    prefetch(map);
    for (int i = 0; i < early; ++i) {
        barrier_expect(rings.full + 8 * i, STAGE_BYTES);
        copy_weights(rings.weights + i * STAGE_BYTES, weights + static_cast<long long>(i) * STAGE_BYTES, STAGE_BYTES, rings.full + 8 * i);
    }
    wait_for_inputs();
    int halos = 0, stages = 0;
    Turn<HALOS> halo_turn;
    Turn<STAGES> turn;
    for (int index = tiles.first; index < tiles.end; index += tiles.step) {
        Tile const tile(a, index);
        int const column = (PATCH ? tile.left : 0) - a.pad_w, row = tile.top - a.pad_h;
        int chunk = first / taps, tap = first - chunk * taps;
        for (int i = 0; i < count; ++i) {
            if (i == 0 || tap == 0) {
                u32 const full = rings.halo_full + 8 * halo_turn.slot;
                if (halos++ >= HALOS) barrier_wait(rings.halo_empty + 8 * halo_turn.slot, halo_turn.parity ^ 1);
                barrier_expect(full, a.halo_lines * a.halo_pitch * DEPTH);
                copy_box(rings.halos + halo_turn.slot * rings.halo_bytes, map, channel + chunk * (DEPTH / ELEMENT_BYTES), column, row,
                         tile.image, full);
                ++chunk;
                halo_turn.advance();
            }
            if ((tap += UNITS) == taps) tap = 0;
            if (KEEP && index > tiles.first) continue;
            if (stages >= early) {
                u32 const full = rings.full + 8 * turn.slot;
                if (stages >= STAGES) barrier_wait(rings.empty + 8 * turn.slot, turn.parity ^ 1);
                barrier_expect(full, STAGE_BYTES);
                copy_weights(rings.weights + turn.slot * STAGE_BYTES, weights + static_cast<long long>(i) * STAGE_BYTES, STAGE_BYTES,
                             full);
            }
            ++stages;
            turn.advance();
        }
    }
}

// A consumer's work: its 64 rows of a tile, over all taps.
__device__ __forceinline__ void accumulate(const ConvArgs& a, const Rings& rings, const Tile& tile, int first, int count,
                                           Turn<HALOS>& halo_turn, Turn<STAGES>& turn, Sum (&sums)[TILE_N / 2]) {
    int const group = threadIdx.x / 128, lane = threadIdx.x & 31, pitch = a.halo_pitch;
    int const begin = PATCH ? group * 8 * pitch : group * 64 + tile.left, width = a.kernel_w, taps = a.kernel_h * width;
    int tap = first % taps, s = tap % width, offset = tap / width * pitch + s;
    u64 const halos = descriptor(rings.halos + begin * DEPTH, (PATCH ? pitch : 8) * DEPTH), filters = descriptor(rings.weights);
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sums[i] = 0;
    Totals totals;
    u32 before = 0, halo_before = 0;
    for (int i = 0; i < count; ++i) {
        bool const next = i == 0 || tap == 0;
        if (next) barrier_wait(rings.halo_full + 8 * halo_turn.slot, halo_turn.parity);
        barrier_wait(rings.full + 8 * turn.slot, turn.parity);
        u32 const from = (halo_turn.slot * rings.halo_bytes + offset * DEPTH) / 16, stage = turn.slot * (STAGE_BYTES / 16);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int u = 0; u < UNITS; ++u) {
#pragma unroll
            for (int k = 0; k < DEPTH / 32; ++k) {
                multiply(sums, halos + (from + u * (DEPTH / 16) + 2 * k), filters + (stage + u * (B_BYTES / 16) + 2 * k));
            }
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (i > 0 && lane == 0) {  // the stage before is done
            if (!KEEP) barrier_arrive(before);
            if (next) barrier_arrive(halo_before);
        }
        before = rings.empty + 8 * turn.slot;
        halo_before = rings.halo_empty + 8 * halo_turn.slot;
        turn.advance();
        offset += UNITS;
        if ((s += UNITS) == width) s = 0, offset += pitch - width;
        if ((tap += UNITS) == taps) tap = 0, offset = 0, halo_turn.advance();
        totals.take<UNITS * DEPTH>(i, count, sums);
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (LOOP && lane == 0) {
        if (!KEEP) barrier_arrive(before);
        barrier_arrive(halo_before);
    }
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) keep(sums[i]);
    totals.give(sums);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    conv_halo(const __grid_constant__ TensorMap map, const __grid_constant__ ConvArgs a) {
    extern __shared__ char memory[];
    __shared__ __align__(8) u64 barriers[2 * (HALOS + STAGES) + 1];
    __shared__ __align__(16) float scale[TILE_N], bias[OFFSETS];
    u32 const bars = once(shared_address(barriers)), data = once((shared_address(memory) + 1023) & ~1023u);
    int const halo_bytes = (a.halo_lines * a.halo_pitch * DEPTH + 1023) & ~1023;
    u32 const weights = data + HALOS * halo_bytes, stage_bars = bars + 16 * HALOS;
    Rings const rings = {data, weights, bars, bars + 8 * HALOS, stage_bars, stage_bars + 8 * STAGES, halo_bytes};
    int const rank = blockIdx.x % SPLIT, tile_n = blockIdx.x / SPLIT % a.tiles_n;
    Exchange const exchange = {weights + STAGES * STAGE_BYTES, stage_bars + 16 * STAGES, rank};
    Tiles const tiles(a);
    int const steps = a.units / UNITS, first = steps * rank / SPLIT, count = steps * (rank + 1) / SPLIT - first;
    launch_dependents();
    if (threadIdx.x >= CONSUMERS) {
        if (threadIdx.x == CONSUMERS) {
            for (int i = 0; i < HALOS; ++i) {
                barrier_init(rings.halo_full + 8 * i, 1);
                barrier_init(rings.halo_empty + 8 * i, WARPGROUPS * 4);
            }
            for (int i = 0; i < STAGES; ++i) {
                barrier_init(rings.full + 8 * i, 1);
                barrier_init(rings.empty + 8 * i, WARPGROUPS * 4);
            }
            if (SPLIT > 1) exchange.init();
            publish_barriers();
        }
        __syncwarp();
        barriers_are_there();
        cluster_arrive();
        if (threadIdx.x == CONSUMERS) fill(a, &map, rings, tiles, tile_n, first * UNITS, count);
        __syncwarp();
        cluster_wait();
        return;
    }
    cluster_arrive();
    load_numbers<CONSUMERS>(a, tile_n, scale, bias);
    wait_for_barriers();
    Turn<HALOS> halo_turn;
    Turn<STAGES> turn;
    for (int index = tiles.first; index < tiles.end; index += tiles.step) {
        Tile const tile(a, index);
        Sum sums[TILE_N / 2];
        accumulate(a, rings, tile, first * UNITS, count, halo_turn, turn, sums);
        finish(a, tile, exchange, tile_n, scale, bias, sums);
        if (KEEP) turn = {};
    }
}
