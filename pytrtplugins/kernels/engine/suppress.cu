// NonMaxSuppression: of the boxes of a class that overlap more than a limit, the one with the highest score stays. Before it stand
// constants that suppress.py writes.
//
// A block does one of PAIRS classes of images. It lists the boxes whose scores are high enough, finds the best one that is left,
// drops what overlaps with it, and so on, until LIMIT boxes stay or none is left; of equal scores the first box is the best.
// Overlaps are computed in float, operation by operation, as operators/selection.py computes them. The last block that is done
// writes what stays: image, class and box, ordered by image, class and score.

struct Box {
    float low[2], high[2], area;
};
struct Candidate {
    float score;
    unsigned place;  // N: it is gone
};

// NumPy's maximum and minimum: one that is no number wins.
__device__ __forceinline__ float maximum(float a, float b) { return a >= b || a != a ? a : b; }
__device__ __forceinline__ float minimum(float a, float b) { return a <= b || a != a ? a : b; }

// A box from its four numbers: two corners, or its centre and its sides.
template <typename V> __device__ Box box_of(V value_at) {
    Box box;
#pragma unroll
    for (unsigned axis = 0; axis < 2; ++axis) {
        float const one = value_at(axis), other = value_at(2 + axis);
        box.low[axis] = CENTERED ? __fsub_rn(one, other / 2) : minimum(one, other);
        box.high[axis] = CENTERED ? __fadd_rn(one, other / 2) : maximum(one, other);
    }
    box.area = __fmul_rn(__fsub_rn(box.high[0], box.low[0]), __fsub_rn(box.high[1], box.low[1]));
    return box;
}

__device__ bool overlaps(const Box& a, const Box& b, float limit) {
    float sides[2];
#pragma unroll
    for (unsigned axis = 0; axis < 2; ++axis) {
        sides[axis] = maximum(__fsub_rn(minimum(a.high[axis], b.high[axis]), maximum(a.low[axis], b.low[axis])), 0);
    }
    float const shared = __fmul_rn(sides[0], sides[1]), both = __fsub_rn(__fadd_rn(a.area, b.area), shared);
    return both > 0 && shared > __fmul_rn(limit, both);
}

__device__ __forceinline__ bool is_before(float score, unsigned place, float other, unsigned than) {
    return place != N && (than == N || score > other || (score == other && place < than));
}

// Find the boxes of a class that stay, the best first: `kept_boxes` gets their places, and `count` their number.
template <typename V, typename S>
__device__ void suppress(V value_at, S score_at, float overlap, float lowest, Candidate* candidates, unsigned* kept_boxes, unsigned* count) {
    __shared__ unsigned candidate_count, places[THREADS];
    __shared__ float scores[THREADS];
    if (threadIdx.x == 0) candidate_count = 0;
    __syncthreads();
    for (unsigned place = threadIdx.x; place < N; place += THREADS) {
        float const score = score_at(place);
        if (score > lowest) candidates[atomicAdd(&candidate_count, 1u)] = Candidate{score, place};
    }
    __syncthreads();
    unsigned const all = candidate_count;
    unsigned stay = 0, last = N;
    Box box = {};
    while (stay < LIMIT) {
        float best = 0;
        unsigned best_place = N;
        for (unsigned i = threadIdx.x; i < all; i += THREADS) {
            Candidate const own = candidates[i];
            if (own.place == N) continue;
            if (last != N) {
                if (own.place == last || overlaps(box, box_of([&](unsigned side) { return value_at(own.place, side); }), overlap)) {
                    candidates[i].place = N;
                    continue;
                }
            }
            if (is_before(own.score, own.place, best, best_place)) {
                best = own.score;
                best_place = own.place;
            }
        }
        scores[threadIdx.x] = best;
        places[threadIdx.x] = best_place;
        for (unsigned step = THREADS / 2; step; step /= 2) {
            __syncthreads();
            unsigned const other = threadIdx.x + step;
            if (threadIdx.x < step && is_before(scores[other], places[other], scores[threadIdx.x], places[threadIdx.x])) {
                scores[threadIdx.x] = scores[other];
                places[threadIdx.x] = places[other];
            }
        }
        __syncthreads();
        last = places[0];
        __syncthreads();
        if (last == N) break;
        box = box_of([&](unsigned side) { return value_at(last, side); });
        if (threadIdx.x == 0) kept_boxes[stay] = last;
        ++stay;
    }
    if (threadIdx.x == 0) *count = stay;
}

// The last block that is done writes the rows of all, and how many there are. `done` counts those that are; it is 0 before and behind.
__device__ void write_rows(const volatile unsigned* kept_boxes, const volatile unsigned* counts, unsigned* done, long long* rows, long long* number) {
    __shared__ bool is_last;
    __shared__ unsigned begins[THREADS + 1];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(done, 1u) == PAIRS - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    if (threadIdx.x == 0) {
        *done = 0;
        begins[THREADS] = 0;
    }
    for (unsigned first = 0; first < PAIRS; first += THREADS) {
        __syncthreads();
        unsigned const begin = begins[THREADS], own = first + threadIdx.x < PAIRS ? counts[first + threadIdx.x] : 0;
        __syncthreads();
        begins[threadIdx.x + 1] = own;
        __syncthreads();
        if (threadIdx.x == 0) {
            begins[0] = begin;
            for (unsigned i = 1; i <= THREADS; ++i) begins[i] += begins[i - 1];
        }
        __syncthreads();
        for (unsigned i = threadIdx.x / 32; i < THREADS && first + i < PAIRS; i += THREADS / 32) {
            unsigned const pair = first + i;
            for (unsigned rank = threadIdx.x % 32; begins[i] + rank < begins[i + 1]; rank += 32) {
                long long* const row = rows + 3ull * (begins[i] + rank);
                row[0] = pair / CLASSES;
                row[1] = pair % CLASSES;
                row[2] = kept_boxes[static_cast<unsigned long long>(pair) * LIMIT + rank];
            }
        }
    }
    if (threadIdx.x == 0) *number = begins[THREADS];
}
