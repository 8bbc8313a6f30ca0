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
constexpr int BATCH = 5, KEPT = 20;
constexpr float NONE = -3.4e38f;

template <int COUNT> __device__ __forceinline__ void powers(float (&v)[COUNT]) {
#ifdef __CUDA_ARCH__
    const double terms[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                            1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      0.5,         1.0,      1.0};
    double r[COUNT], sum[COUNT];
    int k[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const double x = v[i] < -150 ? -150.0 : v[i];  // below, the float is 0; not a number stays none
        k[i] = __double2int_rn(x * 1.4426950408889634);
        r[i] = fma(static_cast<double>(k[i]), -1.9082149292705877e-10, fma(static_cast<double>(k[i]), -0.6931471803691238, x));
        sum[i] = 1.0 / 6227020800.0;
    }
#pragma unroll
    for (int term = 0; term < 13; ++term) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) sum[i] = fma(sum[i], r[i], terms[term]);
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        v[i] = __double2float_rn(sum[i] * __longlong_as_double(static_cast<long long>(1023 + k[i]) << 52));
    }
#else
    for (float& value : v) value = __double2float_rn(exp(static_cast<double>(value)));
#endif
}

// Values e .. e + COUNT - 1 of a softmax, less the largest; behind `end` what no sum feels.
template <int COUNT, typename T>
__device__ __forceinline__ void load(const T* x, long long step, int e, int end, float largest, float (&v)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) v[i] = e + i < end ? static_cast<float>(x[(e + i) * step]) - largest : NONE;
}

template <int COUNT> __device__ __forceinline__ void add(float& total, const float (&v)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) total = __fadd_rn(total, v[i]);
}

template <int COUNT, typename T>
__device__ __forceinline__ void save(T* y, long long step, int e, int end, float share, const float (&v)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if (e + i < end) y[(e + i) * step] = T(__fmul_rn(v[i], share));
    }
}

// Few values stay in registers: each is read once, and no exponential waits for another.
template <typename T> __device__ __forceinline__ void softmax_of_few(const T* x, T* y, long long step, int begin, int end) {
    float v[KEPT], total = 0;
    load(x, step, begin, end, 0.0f, v);
    float largest = v[0];
#pragma unroll
    for (int i = 1; i < KEPT; ++i) largest = fmaxf(largest, v[i]);
#pragma unroll
    for (int i = 0; i < KEPT; ++i) v[i] -= largest;
    powers(v);
    add(total, v);
    save(y, step, begin, end, __fdiv_rn(1.0f, total), v);
}

template <typename T> __device__ __forceinline__ void softmax_of_many(const T* x, T* y, long long step, int begin, int end) {
    float v[BATCH], largest = static_cast<float>(x[begin * step]), total = 0;
#pragma unroll 20
    for (int e = begin + 1; e < end; ++e) largest = fmaxf(largest, static_cast<float>(x[e * step]));
    for (int e = begin; e < end; e += BATCH) {
        load(x, step, e, end, largest, v);
        powers(v);
        add(total, v);
    }
    const float share = __fdiv_rn(1.0f, total);
    for (int e = begin; e < end; e += BATCH) {
        load(x, step, e, end, largest, v);
        powers(v);
        save(y, step, e, end, share, v);
    }
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
        if (end - begin <= KEPT) {
            softmax_of_few(x, y, step, begin, end);
        } else {
            softmax_of_many(x, y, step, begin, end);
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
