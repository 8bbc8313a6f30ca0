// Sums over the threads of a block.

// Add up a number of each of THREADS threads; every thread gets the sum of those before it, and the sum of all.
template <unsigned THREADS> __device__ __forceinline__ unsigned sum_before(unsigned own, unsigned (&sums)[THREADS], unsigned* sum) {
    __syncthreads();
    sums[threadIdx.x] = own;
    for (unsigned step = 1; step < THREADS; step *= 2) {
        __syncthreads();
        unsigned const other = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += other;
    }
    __syncthreads();
    *sum = sums[THREADS - 1];
    return sums[threadIdx.x] - own;
}
