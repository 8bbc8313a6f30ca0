// The K best of the N values of a row, the best first, of equal ones the first. Before it stand order_keys.cu, and behind
// constants that top_k.py writes sort.cu.
//
// A block does a row, or one of its SPLITS: then the last block of the row that is done goes on with what all have found, which lies
// in memory. A block finds the K-th best: the highest byte of its key by counting how often each comes, then the next byte among
// those that share it, and so on; among equal keys the bytes of the place. What is not behind it is sorted: SIZE
// entries, a power of two. SELECT: whether there is anything to leave out.

constexpr int COPIES = 4;  // of counts, since threads side by side often have the same byte

struct Counts {
    unsigned copies[256 * COPIES], bytes[256], groups[16], byte, above, taken;
    bool complete;
};

// The next byte of the last one that is wanted: `byte_of` gives an entry's, or -1 for one that is decided. Of those that have it,
// `wanted` are, and whether these are all.
template <typename E, typename F>
__device__ unsigned next_byte(Counts& counts, unsigned count, unsigned& wanted, bool& complete, E entry_at, F byte_of) {
    for (unsigned i = threadIdx.x; i < 256 * COPIES; i += THREADS) counts.copies[i] = 0;
    __syncthreads();
#pragma unroll 8
    for (unsigned i = threadIdx.x; i < count; i += THREADS) {
        int const byte = byte_of(entry_at(i));
        if (byte >= 0) atomicAdd(&counts.copies[byte * COPIES + threadIdx.x % COPIES], 1u);
    }
    __syncthreads();
    for (unsigned byte = threadIdx.x; byte < 256; byte += THREADS) {
        unsigned sum = 0;
        for (int copy = 0; copy < COPIES; ++copy) sum += counts.copies[byte * COPIES + copy];
        counts.bytes[byte] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 16) {
        unsigned sum = 0;
        for (int byte = 0; byte < 16; ++byte) sum += counts.bytes[threadIdx.x * 16 + byte];
        counts.groups[threadIdx.x] = sum;
    }
    __syncthreads();
    for (unsigned byte = threadIdx.x; byte < 256; byte += THREADS) {
        unsigned const own = counts.bytes[byte];
        unsigned above = 0;
#pragma unroll
        for (unsigned next = 1; next < 16; ++next) {
            if (next > byte / 16) above += counts.groups[next];
            if (next > byte % 16) above += counts.bytes[byte / 16 * 16 + next];
        }
        if (above < wanted && wanted <= above + own) {
            counts.byte = byte;
            counts.above = above;
            counts.complete = wanted == above + own;
        }
    }
    __syncthreads();
    wanted -= counts.above;
    complete = counts.complete;
    return counts.byte;
}

// Write the K best of `count` entries, in any order.
template <typename E> __device__ void select(Counts& counts, unsigned count, E entry_at, Entry* best) {
    unsigned wanted = K, ranks = 0;
    Key keys = 0;  // of the last one that is wanted, as many bytes as are known; behind it its place, counted from the end
    int shift = Sortable<X>::bits, rank_shift = RANK_BITS;
    bool complete = false;
    while (!complete && shift > 0) {
        shift -= 8;
        keys = keys << 8 | next_byte(counts, count, wanted, complete, entry_at, [&](Entry entry) {
            return entry.key >> 8 >> shift == keys ? static_cast<int>(entry.key >> shift & 255) : -1;
        });
    }
    while (!complete && rank_shift > 0) {
        rank_shift -= 8;
        ranks = ranks << 8 | next_byte(counts, count, wanted, complete, entry_at, [&](Entry entry) {
            unsigned const rank = N - 1 - entry.place;
            return entry.key == keys && rank >> 8 >> rank_shift == ranks ? static_cast<int>(rank >> rank_shift & 255) : -1;
        });
    }
    if (threadIdx.x == 0) counts.taken = 0;
    __syncthreads();
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < count; i += THREADS) {
        Entry const entry = entry_at(i);
        Key const high = entry.key >> shift;
        bool const equal = rank_shift == RANK_BITS || (N - 1 - entry.place) >> rank_shift >= ranks;
        if (high > keys || (high == keys && equal)) best[atomicAdd(&counts.taken, 1u)] = entry;
    }
}

// Fill `entries` with the best of the row, in order; false: another block does. With SPLITS, `found` has room for what each
// block of the row finds, and `done` counts those that are; it is 0 before and behind.
template <typename V> __device__ bool best_of_row(Entry* entries, Entry* near, Entry* found, unsigned* done, V value_at) {
    auto const entry_at = [&](unsigned place) { return Entry{order_key<LARGEST>(value_at(place)), place}; };
    if constexpr (SELECT) {
        __shared__ Counts counts;
        if constexpr (SPLITS > 1) {
            __shared__ bool last;
            unsigned const split = blockIdx.x % SPLITS, begin = static_cast<unsigned>(N * 1ull * split / SPLITS);
            unsigned const end = static_cast<unsigned>(N * 1ull * (split + 1) / SPLITS);
            select(counts, end - begin, [&](unsigned i) { return entry_at(begin + i); }, found + split * K);
            __threadfence();
            __syncthreads();
            if (threadIdx.x == 0) last = atomicAdd(done, 1u) == SPLITS - 1;
            __syncthreads();
            if (!last) return false;
            __threadfence();
            if (threadIdx.x == 0) *done = 0;
            auto const found_at = [&](unsigned i) {
                const volatile Entry& entry = found[i];
                return Entry{entry.key, entry.place};
            };
            select(counts, SPLITS * K, found_at, entries);
        } else {
            select(counts, N, entry_at, entries);
        }
        for (unsigned i = K + threadIdx.x; i < SIZE; i += THREADS) entries[i] = Entry{0, 0xFFFFFFFFu};
    } else {
        for (unsigned i = threadIdx.x; i < SIZE; i += THREADS) entries[i] = i < N ? entry_at(i) : Entry{0, 0xFFFFFFFFu};
    }
    sort_entries(entries, near);
    return true;
}
