// Updates of a Scatter whose places a block sorts out in shared memory, behind scatter.cu and constants that scatter.py writes.
//
// A line is COUNT updates that may have the same places; each is INNER values. A block has LINES lines, or SPLITS blocks share one.
// A hash table of SLOTS slots, a power of two above COUNT, holds of each place the first and the last of its updates. In which slot
// a place is depends on the order of the threads; what the slot holds does not.

constexpr unsigned EMPTY = 0xFFFFFFFFu;  // no place

// The slot of a place, which is new or has been there.
__device__ __forceinline__ unsigned slot_of(unsigned* keys, unsigned key) {
    unsigned slot = key * 2654435769u >> SHIFT;  // by the golden ratio
    while (true) {
        unsigned const old = atomicCAS(keys + slot, EMPTY, key);
        if (old == EMPTY || old == key) return slot;
        slot = (slot + 1) % SLOTS;
    }
}

// Put the updates of a block at their places: the last one of a place replaces; the first one makes one value of all, in the type T
// and in their order. `key_at` tells the place of an update of a line, `target_at` where its value number `inner` goes.
template <Reduction HOW, typename T, typename K, typename U, typename P>
__device__ __forceinline__ void put_lines(unsigned lines, K key_at, U update_at, P target_at) {
    __shared__ unsigned keys[LINES * SLOTS], firsts[LINES * SLOTS], lasts[LINES * SLOTS];
    __shared__ unsigned short slots[LINES * COUNT];
    unsigned const begin = blockIdx.x / SPLITS * LINES;
    for (unsigned i = threadIdx.x; i < LINES * SLOTS; i += THREADS) {
        keys[i] = firsts[i] = EMPTY;
        lasts[i] = 0;
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < LINES * COUNT; i += THREADS) {
        unsigned const line = ACROSS ? i % LINES : i / COUNT, self = ACROSS ? i / LINES : i % COUNT;
        if (begin + line >= lines) continue;
        unsigned const slot = slot_of(keys + line * SLOTS, key_at(begin + line, self));
        atomicMin(&firsts[line * SLOTS + slot], self);
        atomicMax(&lasts[line * SLOTS + slot], self);
        slots[line * COUNT + self] = static_cast<unsigned short>(slot);
    }
    __syncthreads();
    for (unsigned i = blockIdx.x % SPLITS * THREADS + threadIdx.x; i < LINES * COUNT * INNER; i += SPLITS * THREADS) {
        unsigned const update = i / INNER, inner = i % INNER;
        unsigned const line = ACROSS ? update % LINES : update / COUNT, self = ACROSS ? update / LINES : update % COUNT;
        if (begin + line >= lines) continue;
        unsigned const slot = slots[line * COUNT + self], at = line * SLOTS + slot, last = lasts[at];
        if (self != (HOW == REPLACE ? last : firsts[at])) continue;
        auto* const target = target_at(begin + line, keys[at], inner);
        if constexpr (HOW == REPLACE) {
            *target = update_at(begin + line, self, inner);
        } else {
            T value = reduced<HOW>(static_cast<T>(*target), static_cast<T>(update_at(begin + line, self, inner)));
            for (unsigned other = self + 1; other <= last; ++other) {
                if (slots[line * COUNT + other] != slot) continue;
                value = reduced<HOW>(value, static_cast<T>(update_at(begin + line, other, inner)));
            }
            typedef decltype(update_at(0u, 0u, 0u)) Y;
            *target = static_cast<Y>(value);
        }
    }
}
