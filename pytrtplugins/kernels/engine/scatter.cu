// Updates of a Scatter at equal places, behind pointwise.cu: of those with one key, one thread does all, in order.

enum Reduction { REPLACE, ADD, MULTIPLY, LARGEST, SMALLEST };

template <Reduction HOW, typename T> __device__ __forceinline__ T reduced(T a, T b) {
    if constexpr (HOW == ADD) return add(a, b);
    if constexpr (HOW == MULTIPLY) return multiply(a, b);
    if constexpr (HOW == LARGEST) return larger(a, b);
    if constexpr (HOW == SMALLEST) return smaller(a, b);
    return b;
}

// Whether one of the updates from `next` on, before `end`, has the key.
template <typename F> __device__ __forceinline__ bool appears(unsigned key, unsigned next, unsigned end, F key_at) {
    bool found = false;
    for (; next < end && !found; next += 16) {
#pragma unroll
        for (unsigned ahead = 0; ahead < 16; ++ahead) found |= next + ahead < end && key_at(next + ahead) == key;
    }
    return found;
}

// Put update `self` of `count` at its place. Without DISTINCT others may have its key: the last one replaces; the first one makes
// one value of all, in the type T.
template <Reduction HOW, bool DISTINCT, typename T, typename Y, typename F, typename U>
__device__ __forceinline__ void put(Y* target, unsigned key, unsigned self, unsigned count, F key_at, U update_at) {
    if constexpr (!DISTINCT) {
        if (HOW == REPLACE ? appears(key, self + 1, count, key_at) : appears(key, 0, self, key_at)) return;
    }
    if constexpr (HOW == REPLACE) {
        *target = update_at(self);
    } else {
        T value = reduced<HOW>(static_cast<T>(*target), static_cast<T>(update_at(self)));
        for (unsigned other = self + 1; !DISTINCT && other < count; ++other) {
            if (key_at(other) == key) value = reduced<HOW>(value, static_cast<T>(update_at(other)));
        }
        *target = static_cast<Y>(value);
    }
}
