// Typed fields of a plugin, declared once: Plugin::fields names each member, and everything else is derived from that.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "errors.h"

namespace pytrtplugins __attribute__((visibility("default"))) {

// numpy.ndarray: element type by NumPy's name, sizes, elements in row-major order.
struct Array {
    std::string dtype = "float32";
    std::vector<int64_t> shape = {0};
    std::vector<uint8_t> data;

    bool operator==(Array const& other) const {
        return dtype == other.dtype && shape == other.shape && data == other.data;
    }
};

// A kind of fields, by the C++ type of its values: its code in the serialized form (docs/reference/format.md), what Python calls it and a tuple of
// it, and the number of TensorRT's PluginFieldType that holds its values (1: kFLOAT32, 5: kINT32, 6: kCHAR).
template <typename T>
struct FieldKind;
template <>
struct FieldKind<bool> {
    static constexpr uint8_t code = 1;
    static constexpr char const *name = "bool", *tupleName = "tuple[bool, ...]";
    static constexpr int32_t pluginField = 5;
};
template <>
struct FieldKind<int64_t> {
    static constexpr uint8_t code = 2;
    static constexpr char const *name = "int", *tupleName = "tuple[int, ...]";
    static constexpr int32_t pluginField = 5;
};
template <>
struct FieldKind<float> {
    static constexpr uint8_t code = 3;
    static constexpr char const *name = "float", *tupleName = "tuple[float, ...]";
    static constexpr int32_t pluginField = 1;
};
template <>
struct FieldKind<std::string> {
    static constexpr uint8_t code = 4;
    static constexpr char const *name = "str", *tupleName = "tuple[str, ...]";
    static constexpr int32_t pluginField = 6;
};
template <typename T>
struct FieldKind<std::vector<T>> {
    static constexpr uint8_t code = FieldKind<T>::code + 16;
    static constexpr char const* name = FieldKind<T>::tupleName;
    static constexpr int32_t pluginField = FieldKind<T>::pluginField;
};
template <>
struct FieldKind<Array> {
    static constexpr uint8_t code = 33;
    static constexpr char const* name = "numpy.ndarray";
};

// A value of a field: one type for each kind. New ones go to the end, since libraries hold the number of a value's type.
using Value = std::variant<bool, int64_t, float, std::string, std::vector<bool>, std::vector<int64_t>,
                           std::vector<float>, std::vector<std::string>, Array>;

struct Field {
    std::string name;
    Value value;
};

// Type code of the serialized form.
inline uint8_t typeCode(Value const& value) {
    return std::visit([](auto const& held) { return FieldKind<std::decay_t<decltype(held)>>::code; }, value);
}

// The type as Python writes it.
inline char const* typeName(Value const& value) {
    return std::visit([](auto const& held) { return FieldKind<std::decay_t<decltype(held)>>::name; }, value);
}

// An empty value of the type with this code; an array where no other type has it.
template <size_t I = 0>
Value valueOfType(int code) {
    using T = std::variant_alternative_t<I, Value>;
    if (FieldKind<T>::code == code) return T{};
    if constexpr (I + 1 < std::variant_size_v<Value>) return valueOfType<I + 1>(code);
    return Array{};
}

// Visits each field of a plugin, in declared order: visit("stride", stride).
class FieldVisitor {
public:
    virtual ~FieldVisitor() = default;

    template <typename T>
    void operator()(char const* name, T& member) {
        Value value = member;  // a type that is no field does not compile here; for whole numbers take int64_t
        static_assert(!std::is_same_v<T, int> && !std::is_same_v<T, double>, "fields are int64_t and float");
        visit(name, value);
        member = std::get<T>(std::move(value));
    }

    // Read the value, or put another of the same type in its place.
    virtual void visit(char const* name, Value& value) = 0;
};

// Gathers the fields.
class FieldReader final : public FieldVisitor {
public:
    std::vector<Field> fields;
    void visit(char const* name, Value& value) override { fields.push_back({name, value}); }
};

// Sets fields by name; the others keep their values.
class FieldWriter final : public FieldVisitor {
public:
    FieldWriter(std::string owner, std::vector<Field> const& fields)
        : mOwner(std::move(owner)), mFields(fields), mUsed(fields.size(), false) {}

    void visit(char const* name, Value& value) override {
        mKnown += (mKnown.empty() ? "" : ", ") + std::string(name);
        for (size_t i = 0; i < mFields.size(); ++i) {
            if (mFields[i].name != name) continue;
            if (mFields[i].value.index() != value.index()) {
                throw FieldError(mOwner + "." + name + ": expected " + typeName(value) + ", found "
                                 + typeName(mFields[i].value));
            }
            value = mFields[i].value;
            mUsed[i] = true;
        }
    }

    // Require that each given field was one of the plugin's.
    void finish() const {
        for (size_t i = 0; i < mFields.size(); ++i) {
            if (!mUsed[i]) {
                throw FieldError(mOwner + " has no field '" + mFields[i].name
                                 + "'. Fields: " + (mKnown.empty() ? "none" : mKnown) + ".");
            }
        }
    }

private:
    std::string mOwner, mKnown;
    std::vector<Field> const& mFields;
    std::vector<bool> mUsed;
};

}  // namespace pytrtplugins
