// Kernels of layers.py.

template <typename T>
__global__ void scale(const T* x, T* y, long long n, float factor, bool inverse) {
    const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (i >= n) return;
    const float value = static_cast<float>(x[i]);
    y[i] = static_cast<T>(inverse ? value / factor : value * factor);
}

// One thread for each channel of each image.
template <typename T>
__global__ void channel_sums(const T* x, float* sums, int channels, int area) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= channels) return;
    float sum = 0;
    for (int place = 0; place < area; ++place) sum += static_cast<float>(x[i * area + place]);
    sums[i] = sum;
}

template <typename T>
__global__ void mean_and_rest(const T* x, const float* sums, T* mean, T* rest, int n, int area) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const T middle = static_cast<T>(sums[i / area] / static_cast<float>(area));
    rest[i] = static_cast<T>(static_cast<float>(x[i]) - static_cast<float>(middle));
    if (i % area == 0) mean[i / area] = middle;
}

// y = a op b, two values a thread where `pairs` says so.
__global__ void join(const float* a, const float* b, float* y, const float* table, int n, int pairs, int kind) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int place = pairs ? 2 * i : i; place < (pairs ? 2 * i + 2 : i + 1) && place < n; ++place) {
        y[place] = kind == 0 ? a[place] + b[place] : kind == 1 ? a[place] * b[place] : a[place] + b[place] * table[place % 3];
    }
}

__global__ void block_sums(const float* x, float* y) {
    __shared__ float parts[64];
    parts[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = parts[0];
}

__global__ void write_float(double* z, double a) {
    if (threadIdx.x == 0) z[0] = a;
}

__global__ void write_whole(long long* y, long long a) {
    if (threadIdx.x == 0) y[0] = a;
}

__global__ void write_numbers(long long* y, double* z, long long a, long long b, long long c, long long d, long long e, long long f,
                              float g, float h, double i, bool j, unsigned char k) {
    if (threadIdx.x != 0) return;
    const long long whole[] = {a, b, c, d, e, f, j, k};
    for (int place = 0; place < 8; ++place) y[place] = whole[place];
    z[0] = g, z[1] = h, z[2] = i;
}

// A slope for each channel.
template <typename T>
__global__ void prelu(const T* x, T* y, const float* slope, int n, int channels, int area) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float value = static_cast<float>(x[i]);
    y[i] = static_cast<T>(value > 0 ? value : value * slope[i / area % channels]);
}

// A matrix times the channels of each pixel, and an offset for each row.
__global__ void mix(const float* x, float* y, const float* matrix, const float* offsets, int n, int rows, int channels, int area,
                    int shift, float gain) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int row = i / area % rows, image = i / area / rows;
    float sum = offsets[row] + shift;
    for (int k = 0; k < channels; ++k) sum += matrix[row * channels + k] * x[(image * channels + k) * area + i % area];
    y[i] = sum * gain;
}

__global__ void affine(const float* x, float* y, const float* scale, const double* shift, int n, int channels, int area) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = static_cast<float>(x[i] * scale[i / area % channels] + shift[i / area % channels]);
}

// Relu of numbers, or of codes whose steps are `from` and `to`.
template <typename T>
__global__ void rectified(const T* x, T* y, long long n, float from, float to) {
    const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (i >= n) return;
    const float value = static_cast<float>(x[i]) * from;
    const float result = value > 0.0f ? value / to : 0.0f;
    y[i] = static_cast<T>(sizeof(T) == 1 ? fminf(rintf(result), 127.0f) : result);
}
