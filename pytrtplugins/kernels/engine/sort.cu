// A bitonic sort of SIZE entries, a power of two, of which NEAR fit into shared memory: by their keys, the largest first, of equal ones by
// their places. Before it stand order_keys.cu and constants, all written by the file of a kernel that sorts.

typedef Sortable<X>::key Key;
struct alignas(2 * sizeof(Key)) Entry {
    Key key;
    unsigned place;
};

__device__ __forceinline__ bool before(Entry a, Entry b) { return a.key > b.key || (a.key == b.key && a.place < b.place); }

// One step of a sort: pairs of entries that are `step` apart, of which the first has number `first`, rise or fall as their run of
// `size` does.
__device__ __forceinline__ void exchange(Entry* entries, unsigned count, unsigned first, unsigned size, unsigned step) {
    __syncthreads();
    for (unsigned pair = threadIdx.x; pair < count / 2; pair += THREADS) {
        unsigned const low = 2 * pair - (pair & (step - 1)), high = low + step;
        Entry const a = entries[low], b = entries[high];
        if (before(b, a) == (((first + low) & size) == 0)) {
            entries[low] = b;
            entries[high] = a;
        }
    }
}

// The steps below NEAR of runs of some sizes, in shared memory: that of `near` where not all entries are there.
__device__ void sort_near(Entry* entries, Entry* near, unsigned from, unsigned to) {
    for (unsigned first = 0; first < SIZE; first += NEAR) {
        __syncthreads();
        for (unsigned i = threadIdx.x; SIZE > NEAR && i < NEAR; i += THREADS) near[i] = entries[first + i];
        for (unsigned size = from; size <= to; size *= 2) {
            for (unsigned step = (size < NEAR ? size : NEAR) / 2; step; step /= 2) exchange(near, NEAR, first, size, step);
        }
        __syncthreads();
        for (unsigned i = threadIdx.x; SIZE > NEAR && i < NEAR; i += THREADS) entries[first + i] = near[i];
    }
    __syncthreads();
}

__device__ __forceinline__ void sort_entries(Entry* entries, Entry* near) {
    sort_near(entries, near, 2, NEAR);
    for (unsigned size = 2 * NEAR; size <= SIZE; size *= 2) {
        for (unsigned step = size / 2; step >= NEAR; step /= 2) exchange(entries, SIZE, 0, size, step);
        sort_near(entries, near, size, size);
    }
}
