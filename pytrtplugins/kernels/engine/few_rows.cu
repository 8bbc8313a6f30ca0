// A product of a few rows with a matrix, behind nhwc.cu, whose epilogue it has: the time is that of reading the matrix once.

constexpr int FEW = 8, WARPS = 4, WARP = 32;
constexpr int AHEAD = 8;  // pieces of 16 bytes that a thread asks for before it needs the first

template <typename T> __device__ __forceinline__ Vector<T> piece(const T* from, int at, int end) {
    Vector<T> found = {};
    if (at < end) found = *reinterpret_cast<const Vector<T>*>(from + at);
    return found;
}

// Weights [k][c]; c and x_pitch are multiples of 16 bytes. A warp multiplies one filter, 16 bytes a thread. threads = 32 * k.
template <typename T>
__global__ void __launch_bounds__(128)
few_rows(const T* x, const T* weights, const float* scale, const float* bias, const void* residual, void* y, int rows, int c,
         int x_pitch, int k, int y_pitch, int act, float a, float b, int residual_pitch, int residual_kind, float residual_scale,
         int act2, float a2, float b2, int kind, float y_scale) {
    typedef typename Sum<T>::type Total;
    __shared__ Total parts[FEW][WARPS * WARP];
    constexpr int lanes = 16 / sizeof(T);
    int const self = threadIdx.x, lane = self % WARP, filter = blockIdx.x * WARPS + self / WARP;
    Total sums[FEW] = {};
    if (filter < k) {
        const T* const factors = weights + static_cast<long long>(filter) * c;
        for (int first = lane * lanes; first < c; first += AHEAD * WARP * lanes) {
            Vector<T> w[AHEAD];
#pragma unroll
            for (int j = 0; j < AHEAD; ++j) w[j] = piece(factors, first + j * WARP * lanes, c);
#pragma unroll
            for (int row = 0; row < FEW; ++row) {
                if (row >= rows) continue;
                Vector<T> v[AHEAD];
#pragma unroll
                for (int j = 0; j < AHEAD; ++j) v[j] = piece(x + static_cast<long long>(row) * x_pitch, first + j * WARP * lanes, c);
#pragma unroll
                for (int j = 0; j < AHEAD; ++j) {
#pragma unroll
                    for (int i = 0; i < lanes; ++i) {
                        sums[row] += number<Total>(v[j].values[i]) * number<Total>(w[j].values[i]);
                    }
                }
            }
        }
    }
#pragma unroll
    for (int row = 0; row < FEW; ++row) parts[row][self] = sums[row];
    for (int span = WARP / 2; span > 0; span /= 2) {
        __syncthreads();
        for (int row = 0; row < rows; ++row) {
            if (lane < span) parts[row][self] += parts[row][self + span];
        }
    }
    __syncthreads();
    if (lane < rows && filter < k) {
        finish_value(static_cast<float>(parts[lane][self - lane]), filter, scale, bias, act, a, b, residual,
                     static_cast<long long>(lane) * residual_pitch + filter, residual_kind, residual_scale, act2, a2, b2, y,
                     static_cast<long long>(lane) * y_pitch + filter, kind, y_scale);
    }
}
