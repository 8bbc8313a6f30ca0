// Non-maximum suppression, class by class: of boxes that overlap more than the threshold, the highest score stays.
//
// boxes: [N, B, 4] centre x, centre y, width, height; scores: [N, classes, B], 0 for what is no candidate, changed in place:
// what is suppressed gets a minus sign. threshold: the one that `limit` points to, or `threshold` where that is null.
// power: at least 0: the overlap is lessened by (squared distance of the centres / squared diagonal of the box around both) to
// this power, as the fork's box_diou and box_diounms do; below 0: it is not.
// found: [N, classes * B], counts: [N], which must be 0: what stays, in any order, each as one number: the higher one has
// the higher score or, of equal scores, the smaller box * classes + class. Both may be null.
//
// Of equal scores the box that stands before the other by the class before wins, and so on down to the first class, then
// the earlier box: darknet's do_nms_sort sorts on from the order of the class before. Overlaps are darknet's box_iou in
// float, operation by operation.
//
// A block does one class of one image. It puts the candidates in order, in shared memory, each at the number of those before
// it; then the first stays and suppresses what overlaps with it, then the next one that is left, and so on. Where there are
// more than NEAR candidates it searches memory for the best one that is left, again and again. A thread writes the scores
// of its own boxes only; other blocks read them without their sign.
//
// threads = (256, classes, N), block = 256

constexpr int NEAR = 2048;

// NumPy's maximum and minimum: one that is no number wins.
__device__ __forceinline__ float larger(float a, float b) { return a >= b || a != a ? a : b; }
__device__ __forceinline__ float smaller(float a, float b) { return a <= b || a != a ? a : b; }

__device__ __forceinline__ float squares(float x, float y) { return __fadd_rn(__fmul_rn(x, x), __fmul_rn(y, y)); }

__device__ __forceinline__ float overlap(float4 a, float4 b, double power) {
    const float a_left = __fsub_rn(a.x, a.z / 2), b_left = __fsub_rn(b.x, b.z / 2);
    const float a_right = __fadd_rn(a.x, a.z / 2), b_right = __fadd_rn(b.x, b.z / 2);
    const float a_top = __fsub_rn(a.y, a.w / 2), b_top = __fsub_rn(b.y, b.w / 2);
    const float a_bottom = __fadd_rn(a.y, a.w / 2), b_bottom = __fadd_rn(b.y, b.w / 2);
    const float width = __fsub_rn(smaller(a_right, b_right), larger(a_left, b_left));
    const float height = __fsub_rn(smaller(a_bottom, b_bottom), larger(a_top, b_top));
    const float shared = width < 0 || height < 0 ? 0 : __fmul_rn(width, height);
    const float both = __fadd_rn(__fmul_rn(a.z, a.w), __fmul_rn(b.z, b.w));
    const float plain = __fdiv_rn(shared, __fsub_rn(both, shared));
    if (power < 0) return plain;
    const float diagonal = squares(__fsub_rn(larger(a_right, b_right), smaller(a_left, b_left)),
                                   __fsub_rn(larger(a_bottom, b_bottom), smaller(a_top, b_top)));
    if (diagonal == 0) return plain;
    const float distance = squares(__fsub_rn(a.x, b.x), __fsub_rn(a.y, b.y));
    return __fsub_rn(plain, static_cast<float>(pow(static_cast<double>(__fdiv_rn(distance, diagonal)), power)));
}

// The scores of one image, read without the sign that other blocks may set meanwhile.
struct Order {
    const volatile float* scores;
    int kind, count;

    // Whether box i with score a of this class stands before box j with score b.
    __device__ bool before(float a, int i, float b, int j) const {
        if (a != b || i == j) return a > b;
        for (int k = kind - 1; k >= 0; --k) {
            const float one = at(k, i), other = at(k, j);
            if (one != other) return one > other;
        }
        return i < j;
    }

    // What is no number counts as 0: candidates that cannot be put in order would get the same place.
    __device__ __forceinline__ float at(int k, int box) const {
        return fmaxf(fabsf(scores[static_cast<long long>(k) * count + box]), 0.0f);
    }
};

// One class of one image.
struct Class {
    Order order;
    const float4* places;
    float* scores;
    unsigned long long* found;  // null: nobody asks
    int* kept;                  // how many there are
    int count, kinds;
    float threshold;
    double power;

    __device__ __forceinline__ bool clash(float4 kept_place, int box) const {
        return overlap(kept_place, places[box], power) > threshold;
    }

    __device__ __forceinline__ void keep(int box) const {
        if (!found) return;
        const int next = atomicAdd(kept, 1);
        if (next >= kinds * count) return;  // never, if the counters were 0
        const unsigned place = static_cast<unsigned>(box) * kinds + order.kind;
        found[next] = static_cast<unsigned long long>(__float_as_int(scores[box])) << 32 | (0xFFFFFFFFu - place);
    }
};

__device__ void in_memory(const Class& of) {
    __shared__ float best_score[256];
    __shared__ int best_box[256];
    const int thread = threadIdx.x;
    float last_score = 0;
    float4 place = {0, 0, 0, 0};
    int last = -1;  // the box that stayed last; -1: none yet
    for (;;) {
        float score = 0;
        int box = -1;
        for (int i = thread; i < of.count; i += 256) {
            const float own = of.scores[i];
            if (!(own > 0)) continue;
            if (last >= 0) {
                if (!of.order.before(last_score, last, own, i)) continue;
                if (of.clash(place, i)) {
                    of.scores[i] = -own;
                    continue;
                }
            }
            if (box < 0 || of.order.before(own, i, score, box)) {
                score = own;
                box = i;
            }
        }
        best_score[thread] = score;
        best_box[thread] = box;
        __syncthreads();
        for (int half = 128; half > 0; half /= 2) {
            const int other = thread + half;
            if (thread < half && best_box[other] >= 0 &&
                (best_box[thread] < 0 ||
                 of.order.before(best_score[other], best_box[other], best_score[thread], best_box[thread]))) {
                best_score[thread] = best_score[other];
                best_box[thread] = best_box[other];
            }
            __syncthreads();
        }
        last_score = best_score[0];
        last = best_box[0];
        if (last < 0) return;
        __syncthreads();
        place = of.places[last];
        if (thread == 0) of.keep(last);
    }
}

__global__ void nms(const float* __restrict__ boxes, float* scores, unsigned long long* found, int* counts,
                    const float* __restrict__ limit, int classes, int count, float threshold, double power) {
    __shared__ float listed_scores[NEAR];
    __shared__ int listed[NEAR], ordered[NEAR], candidates;
    __shared__ bool gone[NEAR];
    const int thread = threadIdx.x, kind = blockIdx.y;
    const long long image = blockIdx.z, room = static_cast<long long>(classes) * count;
    const Order order = {scores + image * room, kind, count};
    const Class of = {order,
                      reinterpret_cast<const float4*>(boxes) + image * count,
                      scores + image * room + static_cast<long long>(kind) * count,
                      found ? found + image * room : nullptr,
                      counts + image,
                      count,
                      classes,
                      limit ? *limit : threshold,
                      power};
    if (thread == 0) candidates = 0;
    __syncthreads();
    for (int i = thread; i < count; i += 256) {
        const float own = of.scores[i];
        if (!(own > 0)) continue;
        const int next = atomicAdd(&candidates, 1);
        if (next >= NEAR) continue;
        listed[next] = i;
        listed_scores[next] = own;
    }
    __syncthreads();
    const int many = candidates;
    if (many > NEAR) {
        in_memory(of);
        return;
    }
    for (int i = thread; i < many; i += 256) {
        int before = 0;
        for (int k = 0; k < many; ++k) before += order.before(listed_scores[k], listed[k], listed_scores[i], listed[i]);
        ordered[before] = listed[i];
        gone[i] = false;
    }
    __syncthreads();
    for (int first = 0; first < many; ++first) {
        if (gone[first]) continue;  // the same for all threads: only what is behind the one that stays is written
        const float4 place = of.places[ordered[first]];
        for (int i = thread; i < many; i += 256) {
            if (i > first && !gone[i] && of.clash(place, ordered[i])) gone[i] = true;
        }
        __syncthreads();
    }
    for (int i = thread; i < many; i += 256) {
        const int box = ordered[i];
        if (gone[i]) {
            of.scores[box] = -of.scores[box];
        } else {
            of.keep(box);
        }
    }
}
