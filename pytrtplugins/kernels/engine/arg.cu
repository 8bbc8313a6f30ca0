// The place of the best of the N values of a row. Before it stand order_keys.cu and constants that arg.py writes. THREADS, a power
// of two of at most N, share a row. NaN is better than all numbers. LAST: of equal ones the last counts, else the first.

template <typename Key> __device__ __forceinline__ bool is_better(Key key, unsigned place, Key other, unsigned than) {
    return key > other || (key == other && (LAST ? place > than : place < than));
}

// Every thread of the row gets the place.
template <typename V> __device__ unsigned best_place(V value_at) {
    typedef decltype(value_at(0u)) X;
    typedef typename Sortable<X>::key Key;
    unsigned const self = threadIdx.x % THREADS;
    Key best = 0;
    unsigned place = N;
#pragma unroll 4
    for (unsigned next = self; next < N; next += THREADS) {
        X const value = value_at(next);
        Key const key = value != value ? Sortable<X>::all : order_key<LARGEST>(value);
        if (place == N || is_better(key, next, best, place)) {
            best = key;
            place = next;
        }
    }
    if constexpr (THREADS > 1) {
        __shared__ Key keys[BLOCK];
        __shared__ unsigned places[BLOCK];
        keys[threadIdx.x] = best;
        places[threadIdx.x] = place;
        for (unsigned step = THREADS / 2; step; step /= 2) {
            __syncthreads();
            if (self < step && is_better(keys[threadIdx.x + step], places[threadIdx.x + step], keys[threadIdx.x], places[threadIdx.x])) {
                keys[threadIdx.x] = keys[threadIdx.x + step];
                places[threadIdx.x] = places[threadIdx.x + step];
            }
        }
        __syncthreads();
        place = places[threadIdx.x - self];
    }
    return place;
}
