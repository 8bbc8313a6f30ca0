// Means of each channel of images in NHWC, behind nhwc.cu, early.cu and constants that means.py writes.
//
// A block has SIDE pieces of 16 bytes of channels, side by side, and a share of an image's pixels. Where there are several
// SPLITS, the last block of these channels adds what all have left in `scratch`: in fixed order, so that means repeat bit by
// bit. `scratch` has the parts, [image][split][channel], and behind them a count of blocks for each image and run of channels,
// which begins with 0 and is left so.

constexpr int LANES = 16 / sizeof(T), COLUMNS = SIDE * LANES, ROWS = THREADS / SIDE, PARTS = THREADS / COLUMNS;
constexpr int GROUPS = (C + COLUMNS - 1) / COLUMNS, PADDED = GROUPS * COLUMNS;
static_assert(THREADS % COLUMNS == 0, "each channel of the block has as many threads");

extern "C" __global__ void __launch_bounds__(THREADS) means(const void* x, void* y, void* scratch) {
    __shared__ float sums[ROWS * COLUMNS];
    __shared__ bool last;
    int const self = threadIdx.x, split = blockIdx.x % SPLITS, group = blockIdx.x / SPLITS % GROUPS, image = blockIdx.x / SPLITS / GROUPS;
    int const begin = static_cast<int>(static_cast<long long>(AREA) * split / SPLITS), column = self % COLUMNS;
    int const end = static_cast<int>(static_cast<long long>(AREA) * (split + 1) / SPLITS), channel = group * COLUMNS + column;
    const T* const from = static_cast<const T*>(x) + static_cast<long long>(image) * AREA * X_PITCH + (group * SIDE + self % SIDE) * LANES;
    float own[LANES] = {};
    begin_kernel();
    if ((group * SIDE + self % SIDE) * LANES < C) {
#pragma unroll 8
        for (int pixel = begin + self / SIDE; pixel < end; pixel += ROWS) {
            Vector<T> const found = *reinterpret_cast<const Vector<T>*>(from + static_cast<long long>(pixel) * X_PITCH);
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) own[lane] += static_cast<float>(found.values[lane]);
        }
    }
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) sums[self * LANES + lane] = own[lane];  // [thread / SIDE][channel of the block]
    __syncthreads();
    float total = 0.0f;
#pragma unroll
    for (int row = 0; row < LANES; ++row) total += sums[(self / COLUMNS * LANES + row) * COLUMNS + column];
    __syncthreads();
    sums[self] = total;
    __syncthreads();
    total = 0.0f;
    for (int part = 0; part < PARTS; ++part) total += sums[part * COLUMNS + column];
    if (SPLITS > 1) {
        float* const parts = static_cast<float*>(scratch) + static_cast<long long>(image) * SPLITS * PADDED;
        int* const counts = static_cast<int*>(scratch) + N * SPLITS * PADDED;
        if (self < COLUMNS) {
            parts[split * PADDED + channel] = total;
            __threadfence();
        }
        __syncthreads();
        if (self == 0) last = atomicAdd(&counts[image * GROUPS + group], 1) == SPLITS - 1;
        __syncthreads();
        if (!last) return;
        __threadfence();
        if (self == 0) counts[image * GROUPS + group] = 0;
        total = 0.0f;
        if (self < COLUMNS) {
#pragma unroll 8
            for (int other = 0; other < SPLITS; ++other) total += static_cast<volatile const float*>(parts)[other * PADDED + channel];
        }
    }
    if (self < COLUMNS && channel < C) {
        static_cast<Y*>(y)[static_cast<long long>(image) * Y_PITCH + channel] = static_cast<Y>(total * FACTOR);
    }
}
