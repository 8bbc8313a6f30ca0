// A product of a few rows with a matrix: behind nhwc.cu, whose epilogue it has, early.cu, and constants that fixed.py writes. The
// time is that of reading the matrix once; its first pieces are asked for before what the rows are made of is there.

typedef typename Sum<T>::type Total;
constexpr int WARPS = 4, WARP = 32, LANES = 16 / sizeof(T);
constexpr int AHEAD = C > 4 * WARP * LANES ? 8 : 4;  // pieces of 16 bytes that a thread asks for before it needs the first
constexpr int STEP = AHEAD * WARP * LANES;

__device__ __forceinline__ void fetch(Vector<T> (&pieces)[AHEAD], const T* from, int first) {
#pragma unroll
    for (int j = 0; j < AHEAD; ++j) {
        int const at = first + j * WARP * LANES;
        pieces[j] = {};
        if (at < C) pieces[j] = *reinterpret_cast<const Vector<T>*>(from + at);
    }
}

// Weights [K][C]; C and X_PITCH are multiples of 16 bytes. A warp multiplies one filter, 16 bytes a thread. `given_steps`: the
// scales of the residual and of y; 1 for floats. Filters from K on are padding.
extern "C" __global__ void __launch_bounds__(WARPS * WARP)
few_rows(const void* x, const void* weights, const void* scale, const void* bias, const void* given_steps, const void* residual, void* y) {
    __shared__ Total parts[ROWS][WARPS * WARP];
    int const self = threadIdx.x, lane = self % WARP, filter = blockIdx.x * WARPS + self / WARP, first = lane * LANES;
    const T* const factors = static_cast<const T*>(weights) + static_cast<long long>(filter < K ? filter : 0) * C;
    Total sums[ROWS] = {};
    Vector<T> w[AHEAD], v[AHEAD];
    fetch(w, factors, first);
    begin_kernel();
    for (int at = first; at < C; at += STEP) {
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            fetch(v, static_cast<const T*>(x) + static_cast<long long>(row) * X_PITCH, at);
#pragma unroll
            for (int j = 0; j < AHEAD; ++j) {
#pragma unroll
                for (int i = 0; i < LANES; ++i) sums[row] += number<Total>(v[j].values[i]) * number<Total>(w[j].values[i]);
            }
        }
        if (at + STEP < C) fetch(w, factors, at + STEP);
    }
#pragma unroll
    for (int row = 0; row < ROWS; ++row) parts[row][self] = sums[row];
    for (int span = WARP / 2; span > 0; span /= 2) {
        __syncthreads();
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            if (lane < span) parts[row][self] += parts[row][self + span];
        }
    }
    __syncthreads();
    if (lane >= ROWS || filter >= FILTERS) return;
    long long const at = static_cast<long long>(lane) * Y_PITCH + filter;
    if (filter >= K) {
        store(y, at, OUT, 0.0f, 1.0f);
        return;
    }
    const float* const steps = static_cast<const float*>(given_steps);
    finish_value<OUT != FLOAT>(static_cast<float>(parts[lane][self - lane]), filter, SCALED ? static_cast<const float*>(scale) : nullptr,
                 static_cast<const float*>(bias), static_cast<const float*>(bias) + K, ACTIVATION, A, B, RESIDUAL < 0 ? nullptr : residual,
                 static_cast<long long>(lane) * RESIDUAL_PITCH + filter, RESIDUAL, is_codes(RESIDUAL) ? steps[0] : 1.0f,
                 RESIDUAL_ACTIVATION, RESIDUAL_A, RESIDUAL_B, y, at, OUT, is_codes(OUT) ? steps[1] : 1.0f);
}
