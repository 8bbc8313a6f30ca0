// NonZero: the places of the values that are not zero, in the order of the values. Before it stand block_sums.cu, and constants that
// nonzero.py writes.
//
// A block does CHUNK successive values of N. It publishes how many of them are not zero, adds up what the blocks before it have
// published, and writes its places behind theirs. Blocks take their turns from a counter, so that those before a block have begun when
// it waits for them. `counts` has a number for each block, one too high so that 0 means that it is not there yet; behind them are two
// counters: blocks that have begun, and blocks that are done. All are 0 before and behind a run.

template <typename V, typename W> __device__ void find_nonzero(V is_nonzero, W write, volatile unsigned* counts, long long* number) {
    __shared__ unsigned sums[THREADS], turn, done;
    if (threadIdx.x == 0) turn = atomicAdd(const_cast<unsigned*>(counts + BLOCKS), 1u);
    __syncthreads();
    unsigned const block = turn, first = block * CHUNK + threadIdx.x * VALUES;
    unsigned found = 0, count = 0, all = 0;
#pragma unroll
    for (unsigned i = 0; i < VALUES; ++i) {
        if (first + i < N && is_nonzero(first + i)) {
            found |= 1u << i;
            ++count;
        }
    }
    unsigned place = sum_before(count, sums, &all);
    if (threadIdx.x == 0) {
        counts[block] = all + 1;
        __threadfence();
    }
    unsigned before = 0, begin = 0;
    for (unsigned other = threadIdx.x; other < block; other += THREADS) {
        unsigned published = counts[other];
        while (published == 0) published = counts[other];
        before += published - 1;
    }
    sum_before(before, sums, &begin);
    place += begin;
    for (unsigned i = 0; i < VALUES; ++i) {
        if (found >> i & 1u) write(first + i, place++);
    }
    if (threadIdx.x == 0) {
        if (block == BLOCKS - 1) *number = static_cast<long long>(begin) + all;
        done = atomicAdd(const_cast<unsigned*>(counts + BLOCKS + 1), 1u);
    }
    __syncthreads();
    if (done != BLOCKS - 1) return;
    for (unsigned other = threadIdx.x; other < BLOCKS + 2; other += THREADS) counts[other] = 0;
}
