// Array fields of plugins that were written in Python and exported as C++: their elements, in the types that NumPy names.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "plugin.h"
#include "python_numbers.h"

namespace pytrtplugins {
namespace exported __attribute__((visibility("hidden"))) {

// A float16 as a double, which holds every one.
inline double fromHalf(uint16_t bits) {
    int const exponent = bits >> 10 & 31, fraction = bits & 1023;
    double const size = exponent == 31  ? (fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity())
                        : exponent == 0 ? std::ldexp(fraction, -24)
                                        : std::ldexp(fraction + 1024, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

// The nearest float16, the even one of two: beyond 65519.99 an infinity.
inline uint16_t toHalf(double value) {
    uint16_t const sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return sign | 0x7E00;
    double const size = std::fabs(value);
    if (size >= 65520.0) return sign | 0x7C00;
    if (size == 0) return sign;
    int exponent = 0;
    std::frexp(size, &exponent);
    exponent = std::max(exponent, -13);  // below are the subnormal ones, which are as far apart as the smallest others
    auto const steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, 11 - exponent)));  // 1024 to 2048 of a normal one
    return static_cast<uint16_t>(sign | ((static_cast<uint32_t>(exponent + 13) << 10) + steps));
}

// An element, as the widest number of its kind.
struct Element {
    bool isWhole;
    int64_t whole;
    double real;
};

// An element type, by NumPy's name.
class ElementType {
public:
    explicit ElementType(std::string const& name) {
        static char const* const names[] = {"float32", "float16", "float64", "int8", "uint8", "int32", "int64", "bool"};
        static size_t const sizes[] = {4, 2, 8, 1, 1, 4, 8, 1};
        while (mCode < 8 && name != names[mCode]) ++mCode;
        if (mCode == 8) throw FieldError("an array of " + name + " cannot be a field");
        mBytes = sizes[mCode];
    }

    size_t bytes() const { return mBytes; }
    bool isFloating() const { return mCode < 3; }
    bool isBool() const { return mCode == 7; }

    Element read(uint8_t const* from) const {
        switch (mCode) {
            case 0: return real(load<float>(from));
            case 1: return real(fromHalf(load<uint16_t>(from)));
            case 2: return real(load<double>(from));
            case 3: return whole(load<int8_t>(from));
            case 5: return whole(load<int32_t>(from));
            case 6: return whole(load<int64_t>(from));
            default: return whole(load<uint8_t>(from));
        }
    }

    // Write a number, rounded as NumPy's astype does; false where the type cannot hold it.
    bool write(uint8_t* to, Element const& value) const {
        double const given = value.isWhole ? static_cast<double>(value.whole) : value.real;
        switch (mCode) {
            case 0: {
                float const found = value.isWhole ? static_cast<float>(value.whole) : static_cast<float>(value.real);
                return store(to, found), std::isfinite(found) == std::isfinite(given);
            }
            case 1: {
                uint16_t const found = toHalf(value.isWhole ? static_cast<float>(value.whole) : value.real);
                return store(to, found), std::isfinite(fromHalf(found)) == std::isfinite(given);
            }
            case 2: return store(to, given), true;
            case 3: return storeWhole<int8_t>(to, value.whole);
            case 5: return storeWhole<int32_t>(to, value.whole);
            case 6: return store(to, value.whole), true;
            default: return storeWhole<uint8_t>(to, value.whole);
        }
    }

private:
    int mCode = 0;
    size_t mBytes = 0;

    static Element real(double value) { return {false, 0, value}; }
    static Element whole(int64_t value) { return {true, value, 0}; }

    template <typename T>
    static T load(uint8_t const* from) {
        T value;
        std::memcpy(&value, from, sizeof(T));
        return value;
    }
    template <typename T>
    static void store(uint8_t* to, T value) {
        std::memcpy(to, &value, sizeof(T));
    }
    template <typename T>
    static bool storeWhole(uint8_t* to, int64_t value) {
        store(to, static_cast<T>(value));
        return value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
    }
};

// How many elements an array has.
inline int64_t elements(Array const& array) {
    return static_cast<int64_t>(array.data.size() / ElementType(array.dtype).bytes());
}

// The number of elements of an axis that is known to be there.
inline Dim extent(Array const& array, size_t axis) { return array.shape[axis]; }

// An element by its place in row-major order; `field` is what messages call the array.
inline Element element(Array const& array, char const* field, int64_t place) {
    int64_t const count = elements(array);
    if (place < 0 || place >= count) {
        throw FieldError(std::string(field) + ": expected at least " + std::to_string(place + 1) + " elements, found "
                         + std::to_string(count));
    }
    ElementType const type(array.dtype);
    return type.read(array.data.data() + static_cast<size_t>(place) * type.bytes());
}

// The elements in another type, in memory for a kernel.
inline Bytes cast(Array const& array, char const* dtype) {
    ElementType const from(array.dtype), to(dtype);
    Bytes data(static_cast<size_t>(elements(array)) * to.bytes());
    for (size_t i = 0; i < data.size() / to.bytes(); ++i) {
        to.write(data.data() + i * to.bytes(), from.read(array.data.data() + i * from.bytes()));
    }
    return data;
}

// -- arithmetic, element by element: `at` gives what is made of the elements at one place --

template <typename T>
T at(Array const& array, size_t i) {
    T value;
    std::memcpy(&value, array.data.data() + i * sizeof(T), sizeof(T));
    return value;
}

// An element in another type, as NumPy's astype gives it.
template <typename T>
T castAt(Array const& array, size_t i) {
    ElementType const type(array.dtype);
    Element const value = type.read(array.data.data() + i * type.bytes());
    return value.isWhole ? static_cast<T>(value.whole) : static_cast<T>(value.real);
}

// NumPy's minimum and maximum: NaN where one is.
template <typename T>
T minimum(T left, T right) {
    return std::isnan(left) || left <= right ? left : right;
}
template <typename T>
T maximum(T left, T right) {
    return std::isnan(left) || left >= right ? left : right;
}

template <typename At>
bool anyOf(Array const& like, At&& at) {
    for (size_t i = 0, count = static_cast<size_t>(elements(like)); i < count; ++i) {
        if (at(i)) return true;
    }
    return false;
}

template <typename At>
bool allOf(Array const& like, At&& at) {
    return !anyOf(like, [&](size_t i) { return !at(i); });
}

// The first element of which `better(other, it)` holds for no other; NaN goes before all.
template <typename At, typename Better>
Element chosen(Array const& like, char const* field, At&& at, Better&& better) {
    size_t const count = static_cast<size_t>(elements(like));
    if (count == 0) throw FieldError(std::string(field) + ": expected at least 1 element, found 0");
    auto found = at(0);
    for (size_t i = 1; i < count && found == found; ++i) {
        auto const value = at(i);
        if (value != value || better(value, found)) found = value;
    }
    using T = decltype(found);
    if constexpr (std::is_integral_v<T>) return {true, found, 0};
    return {false, 0, static_cast<double>(found)};
}

template <typename At>
Element smallest(Array const& like, char const* field, At&& at) {
    return chosen(like, field, at, [](auto left, auto right) { return left < right; });
}

template <typename At>
Element largest(Array const& like, char const* field, At&& at) {
    return chosen(like, field, at, [](auto left, auto right) { return left > right; });
}

// What is made of all places, in an array of the same shape.
template <typename T, typename At>
Array computed(Array const& like, char const* dtype, At&& at) {
    Array made{dtype, like.shape, Bytes(static_cast<size_t>(elements(like)) * sizeof(T))};
    for (size_t i = 0; i < made.data.size() / sizeof(T); ++i) {
        T const value = at(i);
        std::memcpy(made.data.data() + i * sizeof(T), &value, sizeof(T));
    }
    return made;
}

// Bring what was given for a field to the element type that its class declares, where that can hold it, as Python does.
inline void convert(Array& array, char const* field, char const* dtype) {
    if (array.dtype == dtype) return;
    ElementType const from(array.dtype), to(dtype);
    std::string const expected = std::string(field) + ": expected an array of " + dtype + ", found ";
    bool const fits = to.isBool() ? from.isBool() : !from.isBool() && (to.isFloating() || !from.isFloating());
    if (!fits && !array.data.empty()) throw FieldError(expected + "an array of " + array.dtype);
    for (int64_t i = 0, count = elements(array); i < count; ++i) {
        Element const value = element(array, field, i);
        uint8_t written[8];
        if (to.write(written, value)) continue;
        throw FieldError(expected + (value.isWhole ? std::to_string(value.whole) : show(value.real))
                         + ", which does not fit into " + dtype);
    }
    array.data = cast(array, dtype);
    array.dtype = dtype;
}

// Require that something was given for a field without a default.
inline void requireElements(Array const& array, char const* field) {
    if (array.data.empty()) {
        throw FieldError(std::string(field) + ": expected an array of " + array.dtype + " with at least one element, found none");
    }
}

// An array as Python shows a field's.
inline std::string show(Array const& array) {
    std::string shape;
    for (int64_t length : array.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(length);
    return "array(" + array.dtype + ", shape=(" + shape + (array.shape.size() == 1 ? ",))" : "))");
}

}  // namespace exported
}  // namespace pytrtplugins
