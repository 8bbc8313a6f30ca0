// The activations of darknet's heads, region and yolo: logistic, softmax, or nothing, each for some entries of a box.
//
// x, y: [N, boxes * entries, H, W]; nhwc: the channels lie innermost in memory. slots: what to do, three numbers for each
// slot: kind (0 nothing, 1 logistic, 2 softmax; 4 added: then times `factor` plus `summand`), first entry, entry behind
// the last. A softmax is one slot; other entries may have one each, so that they are worked on side by side.
//
// A thread does one slot of one box. Neighbouring threads take neighbouring cells, or in NHWC neighbouring slots.
// linear: threads = (area, boxes * slot_count, N); nhwc: threads = (boxes * slot_count, area, N)
//
// Exponentials are double, as in `compute`: the results have its bits. A head has some ten thousand values, which costs
// microseconds where doubles are slow.

__device__ __forceinline__ void store(float* y, double value) { *y = __double2float_rn(value); }

// By way of a float that is rounded to odd, so that the second rounding sees on which side the first one was.
__device__ __forceinline__ void store(__half* y, double value) {
    float near = __double2float_rz(value);
    if (static_cast<double>(near) != value) near = __int_as_float(__float_as_int(near) | 1);
    *y = __half(near);
}

// The exponentials of a softmax are needed twice: floats wait for the sum where the results will be, halves are made again.
__device__ __forceinline__ float power(float number) { return __double2float_rn(exp(static_cast<double>(number))); }
__device__ __forceinline__ void keep(float* y, float value) { *y = value; }
__device__ __forceinline__ void keep(__half*, float) {}
__device__ __forceinline__ float kept(const float* y, float) { return *y; }
__device__ __forceinline__ float kept(const __half*, float number) { return power(number); }

template <typename T>
__global__ void head(const T* __restrict__ x, T* __restrict__ y, const int* __restrict__ slots, int slot_count,
                     int boxes, int entries, int area, bool nhwc, float factor, float summand) {
    const int inner = blockIdx.x * blockDim.x + threadIdx.x, outer = blockIdx.y * blockDim.y + threadIdx.y;
    const int cell = nhwc ? outer : inner, work = nhwc ? inner : outer;
    if (cell >= area || work >= boxes * slot_count) return;
    const int box = work / slot_count, slot = work - box * slot_count;
    const int kind = slots[3 * slot], begin = slots[3 * slot + 1], end = slots[3 * slot + 2];
    const int channels = boxes * entries;
    const long long step = nhwc ? 1 : area;
    const long long origin = static_cast<long long>(blockIdx.z) * channels * area + (box * entries) * step
                             + static_cast<long long>(cell) * (nhwc ? channels : 1);
    x += origin;
    y += origin;
    float largest = 0, share = 0;
    if ((kind & 3) == 2) {
        float total = 0;
        largest = static_cast<float>(x[begin * step]);
        for (int e = begin + 1; e < end; ++e) largest = fmaxf(largest, static_cast<float>(x[e * step]));
        for (int e = begin; e < end; ++e) {
            const float value = power(static_cast<float>(x[e * step]) - largest);
            total = __fadd_rn(total, value);
            keep(y + e * step, value);
        }
        share = __fdiv_rn(1.0f, total);
    }
    for (int e = begin; e < end; ++e) {
        const T value = x[e * step];
        T* const to = y + e * step;
        const float number = static_cast<float>(value);
        if ((kind & 3) == 1) {
            store(to, 1.0 / (1.0 + exp(-static_cast<double>(number))));
        } else if ((kind & 3) == 2) {
            *to = T(__fmul_rn(kept(to, number - largest), share));
        } else {
            *to = value;
        }
        if (kind & 4) *to = T(__fadd_rn(__fmul_rn(static_cast<float>(*to), factor), summand));
    }
}
