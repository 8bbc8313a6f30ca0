// What the generated kernels of rows call: a sum, or the like, of what the threads of a row have. It stands behind cluster.cu.

struct Added {
    __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
struct Multiplied {
    __device__ __forceinline__ float operator()(float a, float b) const { return a * b; }
};
struct Larger {
    __device__ __forceinline__ float operator()(float a, float b) const { return larger(a, b); }
};
struct Smaller {
    __device__ __forceinline__ float operator()(float a, float b) const { return smaller(a, b); }
};

// Every thread gets the result. THREADS of a block, a power of two, share a row, side by side or, with COLUMNS, ROWS apart: then
// threads side by side have neighbouring rows. `scratch` has a place for each thread of the block. A cluster of BLOCKS shares one row.
template <int THREADS, int ROWS, bool COLUMNS, int BLOCKS, typename F>
__device__ __forceinline__ float over_row(float value, float* scratch, F combine) {
#ifdef __CUDA_ARCH__
    if constexpr (!COLUMNS) {
#pragma unroll
        for (int mask = (THREADS < 32 ? THREADS : 32) / 2; mask; mask /= 2) {
            value = combine(value, __shfl_xor_sync(0xFFFFFFFFu, value, mask));
        }
        if constexpr (THREADS > 32) {
            constexpr int warps = THREADS / 32;
            __syncthreads();  // what a reduction before left may still be read
            if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
            __syncthreads();
            const float* parts = scratch + threadIdx.x / THREADS * warps;
            value = parts[0];
#pragma unroll
            for (int warp = 1; warp < warps; ++warp) value = combine(value, parts[warp]);
        }
        return value;
    }
#endif
    constexpr unsigned apart = COLUMNS ? ROWS : 1, threads = THREADS * host_blocks(BLOCKS);
    unsigned const mine = threadIdx.x, me = COLUMNS ? mine / ROWS : mine % threads, first = mine - me * apart;
    __syncthreads();
    scratch[mine] = value;
    for (unsigned step = threads / 2; step; step /= 2) {
        __syncthreads();
        if (me < step) scratch[mine] = combine(scratch[mine], scratch[mine + step * apart]);
    }
    __syncthreads();
    return scratch[first];
}

// Every thread of a cluster gets the result of its blocks' values, which all add up in the same order. `part` is the block's place
// for this reduction alone.
template <int BLOCKS, typename F>
__device__ __forceinline__ float over_cluster(float value, float* part, F combine) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) *part = value;
    arrive_in_cluster();
    wait_for_cluster();
    float values[BLOCKS];
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) values[block] = value_in_block(part, block);
    value = values[0];
#pragma unroll
    for (int block = 1; block < BLOCKS; ++block) value = combine(value, values[block]);
#endif
    return value;
}
