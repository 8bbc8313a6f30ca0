// What kernels share that read or write at computed positions.

// A position along an axis of so many values: one below 0 counts from the end, one that is out of range becomes the nearest, and is
// noted in the flag unless that is null.
__device__ __forceinline__ unsigned position(long long index, long long size, bool* flag) {
    if (flag != nullptr && (index < -size || index >= size)) *flag = true;
    index += index < 0 ? size : 0;
    return static_cast<unsigned>(index < 0 ? 0 : index < size ? index : size - 1);
}

// Where a step of a sequence comes from that is reversed up to its length; a length below 0 or above the number of steps is noted in the flag.
__device__ __forceinline__ unsigned reversed_step(long long step, long long length, long long steps, bool* flag) {
    return position(length < 0 ? length - steps : step < length ? length - 1 - step : step, steps, flag);
}
