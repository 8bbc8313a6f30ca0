// What the kernels of recurrent layers share: all steps of an LSTM, GRU or RNN in one launch, both directions side by side. The
// inputs' products with W are in `x`, for all steps, with the biases that can be added there; a kernel multiplies the state h with R.
//
// A group of BLOCKS blocks computes one direction of GROUP_ROWS sequences of the batch. Each block has UNITS hidden units: their
// weights stay in registers or in shared memory over all steps, or come from L2 where they fit in neither. h is in the shared memory
// of each block. Of its two buffers one is read, the other is written for the next step. Sums and c are float32.
//
// EXCHANGE says how the blocks of a group give h to each other, and what lets them run at the same time, since each waits for all:
//   ONE_BLOCK: there is one block, nothing is exchanged.
//   CLUSTER: they are a thread block cluster, which the GPU starts as a whole. They write to each other's shared memory.
//   WHOLE_GRID: h goes through global memory, which has the two buffers; each block copies the one that it reads. The launch is
//     cooperative: the driver refuses it unless all blocks fit at once, and the GPU starts it when they do, whatever runs beside it.
//
// On a CPU a group is one block with all threads of its blocks.

constexpr int ONE_BLOCK = 0, CLUSTER = 1, WHOLE_GRID = 2, IN_REGISTERS = 0, IN_SHARED = 1, IN_L2 = 2, RNN = 0, GRU = 1, LSTM = 2;
constexpr int GATES = KIND == RNN ? 1 : KIND == GRU ? 3 : 4;
constexpr int ROWS = (GROUP_ROWS + ROWS_EACH - 1) / ROWS_EACH * ROWS_EACH;
constexpr bool RESET_FIRST = KIND == GRU && !LINEAR_BEFORE_RESET;  // the reset state is multiplied, in a second exchange
constexpr bool TAGGED = EXCHANGE == WHOLE_GRID && sizeof(State) == 4;
constexpr int STATE_WORDS = (HIDDEN * static_cast<int>(sizeof(State)) + 3) / 4;  // of a sequence, that are exchanged
constexpr int HELD = PLACE == IN_REGISTERS ? OWN_PIECES : 1;
// Shared memory, in floats: three mbarriers, buffers of h, one of the reset state, c of the own units or a GRU's update gates; then what a kernel adds.
constexpr int BUFFER = ROWS * PITCH * static_cast<int>(sizeof(State)) / 4, BUFFERS = EXCHANGE == WHOLE_GRID && !TAGGED ? 1 : 2, RESET = 2;
constexpr int BUFFERS_AT = 8, C_AT = BUFFERS_AT + (BUFFERS + RESET_FIRST) * BUFFER, WORDS = TAGGED ? 2 : 1;  // floats of a value in global memory
constexpr int MORE_AT = C_AT + (KIND == LSTM || RESET_FIRST ? UNITS * ROWS : 0);

struct alignas(16) Piece { W values[16 / sizeof(W)]; };

#ifdef __CUDACC__
extern __shared__ float4 memory[];
__device__ __forceinline__ int thread_of_block() { return threadIdx.x; }
__device__ __forceinline__ int block_of_group() { return blockIdx.x % BLOCKS; }
__device__ __forceinline__ int number_of_group() { return blockIdx.x / BLOCKS; }
__device__ __forceinline__ float* memory_of(int) { return reinterpret_cast<float*>(memory); }
#else
__shared__ float4 memory[BLOCKS * ((SHARED_FLOATS + 3) / 4)];
inline int thread_of_block() { return threadIdx.x % THREADS; }
inline int block_of_group() { return threadIdx.x / THREADS; }
inline int number_of_group() { return blockIdx.x; }
inline float* memory_of(int block) { return reinterpret_cast<float*>(memory + block * ((SHARED_FLOATS + 3) / 4)); }
#endif

// Where a buffer begins in the shared memory of a block.
__device__ __forceinline__ int own_buffer(int buffer) { return BUFFERS_AT + (buffer == RESET ? BUFFERS * BUFFER : BUFFERS == 1 ? 0 : buffer * BUFFER); }

#ifdef __CUDACC__
#if EXCHANGE_CODE == 1
// An address in the shared memory of this block → the same one in that of another.
__device__ __forceinline__ unsigned address_in(unsigned address, int block) {
    unsigned remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(block));
    return remote;
}
__device__ __forceinline__ unsigned shared_address(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }
#endif
__device__ __forceinline__ void store_word(uint64_t* place, uint64_t word) { asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(place), "l"(word) : "memory"); }
__device__ __forceinline__ uint64_t load_word(const uint64_t* place) {
    uint64_t word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(place) : "memory");
    return word;
}
#else
inline void store_word(uint64_t* place, uint64_t word) { *place = word; }
inline uint64_t load_word(const uint64_t* place) { return *place; }
#endif

// The blocks that exchange h. In each step, for each buffer that is filled: every thread calls `give` for its values, then all call
// `arrive`, and `wait` before they read the buffer. What is written between the two need not be there for other blocks.
//
// A block of a cluster has an mbarrier for each buffer, which counts the bytes that have come. In the whole grid a value is a word with the
// number of the step in its upper half, for which its readers look, or, without TAGGED, there is a barrier. Nobody writes to a
// buffer that another block still reads: who has all values of a step has those that the others made after reading the buffer before.
struct Group {
    float* own;
    float* states;       // of the whole grid: buffers in global memory
    unsigned* counters;  // arrivals, blocks that have left, and what steps of earlier runs were counted up to
    int block, rows;     // of the cluster; sequences
    unsigned arrivals, base;

    __device__ Group(float* exchange, int number, int block, int rows) : own(memory_of(block)), states(nullptr), counters(nullptr), block(block), rows(rows), arrivals(0), base(0) {
        if (EXCHANGE == WHOLE_GRID) {
            states = exchange + static_cast<long long>(number) * 3 * BUFFER * WORDS;
            counters = reinterpret_cast<unsigned*>(exchange + 3ll * DIRECTIONS * GROUPS * BUFFER * WORDS) + number * 32;
            base = counters[2];
        }
    }

    // All threads, once their first states are in shared memory.
    __device__ void begin() {
#if defined(__CUDACC__) && EXCHANGE_CODE == 1
        if (threadIdx.x < 3) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(own) + threadIdx.x * 8), "r"(THREADS / 32) : "memory");
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");  // nobody writes to a block that has not begun
#else
        __syncthreads();
#endif
    }

    // 4 bytes of a buffer, one value or two → a block of the cluster, or whoever reads them.
    __device__ void give(int target, int buffer, int index, float word, int step) const {
        if (EXCHANGE == WHOLE_GRID && TAGGED) {
            uint64_t const tag = base + step + 1;
            store_word(reinterpret_cast<uint64_t*>(states) + buffer * BUFFER + index, tag << 32 | static_cast<unsigned>(__float_as_int(word)));
        } else if (EXCHANGE == WHOLE_GRID) {
            states[buffer * BUFFER + index] = word;
        } else {
#if defined(__CUDACC__) && EXCHANGE_CODE == 1
            unsigned const place = address_in(shared_address(own + own_buffer(buffer) + index), target);
            unsigned const barrier = address_in(shared_address(own) + buffer * 8, target);
            asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(place), "r"(__float_as_int(word)), "r"(barrier) : "memory");
#else
            memory_of(target)[own_buffer(buffer) + index] = word;
#endif
        }
    }

    __device__ void arrive(int buffer) {
#ifdef __CUDACC__
#if EXCHANGE_CODE == 1
        __syncwarp();  // what all lanes have read is read before the warp arrives
        if (threadIdx.x % 32 == 0) {  // every warp, so that none can miss a time that the buffer is filled
            int const bytes = threadIdx.x == 0 ? rows * STATE_WORDS * 4 : 0;
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(own) + buffer * 8), "r"(bytes) : "memory");
        }
#else
        if (!TAGGED) __syncthreads();
        if (EXCHANGE == WHOLE_GRID && !TAGGED && threadIdx.x == 0) {
            __threadfence();
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counters) : "memory");
        }
#endif
#else
        __syncthreads();
#endif
    }

    // `filled`: how many times the buffer was filled before, in this run.
    __device__ void wait(int buffer, int step, int filled) {
#ifdef __CUDACC__
#if EXCHANGE_CODE == 1
        unsigned const address = shared_address(own) + buffer * 8;
        unsigned done = 0;
        while (!done) {
            asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                         : "=r"(done) : "r"(address), "r"(filled & 1) : "memory");
        }
#endif
        if (EXCHANGE == WHOLE_GRID && !TAGGED) {
            arrivals += BLOCKS;
            if (threadIdx.x == 0) {
                unsigned count;
                do {
                    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counters) : "memory");
                } while (count < arrivals);
                __threadfence();
            }
            __syncthreads();
        }
#endif
        if (EXCHANGE == WHOLE_GRID) {
            fetch(buffer, step);
            __syncthreads();
        }
    }

    // A buffer in global memory → shared memory.
    __device__ void fetch(int buffer, int step) const {
        if (TAGGED) {
            unsigned const tag = base + step + 1;
            const uint64_t* const from = reinterpret_cast<const uint64_t*>(states) + buffer * BUFFER;
            for (int index = thread_of_block(); index < rows * HIDDEN; index += THREADS) {
                int const place = index / HIDDEN * PITCH + index % HIDDEN;
                uint64_t word = load_word(from + place);
                while (static_cast<int>(static_cast<unsigned>(word >> 32) - tag) < 0) word = load_word(from + place);
                own[own_buffer(buffer) + place] = __int_as_float(static_cast<int>(word));
            }
            return;
        }
        for (int index = thread_of_block(); index < BUFFER / 4; index += THREADS) {
            const float4* const from = reinterpret_cast<const float4*>(states + buffer * BUFFER) + index;
#ifdef __CUDACC__
            reinterpret_cast<float4*>(own + own_buffer(buffer))[index] = __ldcg(from);
#else
            reinterpret_cast<float4*>(own + own_buffer(buffer))[index] = *from;
#endif
        }
    }

    // Nobody needs this block any more; the last of the grid that leaves prepares the next run.
    __device__ void leave() const {
#ifdef __CUDACC__
        if (EXCHANGE == WHOLE_GRID && threadIdx.x == 0 && atomicAdd(counters + 1, 1u) == BLOCKS - 1) {
            counters[0] = 0;
            counters[1] = 0;
            counters[2] = base + STEPS;
            __threadfence();
        }
#else
        if (EXCHANGE == WHOLE_GRID && threadIdx.x == 0) counters[2] = base + STEPS;
#endif
    }
};

// A block's part of a layer. `added` (float32): [direction][1 or 3][HIDDEN], the part of a GRU's biases that the reset gate
// multiplies, or an LSTM's peepholes of input, output and forget gate. `lengths`: steps of each sequence. Arrays may be null that
// a node leaves out. Rows are sequences of the group, `local` is a unit of the block.
struct Part {
    const T* x;
    const float* added;
    const int* lengths;
    T *y, *last_h, *last_c;
    int first_row, direction, block;

    __device__ bool has(int row, int local) const {
        return row < GROUP_ROWS && first_row + row < BATCH && local < UNITS && block * UNITS + local < HIDDEN;
    }
    __device__ long long state_at(int row, int unit) const {
        return static_cast<long long>(BATCH_FIRST ? (first_row + row) * DIRECTIONS + direction : direction * BATCH + first_row + row) * HIDDEN + unit;
    }
    __device__ int length_of(int row) const { return lengths ? max(0, min(lengths[first_row + row], STEPS)) : STEPS; }
    __device__ int step_of(int row, int step) const {  // of the sequence
        int const length = length_of(row);
        return BACKWARD >> direction & 1 && step < length ? length - 1 - step : step;
    }
    __device__ void load(float (&inputs)[4], int row, int local, int step) const {
        long long const place = step_of(row, step), line = BATCH_FIRST ? static_cast<long long>(first_row + row) * STEPS + place : place * BATCH + first_row + row;
        const T* const from = x + (line * DIRECTIONS + direction) * GATES * HIDDEN + block * UNITS + local;
#pragma unroll
        for (int gate = 0; gate < GATES; ++gate) inputs[gate] = static_cast<float>(from[gate * HIDDEN]);
    }
    __device__ void store(float result, int row, int local, int step) const {
        if (!y) return;
        long long const place = step_of(row, step), number = first_row + row;
        long long const line = BATCH_FIRST ? (number * STEPS + place) * DIRECTIONS + direction : (place * DIRECTIONS + direction) * BATCH + number;
        y[line * HIDDEN + block * UNITS + local] = static_cast<T>(result);
    }
    // The gates of a GRU that resets first: the update gate, which `kept` keeps; gives the reset state.
    __device__ float reset(const float (&inputs)[4], const float* sums, float before, float* kept) const {
        *kept = activation_0(inputs[0] + sums[0], direction);
        return activation_0(inputs[1] + sums[1], direction) * before;
    }
    // The state after a step, from the one before; `kept`: c, or the update gate. `result`: what y gets.
    __device__ float advance(const float (&inputs)[4], const float* sums, float before, float* kept, float& result, int row, int local, int step) const {
        int const unit = block * UNITS + local;
        const float* const more = added ? added + direction * (KIND == LSTM ? 3 : 1) * HIDDEN + unit : nullptr;
        bool const inside = step < length_of(row);
        float h, c = 0.0f;
        if constexpr (KIND == RNN) {
            h = activation_0(inputs[0] + sums[0], direction);
        } else if constexpr (KIND == GRU) {
            float update, candidate;
            if constexpr (RESET_FIRST) {
                update = *kept;
                candidate = inputs[2] + sums[2];
            } else {
                update = activation_0(inputs[0] + sums[0], direction);
                float const reset = activation_0(inputs[1] + sums[1], direction);
                candidate = inputs[2] + reset * (sums[2] + (more ? *more : 0.0f));
            }
            h = (1.0f - update) * activation_1(candidate, direction) + update * before;
        } else {
            float const old = *kept;
            float in = inputs[0] + sums[0], out = inputs[1] + sums[1], forget = inputs[2] + sums[2];
            if (more) in += more[0] * old, forget += more[2 * HIDDEN] * old;
            in = activation_0(in, direction);
            forget = INPUT_FORGET ? 1.0f - in : activation_0(forget, direction);
            c = forget * old + in * activation_1(inputs[3] + sums[3], direction);
            if (more) out += more[HIDDEN] * c;
            h = activation_0(out, direction) * activation_2(c, direction);
            if (inside) *kept = c;
            else c = old;
        }
        result = inside ? h : 0.0f;
        h = inside ? h : before;
        if (step == STEPS - 1 && last_h) last_h[state_at(row, unit)] = static_cast<T>(h);
        if (step == STEPS - 1 && last_c) last_c[state_at(row, unit)] = static_cast<T>(c);
        return h;
    }
};

// The first h of all units and the first c of the own ones → shared memory, zeros where there are none.
__device__ __forceinline__ void load_states(Part const& part, float* own, const T* first_h, const T* first_c) {
    for (int index = thread_of_block(); index < C_AT - BUFFERS_AT; index += THREADS) own[BUFFERS_AT + index] = 0.0f;
    __syncthreads();
    for (int index = thread_of_block(); first_h && index < GROUP_ROWS * HIDDEN; index += THREADS) {
        int const row = index / HIDDEN, unit = index % HIDDEN;
        if (part.first_row + row < BATCH) reinterpret_cast<State*>(own + BUFFERS_AT)[row * PITCH + unit] = static_cast<State>(static_cast<float>(first_h[part.state_at(row, unit)]));
    }
    for (int index = thread_of_block(); KIND == LSTM && index < UNITS * ROWS; index += THREADS) {
        int const row = index % ROWS, local = index / ROWS;
        own[C_AT + index] = first_c && part.has(row, local) ? static_cast<float>(first_c[part.state_at(row, part.block * UNITS + local)]) : 0.0f;
    }
}
