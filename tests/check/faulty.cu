// Copies, or does what `fault` says instead.
template <typename T>
__global__ void faulty(const T* x, T* y, int n, int fault) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int last = n - 1;
    if (fault == 2 && i == last) return;
    y[i] = x[fault == 1 ? last - i : fault == 4 && i == last ? i + 4096 : i];
    if (fault == 3 && i == last) y[i + 4096] = y[i];
    if (fault == 5) const_cast<T*>(x)[i] = static_cast<T>(1);
}
