// Squeeze and excitation of images in NHWC: the mean of each channel, two small products with their activations, and with SCALES the
// image times the result, which has a number for each channel. Behind nhwc.cu, early.cu, cluster.cu and constants that
// squeeze_excite.py writes.
//
// A cluster of GROUPS * SHARES blocks has one image: each block has one of GROUPS runs of channels, and one of SHARES of the pixels. It
// multiplies the sums of its own values with its columns of the first matrix, since a product is the sum of the products of
// parts. These MID sums are all that blocks exchange. Every block then computes the results of its own channels, and scales its values,
// which it has kept in registers. Sums are float32, and in fixed order.
//
// Weights: [MID][GROUPS * CHANNELS] of the first matrix, [GROUPS * CHANNELS][MID_PITCH] of the second; biases: MID, then GROUPS *
// CHANNELS floats. Padding is zero.

constexpr int LANES = 16 / sizeof(T), WARP = 32, BLOCKS = GROUPS * SHARES;
constexpr int PIECES = (C + LANES - 1) / LANES, OWN_PIECES = (PIECES + GROUPS - 1) / GROUPS, CHANNELS = OWN_PIECES * LANES;
constexpr int ROWS = THREADS / OWN_PIECES;  // pixels that a block reads at a time
constexpr int TURNS = ((AREA + SHARES - 1) / SHARES + ROWS - 1) / ROWS, MAX_KEPT = 16, KEPT = TURNS < MAX_KEPT ? TURNS : MAX_KEPT;
constexpr int STRIPS = CHANNELS < THREADS ? THREADS / CHANNELS : 1;  // threads that add the sums of one channel
constexpr int MID_PITCH = (MID + LANES - 1) / LANES * LANES;

struct Memory {
    alignas(16) float means[CHANNELS];
    alignas(16) float hidden[MID_PITCH];
    float gates[CHANNELS], parts[MID], strips[STRIPS * CHANNELS], sums[ROWS * CHANNELS], scratch[THREADS];
};

#ifdef __CUDACC__
__device__ __forceinline__ int thread_of_block() { return threadIdx.x; }
__device__ __forceinline__ int block_of_cluster() { return blockIdx.x % BLOCKS; }
__device__ __forceinline__ int number_of_cluster() { return blockIdx.x / BLOCKS; }
__device__ constexpr int memory_of(int) { return 0; }
#else
inline int thread_of_block() { return threadIdx.x % THREADS; }
inline int block_of_cluster() { return threadIdx.x / THREADS; }
inline int number_of_cluster() { return blockIdx.x; }
constexpr int memory_of(int block) { return block; }
#endif

__device__ constexpr int lanes_for(int pieces) { return pieces > 16 ? WARP : pieces > 8 ? 16 : pieces > 4 ? 8 : pieces > 2 ? 4 : pieces; }

// The sum of the values of WIDTH threads side by side, a power of two, for the first of them.
template <int WIDTH> __device__ __forceinline__ float over_lanes(float value, float* scratch, int self) {
#ifdef __CUDA_ARCH__
#pragma unroll
    for (int mask = WIDTH / 2; mask; mask /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, mask);
    return value;
#else
    for (int step = WIDTH / 2; step; step /= 2) {
        scratch[self] = value;
        __syncthreads();
        if (self % WIDTH < step) value += scratch[self + step];
        __syncthreads();
    }
    return value;
#endif
}

// A matrix of OUTPUTS rows of INPUTS pieces of 16 bytes, which begin PITCH values apart, times a vector: WIDTH threads share a row. The
// first pieces are asked for before the vector is there.
template <int OUTPUTS, int INPUTS, int PITCH> struct Product {
    static constexpr int WIDTH = lanes_for(INPUTS), ROWS_EACH = THREADS / WIDTH, PIECES_EACH = (INPUTS + WIDTH - 1) / WIDTH;
    static constexpr int ROUNDS = (OUTPUTS + ROWS_EACH - 1) / ROWS_EACH, MAX_AHEAD = 4 / PIECES_EACH;
    static constexpr int AHEAD = ROUNDS < MAX_AHEAD ? ROUNDS : MAX_AHEAD;
    Vector<T> ahead[AHEAD > 0 ? AHEAD * PIECES_EACH : 1];
    const T* matrix;
    int self;

    __device__ __forceinline__ Product(const T* matrix, int self) : matrix(matrix), self(self) {
#pragma unroll
        for (int round = 0; round < AHEAD; ++round) {
#pragma unroll
            for (int each = 0; each < PIECES_EACH; ++each) ahead[round * PIECES_EACH + each] = piece(round, each);
        }
    }
    __device__ __forceinline__ Vector<T> piece(int round, int each) const {
        int const output = round * ROWS_EACH + self / WIDTH, input = each * WIDTH + self % WIDTH;
        Vector<T> found = {};
        if (output < OUTPUTS && input < INPUTS) {
            found = *reinterpret_cast<const Vector<T>*>(matrix + static_cast<long long>(output) * PITCH + input * LANES);
        }
        return found;
    }
    __device__ __forceinline__ float times(const Vector<T>& factors, int each, const float* vector, float sum) const {
        int const input = each * WIDTH + self % WIDTH;
        if (input < INPUTS) {
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) sum += static_cast<float>(factors.values[lane]) * vector[input * LANES + lane];
        }
        return sum;
    }
    template <typename F> __device__ __forceinline__ void finish(int round, float sum, float* results, float* scratch, F function) const {
        sum = over_lanes<WIDTH>(sum, scratch, self);
        int const output = round * ROWS_EACH + self / WIDTH;
        if (self % WIDTH == 0 && output < OUTPUTS) results[output] = function(sum, output);
    }
    template <typename F> __device__ __forceinline__ void operator()(const float* vector, float* results, float* scratch, F function) const {
#pragma unroll
        for (int round = 0; round < AHEAD; ++round) {
            float sum = 0.0f;
#pragma unroll
            for (int each = 0; each < PIECES_EACH; ++each) sum = times(ahead[round * PIECES_EACH + each], each, vector, sum);
            finish(round, sum, results, scratch, function);
        }
#pragma unroll 4
        for (int round = AHEAD; round < ROUNDS; ++round) {
            float sum = 0.0f;
#pragma unroll
            for (int each = 0; each < PIECES_EACH; ++each) sum = times(piece(round, each), each, vector, sum);
            finish(round, sum, results, scratch, function);
        }
    }
};

struct AsItIs {
    __device__ __forceinline__ float operator()(float sum, int) const { return sum; }
};
struct Excited {
    const float* bias;
    __device__ __forceinline__ float operator()(float sum, int channel) const { return activate(sum + bias[channel], EXCITE_ACTIVATION, EXCITE_A, EXCITE_B); }
};

// Write values times the gates of their channels, of which there are `channels` from here on; behind them zeros.
__device__ __forceinline__ void put_scaled(T* place, const Vector<T>& values, const float (&gates)[LANES], int channels) {
    Vector<T> results;
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) results.values[lane] = static_cast<T>(lane < channels ? static_cast<float>(values.values[lane]) * gates[lane] : 0.0f);
    store_whole(place, results);
}

extern "C" __global__ void __launch_bounds__(THREADS) squeeze_excite(const void* x, const void* weights, const void* biases, void* y) {
    __shared__ Memory memory[host_blocks(BLOCKS)];
    int const self = thread_of_block(), block = block_of_cluster(), image = number_of_cluster();
    int const group = block / SHARES, share = block % SHARES, piece = self % OWN_PIECES, row = self / OWN_PIECES;
    int const begin = static_cast<int>(static_cast<long long>(AREA) * share / SHARES) + row, channel = (group * OWN_PIECES + piece) * LANES;
    int const end = row < ROWS && channel < C ? static_cast<int>(static_cast<long long>(AREA) * (share + 1) / SHARES) : 0;
    const T* const matrices = static_cast<const T*>(weights);
    const float* const bias = static_cast<const float*>(biases);
    Memory& own = memory[memory_of(block)];
    Product<MID, OWN_PIECES, GROUPS * CHANNELS> const squeeze(matrices + group * CHANNELS, self);
    Product<CHANNELS, MID_PITCH / LANES, MID_PITCH> const excite(matrices + MID * GROUPS * CHANNELS + group * CHANNELS * MID_PITCH, self);
    begin_kernel();

    const T* const from = static_cast<const T*>(x) + static_cast<long long>(image) * AREA * X_PITCH + channel;
    Vector<T> kept[KEPT];
#pragma unroll
    for (int turn = 0; turn < KEPT; ++turn) {
        int const pixel = begin + turn * ROWS;
        kept[turn] = {};
        if (pixel < end) kept[turn] = *reinterpret_cast<const Vector<T>*>(from + static_cast<long long>(pixel) * X_PITCH);
    }
    float sums[LANES] = {};
#pragma unroll
    for (int turn = 0; turn < KEPT; ++turn) {
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) sums[lane] += static_cast<float>(kept[turn].values[lane]);
    }
#pragma unroll 8
    for (int pixel = begin + KEPT * ROWS; pixel < end; pixel += ROWS) {
        Vector<T> const found = *reinterpret_cast<const Vector<T>*>(from + static_cast<long long>(pixel) * X_PITCH);
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) sums[lane] += static_cast<float>(found.values[lane]);
    }
    if (row < ROWS) {
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) own.sums[row * CHANNELS + piece * LANES + lane] = sums[lane];
    }
    __syncthreads();
    for (int at = self; at < STRIPS * CHANNELS; at += THREADS) {
        float total = 0.0f;
#pragma unroll 8
        for (int line = at / CHANNELS; line < ROWS; line += STRIPS) total += own.sums[line * CHANNELS + at % CHANNELS];
        own.strips[at] = total;
    }
    __syncthreads();
    for (int at = self; at < CHANNELS; at += THREADS) {
        float total = 0.0f;
#pragma unroll 8
        for (int strip = 0; strip < STRIPS; ++strip) total += own.strips[strip * CHANNELS + at];
        own.means[at] = group * CHANNELS + at < C ? total * FACTOR : 0.0f;
    }
    __syncthreads();

    squeeze(own.means, own.parts, own.scratch, AsItIs());
    if (BLOCKS > 1) {
        arrive_in_cluster();
        wait_for_cluster();
    }
    if (BLOCKS == 1 || host_blocks(BLOCKS) > 1) __syncthreads();
    for (int at = self; at < MID_PITCH; at += THREADS) {
        float values[BLOCKS], total = 0.0f;
        if (at < MID) {
#pragma unroll
            for (int other = 0; other < BLOCKS; ++other) {
                const float* const place = memory[memory_of(other)].parts + at;
                values[other] = BLOCKS > 1 ? value_in_block(place, other) : *place;
            }
#pragma unroll
            for (int other = 0; other < BLOCKS; ++other) total += values[other];
            total = activate(total + bias[at], SQUEEZE_ACTIVATION, SQUEEZE_A, SQUEEZE_B);
        }
        own.hidden[at] = total;
    }
    __syncthreads();
    if (BLOCKS > 1) tell_cluster();
    excite(own.hidden, own.gates, own.scratch, Excited{bias + MID + group * CHANNELS});
    __syncthreads();

    if (SCALES) {
        T* const to = static_cast<T*>(y) + static_cast<long long>(image) * AREA * Y_PITCH + channel;
        float gates[LANES];
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) gates[lane] = own.gates[piece * LANES + lane];
#pragma unroll
        for (int turn = 0; turn < KEPT; ++turn) {
            int const pixel = begin + turn * ROWS;
            if (pixel < end) put_scaled(to + static_cast<long long>(pixel) * Y_PITCH, kept[turn], gates, C - channel);
        }
#pragma unroll 8
        for (int pixel = begin + KEPT * ROWS; pixel < end; pixel += ROWS) {
            Vector<T> const found = *reinterpret_cast<const Vector<T>*>(from + static_cast<long long>(pixel) * X_PITCH);
            put_scaled(to + static_cast<long long>(pixel) * Y_PITCH, found, gates, C - channel);
        }
    } else if (share == 0) {
        for (int at = self; at < CHANNELS && group * CHANNELS + at < PIECES * LANES; at += THREADS) {
            int const place = group * CHANNELS + at;
            static_cast<T*>(y)[static_cast<long long>(image) * Y_PITCH + place] = static_cast<T>(place < C ? own.gates[at] : 0.0f);
        }
    }
    if (BLOCKS > 1) wait_for_cluster();
}
