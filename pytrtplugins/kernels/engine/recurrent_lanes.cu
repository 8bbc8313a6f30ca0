// Recurrent layers in float32, behind recurrent.cu. A subwarp of LANES lanes computes the gates of UNITS_EACH units of ROWS_EACH
// sequences at a time; its lanes share the sum over h, which is float32.

constexpr int VALUES = 16 / sizeof(W), SUBWARPS = THREADS / LANES, CHUNKS = ROWS / ROWS_EACH;
constexpr int PAIRS = UNITS_EACH * ROWS_EACH, PAIRS_EACH = (PAIRS + LANES - 1) / LANES;
constexpr int UNROLLED = PLACE == IN_REGISTERS ? ROUNDS : 1;   // so that each register is known by its name
constexpr bool AHEAD = CHUNKS * ROUNDS == 1;                   // the inputs of the next step are loaded before the exchange
constexpr int SLOTS = UNITS_EACH * GATES * ROWS_EACH + PAIRS;  // of a subwarp: sums, [unit][row][gate], then new states
constexpr int WEIGHTS_AT = (MORE_AT + SUBWARPS * SLOTS + 3) / 4 * 4;
static_assert(UNITS == SUBWARPS * ROUNDS * UNITS_EACH && OWN_PIECES == ROUNDS * UNITS_EACH * GATES * PIECES, "each unit has a subwarp");
static_assert(SHARED_FLOATS >= WEIGHTS_AT + (PLACE == IN_SHARED ? OWN_PIECES * THREADS * 4 : 0), "all has room");

#ifdef __CUDACC__
__device__ __forceinline__ float exchanged(float value, int lanes) { return __shfl_xor_sync(0xffffffffu, value, lanes); }
__device__ __forceinline__ void sync_subwarps() { __syncwarp(); }
#else
inline void sync_subwarps() { __syncthreads(); }
inline float exchanged(float value, int lanes) {
    __shared__ float values[BLOCKS * THREADS];
    values[threadIdx.x] = value;
    __syncthreads();
    float const found = values[threadIdx.x ^ lanes];
    __syncthreads();
    return found;
}
#endif

__host__ __device__ constexpr int power_of_two(int number) { return number <= 1 ? 1 : 2 * power_of_two((number + 1) / 2); }

// COUNT sums of each lane → their totals over the lanes, shared out: values[0] is total `lane * COUNT / LANES`, or, where there are
// more totals than lanes, the first COUNT / LANES values are those from `lane * (COUNT / LANES)` on.
template <int COUNT, int MASK> __device__ __forceinline__ void add_lanes(float* values, int lane) {
    if constexpr (MASK > 0 && COUNT > 1) {
        bool const upper = lane & MASK;
#pragma unroll
        for (int i = 0; i < COUNT / 2; ++i) {
            float const sent = upper ? values[i] : values[i + COUNT / 2], kept = upper ? values[i + COUNT / 2] : values[i];
            values[i] = kept + exchanged(sent, MASK);
        }
        add_lanes<COUNT / 2, MASK / 2>(values, lane);
    } else if constexpr (MASK > 0) {
        values[0] += exchanged(values[0], MASK);
        add_lanes<1, MASK / 2>(values, lane);
    }
}

// Products of COUNT gates, from gate FIRST on, of a round's units with ROWS_EACH rows of h → slots, [unit][row][GATES].
template <int FIRST, int COUNT>
__device__ __forceinline__ void multiply(const Piece (&held)[HELD], const Piece* from, const float* h, float* slots, int round, int lane) {
    constexpr int SUMS = UNITS_EACH * ROWS_EACH * COUNT, PADDED = power_of_two(SUMS), EACH = PADDED > LANES ? PADDED / LANES : 1;
    float sums[PADDED] = {};
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
        float states[ROWS_EACH][VALUES];
#pragma unroll
        for (int n = 0; n < ROWS_EACH; ++n) {
#pragma unroll
            for (int quad = 0; quad < VALUES / 4; ++quad) {
                float4 const four = *reinterpret_cast<const float4*>(h + n * PITCH + ((piece * (VALUES / 4) + quad) * LANES + lane) * 4);
                states[n][quad * 4] = four.x, states[n][quad * 4 + 1] = four.y;
                states[n][quad * 4 + 2] = four.z, states[n][quad * 4 + 3] = four.w;
            }
        }
#pragma unroll
        for (int row = 0; row < UNITS_EACH * COUNT; ++row) {
            int const unit = row / COUNT, gate = row % COUNT, index = ((round * UNITS_EACH + unit) * GATES + FIRST + gate) * PIECES + piece;
            Piece const weights = PLACE == IN_REGISTERS ? held[PLACE == IN_REGISTERS ? index : 0] : from[index * LANES];
#pragma unroll
            for (int i = 0; i < VALUES; ++i) {
                float const weight = static_cast<float>(weights.values[i]);
#pragma unroll
                for (int n = 0; n < ROWS_EACH; ++n) sums[(unit * ROWS_EACH + n) * COUNT + gate] += weight * states[n][i];
            }
        }
    }
    add_lanes<PADDED, LANES / 2>(sums, lane);
    sync_subwarps();
    int const first = PADDED > LANES ? lane * EACH : lane * PADDED / LANES;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        if (first + i < SUMS) slots[(first + i) / COUNT * GATES + FIRST + (first + i) % COUNT] = sums[i];
    }
    sync_subwarps();
}

// `exchange`, for the whole grid: buffers of each group, [group][3][BUFFER][WORDS], and 32 counters of each.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
recurrent(const void* x, const void* weights, const float* added, const int* lengths, const void* first_h, const void* first_c,
          void* y, void* last_h, void* last_c, float* exchange) {
    int const self = thread_of_block(), lane = self % LANES, subwarp = self / LANES, number = number_of_group();
    Part const part = {static_cast<const T*>(x), added, lengths, static_cast<T*>(y), static_cast<T*>(last_h), static_cast<T*>(last_c),
                       number % GROUPS * GROUP_ROWS, number / GROUPS, block_of_group()};
    float* const own = memory_of(part.block);
    float* const slots = own + MORE_AT + subwarp * SLOTS;

    Piece held[HELD];
    const Piece* from = static_cast<const Piece*>(weights) + (static_cast<long long>(part.direction) * BLOCKS + part.block) * OWN_PIECES * THREADS;
    if (PLACE == IN_SHARED) {
        Piece* const copy = reinterpret_cast<Piece*>(own + WEIGHTS_AT);
        for (int index = self; index < OWN_PIECES * THREADS; index += THREADS) copy[index] = from[index];
        from = copy;
    }
    from += subwarp * OWN_PIECES * LANES + lane;
    if (PLACE == IN_REGISTERS) {
#pragma unroll
        for (int index = 0; index < HELD; ++index) held[index] = from[index * LANES];
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");  // weights are constants; all else is there from here on
#endif
    Group group(exchange, number, part.block, max(0, min(GROUP_ROWS, BATCH - part.first_row)));
    load_states(part, own, static_cast<const T*>(first_h), static_cast<const T*>(first_c));

    float inputs[PAIRS_EACH][4], results[PAIRS_EACH];
    // Calls call(pair's number of this lane, pair, row, local unit) for the lane's pairs of a chunk and a round.
    auto const each_pair = [&](int chunk, int round, auto&& call) {
#pragma unroll
        for (int i = 0; i < PAIRS_EACH; ++i) {
            int const pair = lane + i * LANES, row = chunk * ROWS_EACH + pair % ROWS_EACH;
            int const local = (subwarp * ROUNDS + round) * UNITS_EACH + pair / ROWS_EACH;
            if (pair < PAIRS && part.has(row, local)) call(i, pair, row, local);
        }
    };
    auto const load_inputs = [&](int step, int chunk, int round) {
        each_pair(chunk, round, [&](int i, int, int row, int local) { part.load(inputs[i], row, local, step); });
    };
    auto const store_results = [&](int step, int chunk, int round) {
        each_pair(chunk, round, [&](int i, int, int row, int local) { part.store(results[i], row, local, step); });
    };
    // New states in the slots → the group; the lanes share the blocks that each goes to.
    auto const give_all = [&](int step, int chunk, int round, int buffer) {
        constexpr int PEERS = EXCHANGE == CLUSTER ? BLOCKS : 1;
        sync_subwarps();
        for (int index = lane; index < PAIRS * PEERS; index += LANES) {
            int const pair = index % PAIRS, row = chunk * ROWS_EACH + pair % ROWS_EACH;
            int const local = (subwarp * ROUNDS + round) * UNITS_EACH + pair / ROWS_EACH;
            int const target = EXCHANGE == CLUSTER ? index / PAIRS : part.block;
            if (part.has(row, local)) group.give(target, buffer, row * PITCH + part.block * UNITS + local, slots[SLOTS - PAIRS + pair], step);
        }
    };
    if (AHEAD && STEPS > 0) load_inputs(0, 0, 0);
    group.begin();

    for (int step = 0; step < STEPS; ++step) {
        const float* const now = own + own_buffer(step % 2);
        int const next = (step + 1) % 2;
        if (RESET_FIRST) {
            for (int chunk = 0; chunk < CHUNKS; ++chunk) {
#pragma unroll UNROLLED
                for (int round = 0; round < ROUNDS; ++round) {
                    if (!AHEAD) load_inputs(step, chunk, round);
                    multiply<0, RESET_FIRST ? 2 : 1>(held, from, now + chunk * ROWS_EACH * PITCH, slots, round, lane);
                    each_pair(chunk, round, [&](int i, int pair, int row, int local) {
                        float const before = now[row * PITCH + part.block * UNITS + local];
                        slots[SLOTS - PAIRS + pair] = part.reset(inputs[i], slots + pair * GATES, before, own + C_AT + local * ROWS + row);
                    });
                    give_all(step, chunk, round, RESET);
                }
            }
            group.arrive(RESET);
            group.wait(RESET, step, step);
        }
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
#pragma unroll UNROLLED
            for (int round = 0; round < ROUNDS; ++round) {
                constexpr int FIRST = RESET_FIRST ? 2 : 0;
                if (!AHEAD) load_inputs(step, chunk, round);
                multiply<FIRST, GATES - FIRST>(held, from, (RESET_FIRST ? own + own_buffer(RESET) : now) + chunk * ROWS_EACH * PITCH, slots, round, lane);
                each_pair(chunk, round, [&](int i, int pair, int row, int local) {
                    float const before = now[row * PITCH + part.block * UNITS + local];
                    float* const kept = own + C_AT + local * ROWS + row;
                    slots[SLOTS - PAIRS + pair] = part.advance(inputs[i], slots + pair * GATES, before, kept, results[i], row, local, step);
                });
                if (step + 1 < STEPS) give_all(step, chunk, round, next);
                if (!AHEAD || step + 1 == STEPS) store_results(step, chunk, round);
            }
        }
        if (step + 1 == STEPS) break;
        group.arrive(next);
        if (AHEAD) load_inputs(step + 1, 0, 0);
        if (AHEAD) store_results(step, 0, 0);
        group.wait(next, step, step / 2);
    }
    group.leave();
}
