// Non-maximum suppression, class by class: of boxes that overlap more than the threshold, the highest score stays.
//
// boxes: [N, B, 4] centre x, centre y, width, height; scores: [N, classes, B], changed in place: 0 for what is suppressed.
// Of equal scores the earlier box wins. Overlaps are darknet's box_iou in float, operation by operation.
//
// A block does one class of one image: it finds the best box that is left, which stays, and suppresses what overlaps with
// it, until none is left. A thread reads and writes the scores of its own boxes only.
//
// threads = (256, classes, N), block = 256

__device__ __forceinline__ float overlap(float4 a, float4 b) {
    const float left = fmaxf(__fsub_rn(a.x, a.z / 2), __fsub_rn(b.x, b.z / 2));
    const float right = fminf(__fadd_rn(a.x, a.z / 2), __fadd_rn(b.x, b.z / 2));
    const float top = fmaxf(__fsub_rn(a.y, a.w / 2), __fsub_rn(b.y, b.w / 2));
    const float bottom = fminf(__fadd_rn(a.y, a.w / 2), __fadd_rn(b.y, b.w / 2));
    const float width = __fsub_rn(right, left), height = __fsub_rn(bottom, top);
    const float shared = width < 0 || height < 0 ? 0 : __fmul_rn(width, height);
    const float both = __fadd_rn(__fmul_rn(a.z, a.w), __fmul_rn(b.z, b.w));
    return __fdiv_rn(shared, __fsub_rn(both, shared));
}

// Whether box i with score a stands before box j with score b.
__device__ __forceinline__ bool before(float a, int i, float b, int j) { return a > b || (a == b && i < j); }

__global__ void nms(const float* __restrict__ boxes, float* __restrict__ scores, int classes, int count, float threshold) {
    __shared__ float best_score[256];
    __shared__ int best_index[256];
    const int thread = threadIdx.x;
    const float4* const places = reinterpret_cast<const float4*>(boxes) + static_cast<long long>(blockIdx.z) * count;
    float* const mine = scores + (static_cast<long long>(blockIdx.z) * classes + blockIdx.y) * count;
    float last_score = 0;
    int last = -1;  // the box that stayed last; -1: none yet
    for (;;) {
        float score = 0;
        int index = count;
        for (int i = thread; i < count; i += 256) {
            const float own = mine[i];
            if (own > 0 && (last < 0 || before(last_score, last, own, i)) && before(own, i, score, index)) {
                score = own;
                index = i;
            }
        }
        best_score[thread] = score;
        best_index[thread] = index;
        __syncthreads();
        for (int half = 128; half > 0; half /= 2) {
            if (thread < half && before(best_score[thread + half], best_index[thread + half], best_score[thread],
                                        best_index[thread])) {
                best_score[thread] = best_score[thread + half];
                best_index[thread] = best_index[thread + half];
            }
            __syncthreads();
        }
        last_score = best_score[0];
        last = best_index[0];
        __syncthreads();
        if (!(last_score > 0)) return;
        const float4 kept = places[last];
        for (int i = thread; i < count; i += 256) {
            if (mine[i] > 0 && before(last_score, last, mine[i], i) && overlap(kept, places[i]) > threshold) mine[i] = 0;
        }
    }
}
