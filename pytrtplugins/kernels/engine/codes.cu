// What all kernels share that make codes of values.

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
