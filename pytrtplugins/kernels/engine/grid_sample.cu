// Pixels along one axis that a value of a GridSample is made of, behind pointwise.cu.

// What is read: places, their weights, and whether they lie inside; those that do not count as 0.
template <typename R, int TAPS> struct Taps {
    R weight[TAPS];
    unsigned place[TAPS];
    bool inside[TAPS];
};

// A place outside, brought back inside. PADDING: 0 zeros, which leaves it, 1 border, 2 reflection: at the middles of the outermost
// pixels with CORNERS, else at their outer edges.
template <int PADDING, bool CORNERS, typename R> __device__ __forceinline__ R folded(R place, int size) {
    R const last = static_cast<R>(size - 1);
    if constexpr (PADDING == 0) return place;
    if constexpr (PADDING == 2) {
        R const low = CORNERS ? R(0) : R(-0.5), length = CORNERS ? last : static_cast<R>(size);
        if (length == 0) return R(0);
        R const turned = rest(magnitude(place - low), 2 * length);
        place = (turned > length ? 2 * length - turned : turned) + low;
    }
    return smaller(larger(place, R(0)), last);
}

template <typename R> __device__ __forceinline__ R cubic_weight(R d) {
    R const a = R(-0.75);
    return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

// TAPS: 1 the nearest pixel, 2 linear, 4 cubic. `unit` is a coordinate of the grid, -1 and 1 being the ends of the axis.
template <int TAPS, int PADDING, bool CORNERS, typename R>
__device__ __forceinline__ Taps<R, TAPS> taps_along(R unit, int size) {
    R at = CORNERS ? (unit + 1) / 2 * static_cast<R>(size - 1) : ((unit + 1) * static_cast<R>(size) - 1) / 2;
    if constexpr (TAPS < 4) at = folded<PADDING, CORNERS>(at, size);
    R const first = TAPS == 1 ? round_to_even(at) : round_down(at) - R(TAPS / 4);
    Taps<R, TAPS> found;
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) {
        R const distance = magnitude(at - (first + R(tap)));
        found.weight[tap] = TAPS == 1 ? R(1) : TAPS == 2 ? larger(1 - distance, R(0)) : cubic_weight(distance);
        R const place = folded<PADDING, CORNERS>(first + R(tap), size);
        found.inside[tap] = place >= 0 && place <= static_cast<R>(size - 1);
        found.place[tap] = found.inside[tap] ? static_cast<unsigned>(round_to_even(place)) : 0u;
    }
    return found;
}
