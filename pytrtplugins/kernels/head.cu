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

// v := e^v for some v <= 0, in double, rounded. On a device they are worked on together, without exp()'s branches, since one
// alone waits for its own last step all the time. The doubles are as near to e^v as exp()'s: v = k ln 2 + r with
// |r| <= ln 2 / 2, and Taylor's series for e^r.
constexpr int BATCH = 5;

__device__ __forceinline__ void powers(float (&v)[BATCH]) {
#ifdef __CUDA_ARCH__
    const double terms[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                            1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      0.5,         1.0,      1.0};
    double r[BATCH], sum[BATCH];
    int k[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
        const double x = fmax(static_cast<double>(v[i]), -150.0);  // below, the float is 0
        k[i] = __double2int_rn(x * 1.4426950408889634);
        r[i] = fma(static_cast<double>(k[i]), -1.9082149292705877e-10, fma(static_cast<double>(k[i]), -0.6931471803691238, x));
        sum[i] = 1.0 / 6227020800.0;
    }
#pragma unroll
    for (int term = 0; term < 13; ++term) {
#pragma unroll
        for (int i = 0; i < BATCH; ++i) sum[i] = fma(sum[i], r[i], terms[term]);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
        v[i] = __double2float_rn(sum[i] * __longlong_as_double(static_cast<long long>(1023 + k[i]) << 52));
    }
#else
    for (float& value : v) value = __double2float_rn(exp(static_cast<double>(value)));
#endif
}

// Values e .. e + BATCH - 1 of a softmax's exponentials; 0 from `end` on.
template <typename T>
__device__ __forceinline__ void exponentials(const T* x, long long step, int e, int end, float largest, float (&v)[BATCH]) {
#pragma unroll
    for (int i = 0; i < BATCH; ++i) v[i] = e + i < end ? static_cast<float>(x[(e + i) * step]) - largest : -150.0f;
    powers(v);
}

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
    if ((kind & 3) == 2) {
        float largest = static_cast<float>(x[begin * step]), total = 0, v[BATCH];
#pragma unroll 5
        for (int e = begin + 1; e < end; ++e) largest = fmaxf(largest, static_cast<float>(x[e * step]));
        for (int e = begin; e < end; e += BATCH) {
            exponentials(x, step, e, end, largest, v);
#pragma unroll
            for (int i = 0; i < BATCH; ++i) total = __fadd_rn(total, v[i]);
        }
        const float share = __fdiv_rn(1.0f, total);
        for (int e = begin; e < end; e += BATCH) {
            exponentials(x, step, e, end, largest, v);
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                if (e + i < end) y[(e + i) * step] = T(__fmul_rn(v[i], share));
            }
        }
    } else {
        for (int e = begin; e < end; ++e) {
            const T value = x[e * step];
            if (kind & 1) {
                store(y + e * step, 1.0 / (1.0 + exp(-static_cast<double>(static_cast<float>(value)))));
            } else {
                y[e * step] = value;
            }
        }
    }
    if (kind & 4) {
        for (int e = begin; e < end; ++e) {
            y[e * step] = T(__fadd_rn(__fmul_rn(static_cast<float>(y[e * step]), factor), summand));
        }
    }
}
