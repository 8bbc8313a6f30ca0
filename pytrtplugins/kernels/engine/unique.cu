// Unique: the values of N that differ, the first place and the number of each, and for each place which of them its value is. Before it
// stand order_keys.cu, block_sums.cu, sort.cu and constants that unique.py writes.
//
// One block sorts the values, of equal ones the first first: a run is what is equal, and its first entry is its head. SORTED: runs are
// numbered in this order; else in the order of the places of their heads. `heads` and `order` have room for N numbers.

template <typename V, typename W, typename I>
__device__ void find_unique(V value_at, W write, I write_run, Entry* entries, Entry* near, unsigned* heads, unsigned* order, long long* number) {
    __shared__ unsigned sums[THREADS];
    for (unsigned i = threadIdx.x; i < SIZE; i += THREADS) {
        entries[i] = i < N ? Entry{order_key<false>(value_at(i)), i} : Entry{0, 0xFFFFFFFFu};
    }
    sort_entries(entries, near);
    __syncthreads();
    auto const is_head = [&](unsigned i) { return i == 0 || entries[i].key != entries[i - 1].key; };
    unsigned const begin = threadIdx.x * CHUNK, end = begin + CHUNK < N ? begin + CHUNK : N;
    unsigned count = 0, runs = 0, all = 0;
    for (unsigned i = begin; i < end; ++i) count += is_head(i);
    unsigned const before = sum_before(count, sums, &runs);
    for (unsigned i = begin, run = before; i < end; ++i) {
        bool const head = is_head(i);
        if (head) heads[run++] = i;
        if constexpr (!SORTED) order[entries[i].place] = head;
    }
    __syncthreads();
    if constexpr (!SORTED) {
        count = 0;
        for (unsigned place = begin; place < end; ++place) count += order[place];
        unsigned run = sum_before(count, sums, &all);
        for (unsigned place = begin; place < end; ++place) {
            bool const head = order[place];
            order[place] = run;
            run += head;
        }
        __syncthreads();
    }
    for (unsigned i = begin, next = before; i < end; ++i) {
        bool const head = is_head(i);
        next += head;
        unsigned const first = heads[next - 1], place = entries[first].place;
        unsigned const run = SORTED ? next - 1 : order[place];
        if (head) write(run, place, (next < runs ? heads[next] : N) - first);
        write_run(entries[i].place, run);
    }
    if (threadIdx.x == 0) *number = runs;
}
