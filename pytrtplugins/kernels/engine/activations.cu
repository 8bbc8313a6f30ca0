// Formulas of activations that kernels compute behind sums. Before this file stands `enum Activation`, of device/activation.py.
//
// `kind` is a constant in most kernels: what is behind the other branches is no part of their code.

// Without true divisions, whose code, once for each value of a thread, a short kernel spends its time on fetching. What such functions
// lose is far less than the rounding of a result to 16 bits or to codes.
__device__ __forceinline__ float quick_sigmoid(float v) { return __fdividef(1.0f, 1.0f + __expf(-v)); }

// v times the gate of `real`, which is v, or v times the step of codes.
__device__ __forceinline__ float quick_gated(float v, float real, int kind) {
    if (kind == ACTIVATION_SWISH) return v * quick_sigmoid(real);
    if (kind == ACTIVATION_QUICK_GELU) return v * quick_sigmoid(1.702f * real);
    if (kind == ACTIVATION_GELU) return 0.5f * v * (1.0f + erff(real * 0.70710678f));
    if (kind == ACTIVATION_GELU_TANH) return v * quick_sigmoid(1.5957691f * (real + 0.044715f * real * real * real));
    return v * fminf(fmaxf(real * 0.16666667f + 0.5f, 0.0f), 1.0f);  // HARD_SWISH
}

// Activations of the value alone.
__device__ __forceinline__ float plain_activation(float v, int kind) {
    if (kind == ACTIVATION_TANH) return tanhf(v);
    if (kind == ACTIVATION_HARD_SWISH) return v * fminf(fmaxf(v * 0.16666667f + 0.5f, 0.0f), 1.0f);
    if (kind == ACTIVATION_GELU) return 0.5f * v * erfcf(v * -0.70710678f);
    if (kind == ACTIVATION_GELU_TANH) return v / (1.0f + expf(-1.5957691f * (v + 0.044715f * v * v * v)));
    if (kind == ACTIVATION_QUICK_GELU) return v / (1.0f + expf(-1.702f * v));
    float const small = expf(-fabsf(v)), sigmoid = (v < 0.0f ? small : 1.0f) / (1.0f + small);
    if (kind == ACTIVATION_LOGISTIC) return sigmoid;
    return v * (kind == ACTIVATION_SWISH ? sigmoid : tanhf(fmaxf(v, 0.0f) + log1pf(small)));  // MISH
}
