// Sums, or products, of the values of a row up to each place. Before it stand pointwise.cu and constants that cumulate.py writes:
// THREADS, a power of two, share a row and have CHUNK places each, one behind the other. EXCLUSIVE: the value at the place itself
// does not count. SUM: else a product.

template <typename T> __device__ __forceinline__ T combined(T a, T b) { return SUM ? add(a, b) : multiply(a, b); }

// `value_at` and `store` get places in the order of the sum.
template <typename T, typename V, typename S> __device__ void cumulate(V value_at, S store) {
    unsigned const self = threadIdx.x % THREADS, begin = self * CHUNK < N ? self * CHUNK : N;
    unsigned const end = begin + CHUNK < N ? begin + CHUNK : N;
    T total = T(SUM ? 0 : 1);
    if constexpr (THREADS > 1) {
        __shared__ T parts[BLOCK];
        T own = total;
        for (unsigned place = begin; place < end; ++place) own = combined(own, value_at(place));
        parts[threadIdx.x] = own;
        __syncthreads();
        for (unsigned other = threadIdx.x - self; other < threadIdx.x; ++other) total = combined(total, parts[other]);
    }
    for (unsigned place = begin; place < end; ++place) {
        T const next = combined(total, value_at(place));
        store(place, EXCLUSIVE ? total : next);
        total = next;
    }
}
