// What the convolution kernels on Hopper share: barriers, copies by the copy engine (TMA), what wgmma is told, and the way to add
// the sums of a cluster. After common.cu and `multiply`.
//
// The SPLIT blocks of a cluster share the sum of a tile, each a part of K. One warp, which fills shared memory, begins at once; the
// others wait for the numbers behind the sums, and then for what it brings. Weights do not depend on the kernels before, so some
// are asked for before these have ended; the others come after the first pixels, which would wait for all of them otherwise.

struct __align__(64) TensorMap {
    u64 words[16];
};

constexpr int CONSUMERS = WARPGROUPS * 128, THREADS = CONSUMERS + 32;
constexpr int EARLY_BYTES = 48 * 1024;  // of weights that are asked for first
__device__ constexpr int early_stages(int bytes) { return EARLY_BYTES / bytes < 1 ? 1 : EARLY_BYTES / bytes < STAGES ? EARLY_BYTES / bytes : STAGES; }

// An address that the compiler does not work out again at each use.
__device__ __forceinline__ u32 once(u32 address) {
    asm volatile("" : "+r"(address));
    return address;
}

// A place in a ring of COUNT, and how often it was passed, as the parity that a barrier there is waited for.
template <int COUNT> struct Turn {
    int slot = 0, parity = 0;
    __device__ __forceinline__ void advance() {
        if (++slot == COUNT) slot = 0, parity ^= 1;
    }
};

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

// Weights as they lie in memory.
__device__ __forceinline__ void copy_weights(u32 to, const char* from, int bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(bytes), "r"(barrier)
                 : "memory");
}

// A box of pixels, of the map's size, from (image, row, column, channel) on.
__device__ __forceinline__ void copy_box(u32 to, const TensorMap* map, int channel, int column, int row, int image, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
        "l"(map), "r"(channel), "r"(column), "r"(row), "r"(image), "r"(barrier)
        : "memory");
}

// The copy engine reads the map now, and need not when the first pixels are waited for.
__device__ __forceinline__ void prefetch(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// What wgmma wants to know of a matrix in shared memory: where, 8 rows apart how far, which swizzle.
__device__ __forceinline__ u64 descriptor(u32 address, int stride = 8 * DEPTH) {
    constexpr u64 LAYOUT = DEPTH == 128 ? 1 : DEPTH == 64 ? 2 : 3;
    return ((address & 0x3FFFF) >> 4) | (1ull << 16) | (static_cast<u64>(stride / 16) << 32) | (LAYOUT << 62);
}

// The filling thread has made barriers, and uses them without waiting for the others of the block.
__device__ __forceinline__ void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}
// The filling warp says that there are barriers; the others wait for that, and for each other.
__device__ __forceinline__ void barriers_are_there() { asm volatile("bar.arrive 2, %0;" ::"n"(THREADS) : "memory"); }
__device__ __forceinline__ void wait_for_barriers() { asm volatile("bar.sync 2, %0;" ::"n"(THREADS) : "memory"); }

__device__ __forceinline__ void keep(int& v) { asm volatile("" : "+r"(v)::"memory"); }
__device__ __forceinline__ void keep(float& v) { asm volatile("" : "+f"(v)::"memory"); }

// Sums of FP8, of which the matrix units keep about 14 bits: where they are long, they are added to float32 totals after TOTALS
// products, and begin anew; TOTALS is 0 where they are not.
struct Totals {
    float values[TOTALS ? TILE_N / 2 : 1];

    __device__ __forceinline__ Totals() {
#pragma unroll
        for (float& value : values) value = 0.0f;
    }
    // Behind stage `i` of `count`, each of BYTES bytes of channels.
    template <int BYTES> __device__ __forceinline__ void take(int i, int count, Sum (&sums)[TILE_N / 2]) {
        constexpr int PERIOD = TOTALS / BYTES > 1 ? TOTALS / BYTES : 1;
        if (!TOTALS || (i + 1) % PERIOD || i + 1 == count) return;
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int j = 0; j < TILE_N / 2; ++j) {
            keep(sums[j]);
            values[TOTALS ? j : 0] += static_cast<float>(sums[j]);
            sums[j] = 0;
        }
    }
    __device__ __forceinline__ void give(Sum (&sums)[TILE_N / 2]) const {
#pragma unroll
        for (int j = 0; TOTALS && j < TILE_N / 2; ++j) sums[j] += values[j];
    }
};

// Sums of a tile that are to be added: of ITEMS items, 8 filters of two rows each, a block of the cluster finishes every SPLITth part.
constexpr int ITEMS = CONSUMERS * (TILE_N / 16), ROOM = (ITEMS + SPLIT - 1) / SPLIT;
__device__ constexpr int first_item(int rank) { return ITEMS * rank / SPLIT; }

// Where a block receives the sums of its items: [block that sends them][half][item][4], and the barrier that counts them.
struct Exchange {
    u32 data, full;
    int rank;
    __device__ __forceinline__ u32 place(int sender, int half, int item) const {
        return data + ((sender * 2 + half) * ROOM + item) * 16;
    }
    __device__ __forceinline__ void init() const {
        barrier_init(full, 1);
        barrier_expect(full, SPLIT * 32 * (first_item(rank + 1) - first_item(rank)));
    }
};

// This block's barriers are ready: said to the cluster at the beginning, and waited for before anything is sent.
__device__ __forceinline__ void cluster_arrive() {
    if (SPLIT > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    if (SPLIT > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Each thread sends its sums to the blocks that finish them, whose barriers count the bytes.
__device__ __forceinline__ void send(const Exchange& exchange, const Sum (&sums)[TILE_N / 2]) {
#pragma unroll
    for (int pair = 0; pair < TILE_N / 16; ++pair) {
        int const item = pair * CONSUMERS + threadIdx.x, owner = ((item + 1) * SPLIT - 1) / ITEMS;
        u32 barrier;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(exchange.full), "r"(owner));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            u32 to;
            u32 const local = exchange.place(exchange.rank, half, item - first_item(owner));
            asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(local), "r"(owner));
            const u32* v = reinterpret_cast<const u32*>(&sums[8 * pair + 4 * half]);
            asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                         "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(barrier)
                         : "memory");
        }
    }
}

// A block adds what it has received, in the order of the blocks, and finishes its part of the tile.
__device__ __forceinline__ void finish_items(const ConvArgs& a, const Tile& tile, const Exchange& exchange, int filter,
                                             const float* scale, const float* bias) {
    constexpr int RUN = run_of<TILE_N>();
    int const first = first_item(exchange.rank), count = first_item(exchange.rank + 1) - first;
    barrier_wait(exchange.full, 0);
    for (int i = threadIdx.x; i < count; i += CONSUMERS) {
        int const thread = (first + i) % CONSUMERS, pair = (first + i) / CONSUMERS;
        Sum total[8] = {};
#pragma unroll
        for (int sender = 0; sender < SPLIT; ++sender) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                u32 v[4];
                asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                             : "r"(exchange.place(sender, half, i))
                             : "memory");
#pragma unroll
                for (int j = 0; j < 4; ++j) total[4 * half + j] += reinterpret_cast<Sum&>(v[j]);
            }
        }
        int const row = thread / 128 * 64 + thread / 32 % 4 * 16 + thread % 32 / 4;
        int const at = 4 * pair / RUN * 4 * RUN + thread % 4 * RUN + 4 * pair % RUN;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int const pixel = tile.pixel(a, row + 8 * half);
            float v[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float const sum = static_cast<float>(total[4 * (j / 2) + 2 * half + j % 2]);
                v[j] = activate_sum(a, fmaf(sum, scale[at + j], bias[at + j]), bias + at + j);
            }
            if (pixel >= 0) write_run(a, pixel, filter + at, bias + at, v);
        }
    }
}

// What follows the sums of a tile, in the threads that have them.
__device__ __forceinline__ void finish(const ConvArgs& a, const Tile& tile, const Exchange& exchange, int tile_n,
                                       const float* scale, const float* bias, const Sum (&sums)[TILE_N / 2]) {
    if (SPLIT > 1) {
        cluster_wait();
        send(exchange, sums);
        wait_for_inputs();
        finish_items(a, tile, exchange, tile_n * TILE_N, scale, bias);
        return;
    }
    int const warp = threadIdx.x / 32, row = warp / 4 * 64 + warp % 4 * 16 + threadIdx.x % 32 / 4;
    wait_for_inputs();
    write_rows<TILE_N>(a, tile, row, tile_n * TILE_N, scale, bias, sums);
}
