// What kernels share that read or write at computed positions.

// A position along an axis of so many values: one below 0 counts from the end, one that is out of range becomes the nearest, and is
// noted in the flag unless that is null.
__device__ __forceinline__ unsigned position(long long index, long long size, bool* flag) {
    if (flag != nullptr && (index < -size || index >= size)) *flag = true;
    index += index < 0 ? size : 0;
    return static_cast<unsigned>(index < 0 ? 0 : index < size ? index : size - 1);
}
