// Recurrent layers in float16 on matrix units, from compute capability 8.0 on, behind recurrent.cu: R and h are float16. The rows of R of
// a block, [gate][unit], are tiles of 16, and the columns too. A warp has ROW_TILES by COLUMN_TILES of them; COLUMN_WARPS warps share
// the sum over h. Their parts are added up in shared memory. 8 sequences are computed at a time.
typedef unsigned int u32;

constexpr int WARPS = THREADS / 32, TILE_ROWS = WARPS / COLUMN_WARPS * ROW_TILES * 16, PART_PITCH = ROWS + 1;
constexpr int PAIRS_EACH = (UNITS * GROUP_ROWS + THREADS - 1) / THREADS;
constexpr bool AHEAD = PAIRS_EACH <= 4;  // the inputs of the next step are loaded before the exchange
constexpr int H_AT = MORE_AT + COLUMN_WARPS * TILE_ROWS * PART_PITCH, WEIGHTS_AT = (H_AT + UNITS * ROWS + 3) / 4 * 4;
static_assert(ROWS_EACH == 8 && OWN_PIECES == ROW_TILES * COLUMN_TILES && TILE_ROWS >= GATES * UNITS && UNITS % 2 == 0, "each row has a warp");
static_assert(SHARED_FLOATS >= WEIGHTS_AT + (PLACE == IN_SHARED ? OWN_PIECES * THREADS * 4 : 0), "all has room");

// 16 rows by 8 columns of sums, plus products of 16 values each.
#ifdef __CUDACC__
__device__ __forceinline__ void multiply(float (&d)[4], uint4 a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
__device__ __forceinline__ u32 exchanged_bits(u32 bits) { return __shfl_xor_sync(0xffffffffu, bits, 1); }
#else
inline u32 exchanged_bits(u32 bits) {
    __shared__ u32 values[BLOCKS * THREADS];
    values[threadIdx.x] = bits;
    __syncthreads();
    u32 const found = values[threadIdx.x ^ 1];
    __syncthreads();
    return found;
}

inline void multiply(float (&d)[4], uint4 a, u32 b0, u32 b1) {
    __shared__ u32 left[BLOCKS * THREADS][4], right[BLOCKS * THREADS][2];
    u32 const words[4] = {a.x, a.y, a.z, a.w};
    for (int i = 0; i < 4; ++i) left[threadIdx.x][i] = words[i];
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

// Products of all rows of the block with h, [sequence][PITCH] → parts, [warp of columns][row][sequence].
__device__ __forceinline__ void multiply_all(const uint4 (&held)[HELD], const uint4* from, const __half* h, float* parts, int warp, int lane) {
    int const columns = warp % COLUMN_WARPS, rows = warp / COLUMN_WARPS;
    for (int first = 0; first < ROWS; first += 8) {
        float sums[ROW_TILES][4] = {};
        const u32* const states = reinterpret_cast<const u32*>(h + (first + lane / 4) * PITCH + columns * COLUMN_TILES * 16) + lane % 4;
#pragma unroll
        for (int column = 0; column < COLUMN_TILES; ++column) {
            u32 const low = states[column * 8], high = states[column * 8 + 4];
#pragma unroll
            for (int row = 0; row < ROW_TILES; ++row) {
                int const index = row * COLUMN_TILES + column;
                multiply(sums[row], PLACE == IN_REGISTERS ? held[PLACE == IN_REGISTERS ? index : 0] : from[index * 32], low, high);
            }
        }
#pragma unroll
        for (int row = 0; row < ROW_TILES; ++row) {
            float* const to = parts + (columns * TILE_ROWS + (rows * ROW_TILES + row) * 16 + lane / 4) * PART_PITCH + first + lane % 4 * 2;
            to[0] = sums[row][0], to[1] = sums[row][1];
            to[8 * PART_PITCH] = sums[row][2], to[8 * PART_PITCH + 1] = sums[row][3];
        }
    }
    __syncthreads();
}

// Arguments as those of recurrent_lanes.cu.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
recurrent(const void* x, const void* weights, const float* added, const int* lengths, const void* first_h, const void* first_c,
          void* y, void* last_h, void* last_c, float* exchange) {
    int const self = thread_of_block(), lane = self % 32, warp = self / 32, number = number_of_group();
    Part const part = {static_cast<const T*>(x), added, lengths, static_cast<T*>(y), static_cast<T*>(last_h), static_cast<T*>(last_c),
                       number % GROUPS * GROUP_ROWS, number / GROUPS, block_of_group()};
    float* const own = memory_of(part.block);
    float* const parts = own + MORE_AT;

    uint4 held[HELD];
    const uint4* from = static_cast<const uint4*>(weights) + (static_cast<long long>(part.direction) * BLOCKS + part.block) * OWN_PIECES * THREADS;
    if (PLACE == IN_SHARED) {
        uint4* const copy = reinterpret_cast<uint4*>(own + WEIGHTS_AT);
        for (int index = self; index < OWN_PIECES * THREADS; index += THREADS) copy[index] = from[index];
        from = copy;
    }
    from += warp * OWN_PIECES * 32 + lane;
    if (PLACE == IN_REGISTERS) {
#pragma unroll
        for (int index = 0; index < HELD; ++index) held[index] = from[index * 32];
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");  // weights are constants; all else is there from here on
#endif
    Group group(exchange, number, part.block, max(0, min(GROUP_ROWS, BATCH - part.first_row)));
    load_states(part, own, static_cast<const T*>(first_h), static_cast<const T*>(first_c));

    float given[PAIRS_EACH] = {};
    float inputs[AHEAD ? PAIRS_EACH : 1][4], results[AHEAD ? PAIRS_EACH : 1];
    // Calls call(pair's number of this thread, row, local unit) for its pairs.
    auto const each_pair = [&](auto&& call) {
#pragma unroll
        for (int i = 0; i < PAIRS_EACH; ++i) {
            int const pair = self + i * THREADS, row = pair / UNITS, local = pair % UNITS;
            if (part.has(row, local)) call(i, row, local);
        }
    };
    auto const add_parts = [&](float (&sums)[GATES], int row, int local) {
#pragma unroll
        for (int gate = 0; gate < GATES; ++gate) {
            sums[gate] = 0.0f;
#pragma unroll
            for (int columns = 0; columns < COLUMN_WARPS; ++columns) {
                sums[gate] += parts[(columns * TILE_ROWS + gate * UNITS + local) * PART_PITCH + row];
            }
        }
    };
    auto const load_inputs = [&](int step) {
        each_pair([&](int i, int row, int local) { part.load(inputs[i], row, local, step); });
    };
    auto const store_results = [&](int step) {
        each_pair([&](int i, int row, int local) { part.store(results[i], row, local, step); });
    };
    // Values of each thread's pairs → the group: two lanes with neighbouring units share a word, and the blocks that it goes to.
    auto const give_all = [&](int buffer, const float (&values)[PAIRS_EACH]) {
        constexpr int TARGETS = EXCHANGE == CLUSTER ? BLOCKS : 2;
#pragma unroll
        for (int i = 0; i < PAIRS_EACH; ++i) {
            int const pair = self + i * THREADS, row = pair / UNITS, even = pair % UNITS & ~1, odd = pair & 1;
            u32 const bits = __half(values[i]).bits, other = exchanged_bits(bits);
            float const word = __int_as_float(static_cast<int>(odd ? other | bits << 16 : bits | other << 16));
            if (!part.has(row, even)) continue;
#pragma unroll
            for (int target = 0; target < TARGETS / 2; ++target) {
                if (EXCHANGE == CLUSTER || !odd) group.give(EXCHANGE == CLUSTER ? target * 2 + odd : part.block, buffer, (row * PITCH + part.block * UNITS + even) / 2, word, 0);
            }
        }
    };
    each_pair([&](int, int row, int local) {  // the own h in float32 too
        own[H_AT + row * UNITS + local] = first_h ? static_cast<float>(static_cast<const T*>(first_h)[part.state_at(row, part.block * UNITS + local)]) : 0.0f;
    });
    if (AHEAD && STEPS > 0) load_inputs(0);
    group.begin();

    for (int step = 0; step < STEPS; ++step) {
        int const now = own_buffer(step % 2), next = (step + 1) % 2;
        multiply_all(held, from, reinterpret_cast<const __half*>(own + now), parts, warp, lane);
        if (RESET_FIRST) {
            each_pair([&](int number, int row, int local) {
                float sums[GATES];
                int const i = AHEAD ? number : 0;
                add_parts(sums, row, local);
                if (!AHEAD) part.load(inputs[i], row, local, step);
                given[number] = part.reset(inputs[i], sums, own[H_AT + row * UNITS + local], own + C_AT + local * ROWS + row);
            });
            give_all(RESET, given);
            group.arrive(RESET);
            group.wait(RESET, step, step);
            multiply_all(held, from, reinterpret_cast<const __half*>(own + own_buffer(RESET)), parts, warp, lane);
        }
        each_pair([&](int number, int row, int local) {
            float sums[GATES];
            int const i = AHEAD ? number : 0;
            add_parts(sums, row, local);
            if (!AHEAD) part.load(inputs[i], row, local, step);
            float* const h = own + H_AT + row * UNITS + local;
            given[number] = *h = part.advance(inputs[i], sums, *h, own + C_AT + local * ROWS + row, results[i], row, local, step);
            if (!AHEAD || step + 1 == STEPS) part.store(results[i], row, local, step);
        });
        if (step + 1 == STEPS) break;
        give_all(next, given);
        group.arrive(next);
        if (AHEAD) load_inputs(step + 1);
        if (AHEAD) store_results(step);
        group.wait(next, step, step / 2);
    }
    group.leave();
}
