// The place of the best of the N values of a row. Before it stand order_keys.cu and constants that arg.py writes. THREADS, a power
// of two of at most N, share a row. NaN is better than all numbers. LAST: of equal ones the last counts, else the first.

template <typename Key> __device__ __forceinline__ bool is_better(Key key, unsigned place, Key other, unsigned than) {
    return key > other || (key == other && (LAST ? place > than : place < than));
}

template <typename Key> struct Best {
    Key key;
    unsigned place;
};

// The best of a row, or of a block's part of it; its first thread has it.
template <typename V> __device__ auto best_of_part(V value_at) {
    typedef decltype(value_at(0u)) X;
    typedef typename Sortable<X>::key Key;
    unsigned const self = threadIdx.x % THREADS, split = blockIdx.x % SPLITS;
    unsigned const begin = static_cast<unsigned>(N * 1ull * split / SPLITS), end = static_cast<unsigned>(N * 1ull * (split + 1) / SPLITS);
    Best<Key> best{0, N};
#pragma unroll 4
    for (unsigned next = begin + self; next < end; next += THREADS) {
        X const value = value_at(next);
        Key const key = value != value ? Sortable<X>::all : order_key<LARGEST>(value);
        if (best.place == N || is_better(key, next, best.key, best.place)) best = {key, next};
    }
    if constexpr (THREADS > 1) {
        __shared__ Key keys[BLOCK];
        __shared__ unsigned places[BLOCK];
        keys[threadIdx.x] = best.key;
        places[threadIdx.x] = best.place;
        for (unsigned step = THREADS / 2; step; step /= 2) {
            __syncthreads();
            if (self < step && is_better(keys[threadIdx.x + step], places[threadIdx.x + step], keys[threadIdx.x], places[threadIdx.x])) {
                keys[threadIdx.x] = keys[threadIdx.x + step];
                places[threadIdx.x] = places[threadIdx.x + step];
            }
        }
        best = {keys[threadIdx.x], places[threadIdx.x]};
    }
    return best;
}

// The place of the best of a row for one thread, of all blocks that share it; N for the others. `scratch` has room for what each
// block finds, and behind it a number for each of `rows` rows that counts the blocks that are done: 0 before and behind.
template <typename V> __device__ unsigned best_place(V value_at, unsigned row, unsigned rows, void* scratch) {
    auto const own = best_of_part(value_at);
    if (threadIdx.x % THREADS != 0) return N;
    if constexpr (SPLITS > 1) {
        auto* const found = reinterpret_cast<decltype(best_of_part(value_at))*>(scratch);
        unsigned* const done = reinterpret_cast<unsigned*>(found + rows * SPLITS) + row;
        found[row * SPLITS + blockIdx.x % SPLITS] = own;
        __threadfence();
        if (atomicAdd(done, 1u) != SPLITS - 1) return N;
        __threadfence();
        auto best = own;
#pragma unroll
        for (unsigned split = 0; split < SPLITS; ++split) {
            const volatile auto& other = found[row * SPLITS + split];
            decltype(best.key) const key = other.key;
            unsigned const place = other.place;
            if (is_better(key, place, best.key, best.place)) best = {key, place};
        }
        *done = 0;
        return best.place;
    }
    return own.place;
}
