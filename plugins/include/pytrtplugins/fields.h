// Typed fields of a plugin, declared once: Plugin::fields names each member, and everything else is derived from that.
#pragma once

#include <cstdint>
#include <string>
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

using Value = std::variant<bool, int64_t, float, std::string, std::vector<bool>, std::vector<int64_t>,
                           std::vector<float>, std::vector<std::string>, Array>;

struct Field {
    std::string name;
    Value value;
};

// Type code of the serialized form (docs/format.md).
inline uint8_t typeCode(Value const& value) {
    static uint8_t const codes[] = {1, 2, 3, 4, 17, 18, 19, 20, 33};
    return codes[value.index()];
}

// The type as Python writes it.
inline char const* typeName(Value const& value) {
    static char const* const names[] = {"bool",
                                        "int",
                                        "float",
                                        "str",
                                        "tuple[bool, ...]",
                                        "tuple[int, ...]",
                                        "tuple[float, ...]",
                                        "tuple[str, ...]",
                                        "numpy.ndarray"};
    return names[value.index()];
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
