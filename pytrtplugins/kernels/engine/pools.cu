// What pools of row-major tensors call, behind pointwise.cu.

// RUN values of a row, which lie side by side and aligned; all something else where there are none.
template <int RUN, int SPAN, typename T>
__device__ __forceinline__ void load_part(T (&row)[SPAN], unsigned first, const T* from, T fill) {
    Pack<T, RUN> found;
    if (from != nullptr) found = *reinterpret_cast<const Pack<T, RUN>*>(from);
#pragma unroll
    for (int lane = 0; lane < RUN; ++lane) row[first + lane] = from != nullptr ? found.values[lane] : fill;
}
