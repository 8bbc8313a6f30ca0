// A plugin's fields ↔ TensorRT's PluginFields, by the rules of pytrtplugins/engines/tensorrt/plugin_fields.py: an engine that
// was built with the creators of one language runs with those of the other.
//
// float → FLOAT32, int and bool → INT32, text → CHAR, vectors of numbers → several of them, arrays with one axis of float32,
// float64, int8 and int32 → several of their type. What they cannot hold (arrays with more axes or of other types, vectors
// of text, empty values, numbers beyond 32 bits, text with a zero byte) travels as the plugin's serialized bytes in Base64,
// in one more field.
#pragma once

#include <NvInferRuntime.h>

#include <cstring>
#include <iterator>
#include <limits>
#include <list>
#include <string>
#include <type_traits>
#include <vector>

#include "../plugin.h"
#include "base64.h"

namespace pytrtplugins {
namespace tensorrt __attribute__((visibility("hidden"))) {

using FieldType = nvinfer1::PluginFieldType;

constexpr char const* kSerialized = "pytrtplugins_serialized";
constexpr char const* kOutputs = "pytrtplugins_outputs";
constexpr char const* kScales = "pytrtplugins_scales";

// What a plugin in TensorRT needs beside its fields: the value of one int8 step of each input, then of each output.
struct Extras {
    std::vector<float> scales;
};

// PluginFields with the memory into which they point.
class FieldCollection {
public:
    template <typename T>
    void add(std::string const& name, FieldType type, std::vector<T> const& values) {
        Bytes data(values.size() * sizeof(T));
        if (!values.empty()) std::memcpy(data.data(), values.data(), data.size());
        add(name, type, values.size(), std::move(data));
    }

    void add(std::string const& name, FieldType type, size_t count, Bytes data) {
        mItems.push_back({name, type, static_cast<int32_t>(count), std::move(data)});
    }

    nvinfer1::PluginFieldCollection const* get() {
        mFields.clear();
        for (Item const& item : mItems) {
            mFields.emplace_back(item.name.c_str(), item.data.empty() ? nullptr : item.data.data(), item.type, item.count);
        }
        mCollection.nbFields = static_cast<int32_t>(mFields.size());
        mCollection.fields = mFields.data();
        return &mCollection;
    }

private:
    struct Item {
        std::string name;
        FieldType type;
        int32_t count;
        Bytes data;
    };
    std::list<Item> mItems;
    std::vector<nvinfer1::PluginField> mFields;
    nvinfer1::PluginFieldCollection mCollection{};
};

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename T>
constexpr bool kPlain = !std::is_same_v<T, Array> && !std::is_same_v<T, std::vector<std::string>>;

// An element type of arrays.
struct ArrayType {
    char const* name;  // NumPy's
    size_t bytes;
    FieldType field;   // which holds its elements
    bool saved;        // whether arrays of it travel so; others may be given so, as a parser passes lists on
};

// By NumPy's name; float32 for none.
inline ArrayType const& arrayType(std::string const& name) {
    static ArrayType const all[] = {
        {"float32", 4, FieldType::kFLOAT32, true}, {"float64", 8, FieldType::kFLOAT64, true}, {"int8", 1, FieldType::kINT8, true},
        {"int32", 4, FieldType::kINT32, true},     {"float16", 2, FieldType::kFLOAT32, false}, {"uint8", 1, FieldType::kINT32, false},
        {"int64", 8, FieldType::kINT32, false},    {"bool", 1, FieldType::kINT32, false}};
    for (ArrayType const& type : all) {
        if (name == type.name) return type;
    }
    return all[0];
}

// The type that holds values of T.
template <typename T>
constexpr FieldType fieldType() {
    return static_cast<FieldType>(FieldKind<T>::pluginField);
}
static_assert(fieldType<float>() == FieldType::kFLOAT32 && fieldType<int64_t>() == FieldType::kINT32
              && fieldType<std::string>() == FieldType::kCHAR);

// What its elements are in memory.
template <FieldType type>
using ElementOf = std::conditional_t<
    type == FieldType::kCHAR, char,
    std::conditional_t<type == FieldType::kFLOAT32, float, std::conditional_t<type == FieldType::kFLOAT64, double, int32_t>>>;

// The value as elements of that type; false where it does not fit.
template <typename T, typename Element>
bool elements(T const& value, std::vector<Element>& out) {
    if constexpr (IsVector<T>::value || std::is_same_v<T, std::string>) {
        for (auto const& item : value) {
            using Item = typename T::value_type;
            if constexpr (std::is_same_v<T, std::string>) {
                if (item == '\0') return false;
                out.push_back(item);
            } else if (Item const one = item; !elements(one, out)) {
                return false;
            }
        }
        return !value.empty();
    } else {
        if constexpr (std::is_same_v<T, int64_t>) {
            using Limits = std::numeric_limits<int32_t>;
            if (value < Limits::min() || value > Limits::max()) return false;
        }
        out.push_back(static_cast<Element>(value));
        return true;
    }
}

// Add a field with its value; false where PluginFields cannot hold it.
inline bool addField(FieldCollection& fields, Field const& field) {
    return std::visit(
        [&](auto const& value) {
            using T = std::decay_t<decltype(value)>;
            if constexpr (kPlain<T>) {
                constexpr FieldType type = fieldType<T>();
                std::vector<ElementOf<type>> all;
                if (!elements(value, all)) return false;
                fields.add(field.name, type, all);
                return true;
            } else if constexpr (std::is_same_v<T, Array>) {
                ArrayType const& type = arrayType(value.dtype);
                size_t const count = value.data.size() / type.bytes;
                if (!type.saved || value.shape.size() != 1 || !count || count > std::numeric_limits<int32_t>::max()) return false;
                fields.add(field.name, type.field, count, value.data);
                return true;
            } else {
                return false;
            }
        },
        field.value);
}

// The fields that a creator announces, without values; a parser passes on no others.
inline FieldCollection declaredFields(Plugin const& plugin) {
    FieldCollection declared;
    for (Field const& field : fieldsOf(plugin)) {
        std::visit(
            [&](auto const& value) {
                using T = std::decay_t<decltype(value)>;
                if constexpr (kPlain<T>) declared.add(field.name, fieldType<T>(), 0, {});
                if constexpr (std::is_same_v<T, Array>) declared.add(field.name, arrayType(value.dtype).field, 0, {});
            },
            field.value);
    }
    declared.add(kSerialized, FieldType::kCHAR, 0, {});
    declared.add(kOutputs, FieldType::kINT32, 0, {});
    declared.add(kScales, FieldType::kFLOAT32, 0, {});
    return declared;
}

// The plugin as fields from which readPluginFields makes it again.
inline FieldCollection toPluginFields(Plugin const& plugin, Extras const& extras) {
    FieldCollection fields;
    bool complete = true;
    for (Field const& field : fieldsOf(plugin)) complete &= addField(fields, field);
    if (!complete) {
        std::string const text = toBase64(serialize(plugin));
        fields.add(kSerialized, FieldType::kCHAR, std::vector<char>(text.begin(), text.end()));
    }
    fields.add(kOutputs, FieldType::kINT32, std::vector<int32_t>{plugin.nbOutputs()});
    if (!extras.scales.empty()) fields.add(kScales, FieldType::kFLOAT32, extras.scales);
    return fields;
}

// Reads one PluginField.
class FieldValue {
public:
    FieldValue(std::string const& owner, nvinfer1::PluginField const& field)
        : mWhat(owner + "." + field.name), mField(field), mCount(field.data ? std::max(field.length, 0) : 0) {}

    std::string text() const {
        if (mField.type != FieldType::kCHAR) fail("text");
        char const* const data = static_cast<char const*>(mField.data);
        size_t size = static_cast<size_t>(mCount);
        while (size && data[size - 1] == '\0') --size;  // a terminator is counted by some and not by others
        return {data, size};
    }

    // As the type that the plugin's field has.
    void read(Value& value) const {
        std::visit([&](auto& member) { read(member); }, value);
    }

    std::vector<float> floats() const {
        std::vector<float> all;
        read(all);
        return all;
    }

private:
    std::string mWhat;
    nvinfer1::PluginField const& mField;
    int32_t mCount;

    void read(std::string& value) const { value = text(); }
    // In the type that it comes in; a class that wants another converts it.
    void read(Array& value) const {
        auto const take = [&](char const* dtype) {
            char const* const data = static_cast<char const*>(mField.data);
            value = {dtype, {mCount}, {data, data + static_cast<size_t>(mCount) * arrayType(dtype).bytes}};
        };
        switch (mField.type) {
            case FieldType::kFLOAT16: return take("float16");
            case FieldType::kFLOAT32: return take("float32");
            case FieldType::kFLOAT64: return take("float64");
            case FieldType::kINT8: return take("int8");
            case FieldType::kINT16: {
                value = {"int32", {mCount}, Bytes(static_cast<size_t>(mCount) * 4)};
                for (int32_t i = 0; i < mCount; ++i) {
                    int32_t const wide = at<int16_t>(i);
                    std::memcpy(value.data.data() + static_cast<size_t>(i) * 4, &wide, 4);
                }
                return;
            }
            case FieldType::kINT32: return take("int32");
            case FieldType::kINT64: return take("int64");
            default: fail("numbers");
        }
    }
    void read(std::vector<std::string>&) const { fail("texts, which only serialized bytes hold,"); }

    template <typename T>
    void read(std::vector<T>& values) const {
        values.clear();
        for (int32_t i = 0; i < mCount; ++i) values.push_back(number<T>(i));
    }
    template <typename T>
    void read(T& value) const {
        if (mCount != 1) throw FieldError(mWhat + ": expected one value, found " + std::to_string(mCount));
        value = number<T>(0);
    }

    template <typename T>
    T number(int32_t index) const {
        switch (mField.type) {
            case FieldType::kINT8: return convert<T>(at<int8_t>(index));
            case FieldType::kINT16: return convert<T>(at<int16_t>(index));
            case FieldType::kINT32: return convert<T>(at<int32_t>(index));
            case FieldType::kINT64: return convert<T>(at<int64_t>(index));
            case FieldType::kFLOAT32: return convert<T>(at<float>(index));
            case FieldType::kFLOAT64: return convert<T>(at<double>(index));
            default: fail("numbers");
        }
    }
    template <typename T, typename Found>
    T convert(Found found) const {
        if constexpr (std::is_floating_point_v<T>) return static_cast<T>(found);
        if constexpr (std::is_floating_point_v<Found>) fail("whole numbers");
        if constexpr (std::is_same_v<T, bool>) {
            if (found != 0 && found != 1) fail("0 or 1");
        }
        return static_cast<T>(found);
    }
    template <typename T>
    T at(int32_t index) const {
        T value;
        std::memcpy(&value, static_cast<char const*>(mField.data) + static_cast<size_t>(index) * sizeof(T), sizeof(T));
        return value;
    }

    [[noreturn]] void fail(std::string const& expected) const {
        static char const* const names[] = {"FLOAT16", "FLOAT32", "FLOAT64", "INT8", "INT16", "INT32",
                                            "CHAR",    "DIMS",    "UNKNOWN", "BF16", "INT64"};
        auto const code = static_cast<size_t>(mField.type);
        std::string const found = code < std::size(names) ? names[code] : "PluginFieldType " + std::to_string(code);
        throw FieldError(mWhat + ": expected " + expected + ", found " + found + " with " + std::to_string(mCount)
                         + (mCount == 1 ? " entry" : " entries"));
    }
};

// Set a plugin's fields to those of toPluginFields, or of a parser; missing ones keep their defaults.
inline Extras readPluginFields(Plugin& plugin, nvinfer1::PluginFieldCollection const* collection) {
    std::string const& owner = plugin.key().name;
    std::vector<Field> known = fieldsOf(plugin), given;
    Extras extras;
    std::string serialized, names;
    for (Field const& field : known) names += (names.empty() ? "" : ", ") + field.name;
    for (int32_t i = 0; collection && i < collection->nbFields; ++i) {
        nvinfer1::PluginField const& field = collection->fields[i];
        std::string const name = field.name ? field.name : "";
        FieldValue const value(owner, field);
        bool used = name == kOutputs || name == "plugin_namespace" || name == "plugin_version" || name == "name";
        if (name == kSerialized) serialized = value.text();
        if (name == kScales) extras.scales = value.floats();
        used |= name == kSerialized || name == kScales;
        for (Field& one : known) {
            if (one.name != name) continue;
            used = true;
            value.read(one.value);
            given.push_back(one);
        }
        if (!used) throw FieldError(owner + " has no field '" + name + "'. Fields: " + (names.empty() ? "none" : names) + ".");
    }
    if (serialized.empty()) {
        setFields(plugin, given);
    } else {
        Bytes const bytes = fromBase64(owner, serialized);
        readFields(plugin, bytes.data(), bytes.size());
    }
    return extras;
}

}  // namespace tensorrt
}  // namespace pytrtplugins
