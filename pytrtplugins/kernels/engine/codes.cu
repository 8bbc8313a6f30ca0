// What all kernels share: codes of values, and writes of several values.

// value / step, as division rounds it up to a million steps, and roughly beyond them, where every code saturates: a product with
// 1 / step, which its remainder corrects twice (Markstein). The compiler's division has a second way for very large and very
// small numbers; its code is longer than the rest of some kernels, and a kernel of two microseconds would spend them on fetching
// it. Steps below 2^-126 count as 2^-126.
__device__ __forceinline__ float in_steps(float value, float step) {
    float const divisor = fmaxf(step, 1.17549435e-38f), guess = __fdividef(1.0f, divisor);
    float const inverse = fmaf(fmaf(-divisor, guess, 1.0f), guess, guess), rough = value * inverse;
    float const near = fmaf(fmaf(-divisor, rough, value), inverse, rough);
    float const exact = fmaf(fmaf(-divisor, near, value), inverse, near);
    return fabsf(rough) < 1e6f ? exact : rough;
}

// A value of 4, 8 or 16 bytes, or several of 16, written by as few instructions; compilers often split an assignment of several
// numbers, and then each cache line is written several times.
template <typename V> __device__ __forceinline__ void store_whole(void* place, const V& value) {
#ifdef __CUDA_ARCH__
    constexpr int count = sizeof(V) / 4;
    if constexpr (sizeof(V) % 16 == 0 || sizeof(V) == 8 || sizeof(V) == 4) {
        const unsigned* const words = reinterpret_cast<const unsigned*>(&value);
        unsigned* const to = static_cast<unsigned*>(place);
        if constexpr (count == 1) asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(words[0]) : "memory");
        if constexpr (count == 2) asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]), "r"(words[1]) : "memory");
#pragma unroll
        for (int i = 0; i + 4 <= count; i += 4) {
            asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to + i), "r"(words[i]), "r"(words[i + 1]), "r"(words[i + 2]),
                         "r"(words[i + 3]) : "memory");
        }
        return;
    }
#endif
    *static_cast<V*>(place) = value;
}
