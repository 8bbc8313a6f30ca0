// Python's rules for numbers, which plugins need that were written in Python and exported as C++ (pytrt export-plugin).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <type_traits>

#include "plugin.h"

namespace pytrtplugins {
namespace exported __attribute__((visibility("hidden"))) {

// Whether something holds; unknown where a dim is symbolic.
enum class Truth { kNO, kYES, kUNKNOWN };

inline Truth isLess(Dim const& left, Dim const& right) {
    if (!left.isConstant() || !right.isConstant()) return Truth::kUNKNOWN;
    return left.value() < right.value() ? Truth::kYES : Truth::kNO;
}

inline Truth isEqual(Dim const& left, Dim const& right) {
    if (!left.isConstant() || !right.isConstant()) return Truth::kUNKNOWN;
    return left.value() == right.value() ? Truth::kYES : Truth::kNO;
}

// Python's x % y of floats: float_rem in CPython's Objects/floatobject.c. A zero has the divisor's sign.
inline double floorMod(double left, double right) {
    if (right == 0) throw PluginError("a float is divided by zero");
    double const remainder = std::fmod(left, right);
    if (remainder == 0) return std::copysign(0.0, right);
    return (remainder < 0) != (right < 0) ? remainder + right : remainder;
}

// Python's x // y of floats: _float_div_mod there. It is not the floor of x / y, which may have been rounded up to a whole number.
inline double floorDiv(double left, double right) {
    if (right == 0) throw PluginError("a float is divided by zero");
    double const remainder = std::fmod(left, right);
    double quotient = (left - remainder) / right;
    if (remainder != 0 && (remainder < 0) != (right < 0)) quotient -= 1;
    if (quotient == 0) return std::copysign(0.0, left / right);
    double const whole = std::floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

// Python's x / y.
inline double divide(double left, double right) {
    if (right == 0) throw PluginError("a float is divided by zero");
    return left / right;
}

// Python's a / b of whole numbers: the exact quotient, rounded once.
inline double divide(Dim const& left, Dim const& right) {
    int64_t const a = left.value(), b = right.value();
    constexpr int64_t most = int64_t{1} << 53;  // up to here every whole number is a double
    if (b == 0) throw PluginError("a number is divided by zero");
    if (-most <= a && a <= most && -most <= b && b <= most) return static_cast<double>(a) / static_cast<double>(b);
    // 62 bits of the quotient, and the last one set where a remainder is left: more than a double has, so one rounding is right.
    __extension__ using Wide = unsigned __int128;
    auto const magnitude = [](int64_t value) { return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value); };
    auto const bits = [](uint64_t value) { return value ? 64 - __builtin_clzll(value) : 0; };
    uint64_t const divisor = magnitude(b);
    int const shift = std::max(0, 62 - bits(magnitude(a)) + bits(divisor));
    Wide const dividend = static_cast<Wide>(magnitude(a)) << shift;
    uint64_t const quotient = static_cast<uint64_t>(dividend / divisor) | (dividend % divisor != 0);
    double const size = std::ldexp(static_cast<double>(quotient), -shift);
    return (a < 0) != (b < 0) ? -size : size;
}

// Python's x ** n. It calls pow, which rounds once; a product of factors rounds after each.
inline double power(double base, double exponent) {
    double const volatile called = exponent;  // a compiler that knows it multiplies
    double const result = std::pow(base, called);
    if (std::isinf(result) && std::isfinite(base)) throw PluginError("the power of a float is too large for a float");
    return result;
}

// A float that is whole, from math.floor and math.ceil.
inline Dim wholeNumber(double value) {
    if (value >= -9223372036854775808.0 && value < 9223372036854775808.0) return static_cast<int64_t>(value);
    throw PluginError("a float is no whole number of 64 bits: " + std::to_string(value));
}

// The number of elements.
inline Dim size(Dims const& dims) {
    Dim count = 1;
    for (Dim const& dim : dims) count = count * dim;
    return count;
}

// A number as a kernel's parameter takes it.
template <typename T>
T fit(Dim const& number, char const* parameter) {
    int64_t const value = number.value();
    bool const below = std::is_unsigned_v<T> ? value < 0 : value < static_cast<int64_t>(std::numeric_limits<T>::min());
    bool const above = sizeof(T) < 8 && value > static_cast<int64_t>(std::numeric_limits<T>::max());
    if (below || above) {
        throw DimsError("kernel parameter `" + std::string(parameter) + "`: " + std::to_string(value) + " does not fit");
    }
    return static_cast<T>(value);
}

inline std::string show(Dim const& value) { return value.text(); }
inline std::string show(bool value) { return value ? "True" : "False"; }
inline std::string show(std::string const& value) { return value; }
inline std::string show(double value) {
    char text[32];
    for (int digits = 1; digits <= 9; ++digits) {  // the fewest that give the same float
        std::snprintf(text, sizeof text, "%.*g", digits, value);
        if (std::strtof(text, nullptr) == static_cast<float>(value)) break;
    }
    std::string const shown = text;
    return shown.find_first_of(".en") == std::string::npos ? shown + ".0" : shown;  // not inf, nan and 1e+20
}

}  // namespace exported
}  // namespace pytrtplugins
