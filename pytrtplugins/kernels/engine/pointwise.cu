// What the generated kernels of pointwise groups call: each operation on one value, as ONNX defines it for its type.
//
// float16 and bfloat16 are computed in float; whole numbers wrap. NaN stays NaN, also in the larger and the smaller of two.

struct bfloat16 {
    uint16_t bits;

    bfloat16() = default;
    __device__ __forceinline__ bfloat16(float value) {
        unsigned const word = static_cast<unsigned>(__float_as_int(value));
        bits = static_cast<uint16_t>(value != value ? 0x7FC0u : (word + 0x7FFFu + (word >> 16 & 1u)) >> 16);
    }
    __device__ __forceinline__ operator float() const { return __int_as_float(static_cast<int>(bits) << 16); }
};

template <typename T> struct Type { typedef T computed; static constexpr bool fraction = false; };
template <> struct Type<float> { typedef float computed; static constexpr bool fraction = true; };
template <> struct Type<double> { typedef double computed; static constexpr bool fraction = true; };
template <> struct Type<__half> { typedef float computed; static constexpr bool fraction = true; };
template <> struct Type<bfloat16> { typedef float computed; static constexpr bool fraction = true; };

// Values that lie side by side, in accesses of 16 bytes at most.
template <typename T, int LANES> struct alignas(LANES * sizeof(T) < 16 ? LANES * sizeof(T) : 16) Pack { T values[LANES]; };

// `count` of LANES values that lie side by side; the others are zero.
template <int LANES, typename T>
__device__ __forceinline__ Pack<T, LANES> load_pack(const T* x, int count) {
    if (count == LANES) return *reinterpret_cast<const Pack<T, LANES>*>(x);
    Pack<T, LANES> found;
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) found.values[lane] = lane < count ? x[lane] : T();
    return found;
}

template <int LANES, typename T>
__device__ __forceinline__ void store_pack(T* y, Pack<T, LANES> const& pack, int count) {
    if (count == LANES) {
        *reinterpret_cast<Pack<T, LANES>*>(y) = pack;
        return;
    }
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) {
        if (lane < count) y[lane] = pack.values[lane];
    }
}

// The same of values that lie apart.
template <int LANES, typename T>
__device__ __forceinline__ Pack<T, LANES> load_lanes(const T* x, unsigned stride, int count) {
    Pack<T, LANES> found;
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) found.values[lane] = lane < count ? x[lane * stride] : T();
    return found;
}

template <int LANES, typename T>
__device__ __forceinline__ void store_lanes(T* y, unsigned stride, Pack<T, LANES> const& pack, int count) {
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) {
        if (lane < count) y[lane * stride] = pack.values[lane];
    }
}

// RUN of LANES values, which lie side by side; those from `count` on, and all where there is no tensor, are something else.
template <int RUN, int LANES, typename T>
__device__ __forceinline__ void load_run(Pack<T, LANES>& pack, unsigned first, const T* from, int count, T fill) {
    int const left = count - static_cast<int>(first);
    Pack<T, RUN> found;
    if (from != nullptr) found = load_pack<RUN>(from, left < RUN ? left : RUN);
#pragma unroll
    for (int lane = 0; lane < RUN; ++lane) pack.values[first + lane] = from != nullptr ? found.values[lane] : fill;
}

template <int RUN, int LANES, typename T>
__device__ __forceinline__ void store_run(T* y, Pack<T, LANES> const& pack, unsigned first, int count) {
    int const left = count - static_cast<int>(first);
    Pack<T, RUN> found;
#pragma unroll
    for (int lane = 0; lane < RUN; ++lane) found.values[lane] = pack.values[first + lane];
    store_pack<RUN>(y, found, left < RUN ? left : RUN);
}

template <typename T>
__device__ __forceinline__ T load_value(const T* from, T fill) {
    return from != nullptr ? *from : fill;
}

#define MATH(name, function)                                                          \
    __device__ __forceinline__ float name(float x) { return function##f(x); }         \
    __device__ __forceinline__ double name(double x) { return function(x); }
MATH(arc_cosine, acos)
MATH(arc_cosine_h, acosh)
MATH(arc_sine, asin)
MATH(arc_sine_h, asinh)
MATH(arc_tangent, atan)
MATH(arc_tangent_h, atanh)
MATH(round_up, ceil)
MATH(cosine, cos)
MATH(cosine_h, cosh)
MATH(error_function, erf)
MATH(rest_of_error_function, erfc)
MATH(exponential, exp)
MATH(exponential_less_1, expm1)
MATH(round_down, floor)
MATH(logarithm, log)
MATH(logarithm_of_1_more, log1p)
MATH(round_to_even, rint)
MATH(sine, sin)
MATH(sine_h, sinh)
MATH(square_root, sqrt)
MATH(tangent, tan)
MATH(tangent_h, tanh)
#undef MATH

// Sums, differences and products of whole numbers are made without signs, which wrap.
template <typename T> __device__ __forceinline__ unsigned long long wide(T x) { return static_cast<unsigned long long>(x); }
__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ double wide(double x) { return x; }

template <typename T> __device__ __forceinline__ T add(T a, T b) { return static_cast<T>(wide(a) + wide(b)); }
template <typename T> __device__ __forceinline__ T subtract(T a, T b) { return static_cast<T>(wide(a) - wide(b)); }
template <typename T> __device__ __forceinline__ T multiply(T a, T b) { return static_cast<T>(wide(a) * wide(b)); }
template <typename T> __device__ __forceinline__ T negative(T x) {
    if constexpr (Type<T>::fraction) return -x;
    return static_cast<T>(0ull - wide(x));
}
template <typename T> __device__ __forceinline__ T larger(T a, T b) { return a > b || a != a ? a : b; }
template <typename T> __device__ __forceinline__ T smaller(T a, T b) { return a < b || a != a ? a : b; }
template <typename T> __device__ __forceinline__ T magnitude(T x) {
    if constexpr (Type<T>::fraction) return x < 0 ? -x : x == 0 ? T(0) : x;
    return x < T(0) ? negative(x) : x;
}
template <typename T> __device__ __forceinline__ T sign(T x) { return x > T(0) ? T(1) : x < T(0) ? static_cast<T>(-1) : x; }

// Whole numbers are rounded towards zero; by zero they give zero.
template <typename T> __device__ __forceinline__ T divide(T a, T b) {
    if constexpr (Type<T>::fraction) return a / b;
    if (b == T(0)) return T(0);
    return b == static_cast<T>(-1) && static_cast<T>(-1) < T(0) ? negative(a) : static_cast<T>(a / b);
}
// The rest of that division, with a's sign; for fractions too.
template <typename T> __device__ __forceinline__ T rest(T a, T b) {
    if constexpr (sizeof(T) == 4 && Type<T>::fraction) return fmodf(a, b);
    if constexpr (Type<T>::fraction) return static_cast<T>(fmod(static_cast<double>(a), static_cast<double>(b)));
    else return b == T(0) || (b == static_cast<T>(-1) && static_cast<T>(-1) < T(0)) ? T(0) : static_cast<T>(a % b);
}
// The same with b's sign.
template <typename T> __device__ __forceinline__ T modulo(T a, T b) {
    T const found = rest(a, b);
    return found != T(0) && (found < T(0)) != (b < T(0)) ? add(found, b) : found;
}
template <typename T, typename U> __device__ __forceinline__ T power(T a, U b) {
    if constexpr (sizeof(T) == 4 && Type<T>::fraction) {
        return powf(a, static_cast<float>(b));
    } else if constexpr (Type<T>::fraction || Type<U>::fraction) {
        double const found = pow(static_cast<double>(a), static_cast<double>(b)), whole = rint(found);
        bool const near = !Type<T>::fraction && fabs(found - whole) <= 1e-15 * fabs(whole);  // CUDA's pow(3, 1) is below 3
        return static_cast<T>(near ? whole : found);
    } else {
        if (b < U(0)) return a == T(1) ? T(1) : a == static_cast<T>(-1) ? (b & 1 ? a : T(1)) : T(0);
        T found = 1;
        for (; b > U(0); b = static_cast<U>(b >> 1), a = multiply(a, a)) found = b & 1 ? multiply(found, a) : found;
        return found;
    }
}
template <typename T, typename U> __device__ __forceinline__ T shift_left(T a, U b) {
    return b < U(0) || b >= U(8 * sizeof(T)) ? T(0) : static_cast<T>(wide(a) << b);
}
template <typename T, typename U> __device__ __forceinline__ T shift_right(T a, U b) {
    return b < U(0) || b >= U(8 * sizeof(T)) ? (a < T(0) ? static_cast<T>(-1) : T(0)) : static_cast<T>(a >> b);
}
template <typename T> __device__ __forceinline__ bool is_infinite(T x, bool positive, bool negative) {
    return x != x - x + x ? x == x && (x > 0 ? positive : negative) : false;
}
template <typename TO, typename T> __device__ __forceinline__ TO convert(T x) { return static_cast<TO>(x); }

template <typename T> __device__ __forceinline__ T sigmoid(T x) { return T(1) / (T(1) + exponential(-x)); }
template <typename T> __device__ __forceinline__ T softplus(T x) {
    return larger(x, T(0)) + logarithm_of_1_more(exponential(-magnitude(x)));
}
template <typename T> __device__ __forceinline__ T mish(T x) { return x * tangent_h(softplus(x)); }
template <typename T> __device__ __forceinline__ T swish(T x, T alpha) { return x / (T(1) + exponential(-alpha * x)); }
template <typename T> __device__ __forceinline__ T hard_sigmoid(T x, T alpha, T beta) {
    return smaller(larger(x * alpha + beta, T(0)), T(1));
}
template <typename T> __device__ __forceinline__ T hard_swish(T x) { return x * hard_sigmoid(x, T(1.0 / 6.0), T(0.5)); }
template <typename T> __device__ __forceinline__ T relu(T x) { return larger(x, T(0)); }
template <typename T> __device__ __forceinline__ T leaky_relu(T x, T alpha) { return x < T(0) ? multiply(x, alpha) : x; }
template <typename T> __device__ __forceinline__ T elu(T x, T alpha) { return x < T(0) ? alpha * exponential_less_1(x) : x; }
template <typename T> __device__ __forceinline__ T celu(T x, T alpha) {
    return larger(x, T(0)) + smaller(alpha * exponential_less_1(x / alpha), T(0));
}
template <typename T> __device__ __forceinline__ T selu(T x, T alpha, T gamma) {
    return gamma * (x <= T(0) ? alpha * exponential_less_1(x) : x);
}
template <typename T> __device__ __forceinline__ T shrink(T x, T bias, T limit) {
    return x < -limit ? x + bias : x > limit ? x - bias : T(0);
}
template <typename T> __device__ __forceinline__ T gelu(T x) {
    return x * T(0.5) * rest_of_error_function(x * T(-0.70710678118654752));
}
template <typename T> __device__ __forceinline__ T gelu_tanh(T x) {
    return x * sigmoid(T(1.5957691216057308) * (x + T(0.044715) * x * x * x));
}
