// What an array is, without the array: element type, dims, layout. Dims may be symbolic, known only at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "errors.h"

namespace pytrtplugins __attribute__((visibility("default"))) {

enum class DType : int32_t { kFLOAT32, kFLOAT16, kBFLOAT16, kINT8, kUINT8, kINT32, kINT64, kBOOL };

inline char const* name(DType dtype) {
    static char const* const names[] = {"float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"};
    return names[static_cast<int32_t>(dtype)];
}

inline size_t itemsize(DType dtype) {
    static size_t const sizes[] = {4, 2, 2, 1, 1, 4, 8, 1};
    return sizes[static_cast<int32_t>(dtype)];
}

// One size of a tensor: a number, a symbol such as the batch, or an expression of them. It understands + - * / %, where
// / rounds down; whether a symbolic dim is zero, or larger than another, is not known, so there is no comparison.
class Dim {
public:
    template <typename Int, typename = std::enable_if_t<std::is_integral_v<Int>>>
    Dim(Int value) : mValue(static_cast<int64_t>(value)) {}  // NOLINT: ints are dims
    Dim() = default;

    static Dim symbol(std::string name) {
        Dim dim;
        dim.mNode = std::make_shared<Node const>(Node{0, std::move(name), {}});
        return dim;
    }

    bool isConstant() const noexcept { return !mNode; }

    int64_t value() const {
        if (mNode) throw DimsError("dim " + text() + " is symbolic: it has no value yet");
        return mValue;
    }

    char operation() const { return mNode ? mNode->operation : 0; }  // + - * / %; 0 for numbers and symbols
    std::string const& symbolName() const { return mNode->name; }
    Dim const& left() const { return mNode->sides[0]; }
    Dim const& right() const { return mNode->sides[1]; }

    std::string text() const {
        if (!mNode) return std::to_string(mValue);
        if (!operation()) return mNode->name;
        std::string const shown = operation() == '/' ? "//" : std::string(1, operation());
        return "(" + left().text() + " " + shown + " " + right().text() + ")";
    }

    // What Python's SymbolicDim does: neutral elements vanish, numbers are worked out.
    static Dim combine(char operation, Dim const& left, Dim const& right) {
        if (left.isConstant() && right.isConstant()) return calculate(operation, left.mValue, right.mValue);
        if (right.is(operation == '*' || operation == '/' ? 1 : 0) && operation != '%') return left;
        if (operation == '+' && left.is(0)) return right;
        if (operation == '*' && left.is(1)) return right;
        if (operation == '%' && right.is(1)) return 0;
        if (operation == '*' && (left.is(0) || right.is(0))) return 0;
        Dim dim;
        dim.mNode = std::make_shared<Node const>(Node{operation, "", {left, right}});
        return dim;
    }

    friend Dim operator+(Dim const& left, Dim const& right) { return combine('+', left, right); }
    friend Dim operator-(Dim const& left, Dim const& right) { return combine('-', left, right); }
    friend Dim operator*(Dim const& left, Dim const& right) { return combine('*', left, right); }
    friend Dim operator/(Dim const& left, Dim const& right) { return combine('/', left, right); }
    friend Dim operator%(Dim const& left, Dim const& right) { return combine('%', left, right); }

private:
    struct Node {
        char operation;
        std::string name;
        std::vector<Dim> sides;
    };

    bool is(int64_t value) const { return !mNode && mValue == value; }

    static int64_t calculate(char operation, int64_t left, int64_t right) {
        int64_t result = 0;
        bool overflow = false;
        if (operation == '+') {
            overflow = __builtin_add_overflow(left, right, &result);
        } else if (operation == '-') {
            overflow = __builtin_sub_overflow(left, right, &result);
        } else if (operation == '*') {
            overflow = __builtin_mul_overflow(left, right, &result);
        } else if (right == 0) {
            throw DimsError("a dim is divided by zero");
        } else if (right == -1) {  // by itself a processor traps on the lowest number
            overflow = operation == '/' && __builtin_sub_overflow(int64_t{0}, left, &result);
        } else {
            int64_t const remainder = left % right;
            bool const below = remainder != 0 && (remainder < 0) != (right < 0);
            result = operation == '/' ? left / right - below : remainder + (below ? right : 0);
        }
        if (!overflow) return result;
        std::string const shown = operation == '/' ? "//" : std::string(1, operation);
        throw DimsError(std::to_string(left) + " " + shown + " " + std::to_string(right) + " does not fit 64 bits");
    }

    int64_t mValue = 0;
    std::shared_ptr<Node const> mNode;
};

using Dims = std::vector<Dim>;

inline std::string text(Dims const& dims) {
    std::string joined;
    for (Dim const& dim : dims) joined += (joined.empty() ? "" : ", ") + dim.text();
    return "(" + joined + ")";
}

// The number of elements; dims must be numbers.
inline int64_t volume(Dims const& dims) {
    Dim count = 1;
    for (Dim const& dim : dims) count = count * dim.value();
    return count.value();
}

// kLINEAR is row-major, NCHW for images; kNHWC has the channels innermost.
enum class Layout : int32_t { kLINEAR, kNHWC };

struct TensorDesc {
    Dims dims;
    DType dtype = DType::kFLOAT32;
    Layout layout = Layout::kLINEAR;
    float scale = 0.0f;  // value of one step, for INT8 tensors whose scale is known; else 0

    size_t bytes() const { return static_cast<size_t>((Dim(volume(dims)) * itemsize(dtype)).value()); }
};

// The three rules that shape rules are made of. A symbolic dim passes here and is checked when it has a value.
inline void checkRank(Dims const& dims, size_t rank, std::string const& what) {
    if (dims.size() == rank) return;
    throw DimsError(what + ": expected " + std::to_string(rank) + " axes, found " + std::to_string(dims.size()) + ": "
                    + text(dims));
}

inline void checkDivisible(Dim const& dim, int64_t by, std::string const& what) {
    if (!dim.isConstant() || (dim % by).value() == 0) return;
    throw DimsError(what + " must be a multiple of " + std::to_string(by) + ", found " + dim.text(),
                    {{"by", by}, {"dim", dim.value()}});
}

inline void checkEqual(Dim const& dim, int64_t expected, std::string const& what) {
    if (!dim.isConstant() || dim.value() == expected) return;
    throw DimsError(what + " must be " + std::to_string(expected) + ", found " + dim.text(),
                    {{"expected", expected}, {"found", dim.value()}});
}

}  // namespace pytrtplugins
