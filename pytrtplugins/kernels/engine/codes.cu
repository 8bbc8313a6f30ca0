// What all kernels share that make codes of values.

// value / step, to the last bit where a code can be that large, and otherwise only as far away: a product with 1 / step that
// its rest corrects twice (Markstein). A division's way for the rarest numbers is longer than the rest of some kernels, and a
// kernel that runs for two microseconds spends them on fetching its code. Steps below 2^-126 count as 2^-126.
__device__ __forceinline__ float in_steps(float value, float step) {
    float const divisor = fmaxf(step, 1.17549435e-38f), guess = __fdividef(1.0f, divisor);
    float const inverse = fmaf(fmaf(-divisor, guess, 1.0f), guess, guess), rough = value * inverse;
    float const near = fmaf(fmaf(-divisor, rough, value), inverse, rough);
    float const exact = fmaf(fmaf(-divisor, near, value), inverse, near);
    return fabsf(rough) < 1e6f ? exact : rough;
}
