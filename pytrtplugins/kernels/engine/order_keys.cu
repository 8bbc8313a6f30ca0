// Values of any type as whole numbers in the same order, behind pointwise.cu.

template <int BYTES> struct KeyOf { typedef uint32_t type; };
template <> struct KeyOf<8> { typedef uint64_t type; };

// The type of a value's key, of which as many bits are used as the value has.
template <typename T> struct Sortable {
    typedef typename KeyOf<sizeof(T)>::type key;
    static constexpr int bits = 8 * sizeof(T);
    static constexpr key all = ~key(0) >> (8 * sizeof(key) - bits), sign = key(1) << (bits - 1);
};

__device__ __forceinline__ uint32_t bits_of(float value) { return static_cast<uint32_t>(__float_as_int(value)); }
__device__ __forceinline__ uint32_t bits_of(__half value) { return value.bits; }
__device__ __forceinline__ uint32_t bits_of(bfloat16 value) { return value.bits; }
__device__ __forceinline__ uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

// NaN is above all numbers, and both zeros are equal.
template <typename T> __device__ __forceinline__ typename Sortable<T>::key ascending_key(T value) {
    typedef typename Sortable<T>::key Key;
    constexpr Key all = Sortable<T>::all, sign = Sortable<T>::sign;
    if constexpr (Type<T>::fraction) {
        Key const bits = bits_of(value);
        if (value != value) return all;
        return bits & sign ? (bits == sign ? sign : ~bits & all) : bits | sign;
    } else if constexpr (static_cast<T>(-1) < T(0)) {
        return (static_cast<Key>(value) & all) ^ sign;
    } else {
        return static_cast<Key>(value);
    }
}

// The larger, the better: of values of which the largest are wanted, or the smallest.
template <bool LARGEST, typename T> __device__ __forceinline__ typename Sortable<T>::key order_key(T value) {
    typename Sortable<T>::key const key = ascending_key(value);
    return LARGEST ? key : ~key & Sortable<T>::all;
}
