// Non-maximum suppression, class by class: of boxes that overlap more than the threshold, the highest score stays.
//
// boxes: [N, B, 4] centre x, centre y, width, height; scores: [N, classes, B], 0 for what is no candidate, changed in place:
// what is suppressed gets a minus sign. threshold: the one that `limit` points to, or `threshold` where that is null.
// found: [N, classes * B], counts: [N], which must be 0: what stays, in any order, each as one number: the higher one has
// the higher score or, of equal scores, the smaller box * classes + class. Both may be null.
//
// Of equal scores the box that stands before the other by the class before wins, and so on down to the first class, then
// the earlier box: darknet's do_nms_sort sorts on from the order of the class before. Overlaps are darknet's box_iou in
// float, operation by operation.
//
// A block does one class of one image: it finds the best box that is left, which stays, and suppresses what overlaps with
// it while it looks for the next one, until none is left. Up to NEAR boxes are kept in shared memory meanwhile. A thread
// writes the scores of its own boxes only; other blocks read them without their sign.
//
// threads = (256, classes, N), block = 256

constexpr int NEAR = 2048;

// NumPy's maximum and minimum: one that is no number wins.
__device__ __forceinline__ float larger(float a, float b) { return a >= b || a != a ? a : b; }
__device__ __forceinline__ float smaller(float a, float b) { return a <= b || a != a ? a : b; }

__device__ __forceinline__ float overlap(float4 a, float4 b) {
    const float left = larger(__fsub_rn(a.x, a.z / 2), __fsub_rn(b.x, b.z / 2));
    const float right = smaller(__fadd_rn(a.x, a.z / 2), __fadd_rn(b.x, b.z / 2));
    const float top = larger(__fsub_rn(a.y, a.w / 2), __fsub_rn(b.y, b.w / 2));
    const float bottom = smaller(__fadd_rn(a.y, a.w / 2), __fadd_rn(b.y, b.w / 2));
    const float width = __fsub_rn(right, left), height = __fsub_rn(bottom, top);
    const float shared = width < 0 || height < 0 ? 0 : __fmul_rn(width, height);
    const float both = __fadd_rn(__fmul_rn(a.z, a.w), __fmul_rn(b.z, b.w));
    return __fdiv_rn(shared, __fsub_rn(both, shared));
}

// The scores of one image, read without the sign that other blocks may set meanwhile.
struct Order {
    const volatile float* scores;
    int kind, count;

    // Whether box i with score a of this class stands before box j with score b.
    __device__ bool before(float a, int i, float b, int j) const {
        if (a != b || i == j) return a > b;
        for (int k = kind - 1; k >= 0; --k) {
            const float one = fabsf(at(k, i)), other = fabsf(at(k, j));
            if (one != other) return one > other;
        }
        return i < j;
    }

    __device__ __forceinline__ float at(int k, int box) const { return scores[static_cast<long long>(k) * count + box]; }
};

__global__ void nms(const float* __restrict__ boxes, float* scores, unsigned long long* found, int* counts,
                    const float* __restrict__ limit, int classes, int count, float threshold) {
    __shared__ float best_score[256], near_scores[NEAR];
    __shared__ int best_index[256];
    __shared__ float4 near_places[NEAR];
    const int thread = threadIdx.x, kind = blockIdx.y;
    const long long image = blockIdx.z;
    const float4* places = reinterpret_cast<const float4*>(boxes) + image * count;
    const Order order = {scores + image * classes * count, kind, count};
    float* const mine = scores + (image * classes + kind) * count;
    float* left = mine;
    if (limit) threshold = *limit;
    if (count <= NEAR) {
        for (int i = thread; i < count; i += 256) near_scores[i] = mine[i];
        left = near_scores;
    }
    float last_score = 0;
    float4 kept = {0, 0, 0, 0};
    int last = -1;  // the box that stayed last; -1: none yet
    for (;;) {
        float score = 0;
        int index = -1;
        for (int i = thread; i < count; i += 256) {
            const float own = left[i];
            if (!(own > 0)) continue;
            if (last >= 0) {
                if (!order.before(last_score, last, own, i)) continue;
                if (overlap(kept, places[i]) > threshold) {
                    left[i] = -own;
                    continue;
                }
            }
            if (index < 0 || order.before(own, i, score, index)) {
                score = own;
                index = i;
            }
        }
        best_score[thread] = score;
        best_index[thread] = index;
        __syncthreads();
        for (int half = 128; half > 0; half /= 2) {
            const int other = thread + half;
            if (thread < half && best_index[other] >= 0 &&
                (best_index[thread] < 0 ||
                 order.before(best_score[other], best_index[other], best_score[thread], best_index[thread]))) {
                best_score[thread] = best_score[other];
                best_index[thread] = best_index[other];
            }
            __syncthreads();
        }
        if (best_index[0] < 0) break;
        if (last < 0 && left != mine) {  // the first: from now on the boxes' places are read again and again
            for (int i = thread; i < count; i += 256) near_places[i] = places[i];
            places = near_places;
        }
        last_score = best_score[0];
        last = best_index[0];
        __syncthreads();
        kept = places[last];
        if (thread == 0 && found) {
            const unsigned place = static_cast<unsigned>(last) * classes + kind;
            const int room = classes * count, next = atomicAdd(counts + image, 1);
            if (next < room) {  // always, if the counters were 0
                found[image * room + next] =
                    static_cast<unsigned long long>(__float_as_int(last_score)) << 32 | (0xFFFFFFFFu - place);
            }
        }
    }
    if (left == mine) return;
    for (int i = thread; i < count; i += 256) {
        if (left[i] < 0) mine[i] = left[i];
    }
}
