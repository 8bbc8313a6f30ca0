// A plugin as bytes: docs/reference/format.md, the same bytes as in Python. A reader accounts for every byte.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "plugin.h"
#include "registry.h"

namespace pytrtplugins __attribute__((visibility("default"))) {

using Bytes = std::vector<uint8_t>;

constexpr size_t kFrameBytes = 20;  // header of 16 and checksum of 4
constexpr uint16_t kFormatVersion = 1;

inline uint32_t crc32(uint8_t const* data, size_t size) {
    static std::array<uint32_t, 256> const table = [] {
        std::array<uint32_t, 256> made{};
        for (uint32_t i = 0; i < 256; ++i) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0xEDB88320u : 0u);
            made[i] = value;
        }
        return made;
    }();
    uint32_t sum = 0xFFFFFFFFu;
    for (size_t i = 0; i < size; ++i) sum = (sum >> 8) ^ table[(sum ^ data[i]) & 0xFF];
    return ~sum;
}

// Whether bytes are well-formed UTF-8.
inline bool isUtf8(uint8_t const* data, size_t size) {
    for (size_t i = 0; i < size;) {
        uint8_t const lead = data[i];
        size_t const count = lead < 0x80 ? 1 : lead >= 0xC2 && lead < 0xE0 ? 2 : lead >= 0xE0 && lead < 0xF0 ? 3 : 4;
        if (count == 4 && (lead < 0xF0 || lead > 0xF4)) return false;
        if (count > size - i) return false;
        for (size_t k = 1; k < count; ++k) {
            if ((data[i + k] & 0xC0) != 0x80) return false;
        }
        uint8_t const second = count > 1 ? data[i + 1] : 0;  // no longer forms, no surrogates, nothing above U+10FFFF
        if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F)) return false;
        if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) return false;
        i += count;
    }
    return true;
}

class Writer {
public:
    Bytes bytes;

    template <typename T>
    void number(T value) {  // bytes as they lie in memory: little-endian on every machine that this is built for
        static_assert(std::is_arithmetic_v<T>);
        uint8_t raw[sizeof(T)];
        std::memcpy(raw, &value, sizeof(T));
        bytes.insert(bytes.end(), raw, raw + sizeof(T));
    }

    void text(std::string const& value) {
        number(static_cast<uint32_t>(value.size()));
        bytes.insert(bytes.end(), value.begin(), value.end());
    }

    void item(bool value) { number(static_cast<uint8_t>(value)); }
    template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
    void item(T value) {
        number(value);
    }
    void item(std::string const& value) { text(value); }
    void item(Array const& value) {
        text(value.dtype);
        number(static_cast<uint32_t>(value.shape.size()));
        for (int64_t size : value.shape) number(static_cast<uint64_t>(size));
        bytes.insert(bytes.end(), value.data.begin(), value.data.end());
    }
    template <typename T>
    void item(std::vector<T> const& values) {
        number(static_cast<uint32_t>(values.size()));
        for (T const& value : values) item(value);
    }
};

class Reader {
public:
    Reader(std::string owner, uint8_t const* data, size_t size) : mOwner(std::move(owner)), mData(data), mSize(size) {}

    uint8_t const* take(uint64_t count) {
        if (count > mSize - mOffset) {
            fail("the data ends early: " + std::to_string(count) + " bytes expected at offset " + std::to_string(mOffset)
                 + ", " + std::to_string(mSize - mOffset) + " left");
        }
        mOffset += count;
        return mData + mOffset - count;
    }

    template <typename T>
    T number() {
        T value;
        std::memcpy(&value, take(sizeof(T)), sizeof(T));
        return value;
    }

    std::string text() {
        uint32_t const size = number<uint32_t>();
        uint8_t const* data = take(size);
        if (!isUtf8(data, size)) fail("a text at offset " + std::to_string(mOffset - size) + " is no UTF-8");
        return {data, data + size};
    }

    void item(bool& value) {
        uint8_t const byte = number<uint8_t>();
        if (byte > 1) fail("a bool is " + std::to_string(byte));
        value = byte == 1;
    }
    template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
    void item(T& value) {
        value = number<T>();
    }
    void item(std::string& value) { value = text(); }
    void item(Array& value);
    template <typename T>
    void item(std::vector<T>& values) {
        values.clear();
        uint32_t const count = number<uint32_t>();
        for (uint32_t i = 0; i < count; ++i) {  // grows with what is there: a false count ends at the data's end
            T value{};
            item(value);
            values.push_back(std::move(value));
        }
    }

    void finish() const {
        if (mOffset != mSize) fail(std::to_string(mSize - mOffset) + " bytes are left over");
    }

    [[noreturn]] void fail(std::string const& problem) const { throw SerializationError(mOwner + ": " + problem); }

private:
    std::string mOwner;
    uint8_t const* mData;
    size_t mSize, mOffset = 0;
};

inline void Reader::item(Array& value) {
    // Nothing that has a destructor: libraries share the table, and one that is unloaded would destroy it for the others.
    struct Type {
        char const* name;
        uint64_t bytes;
    };
    static constexpr Type types[] = {{"float32", 4}, {"float16", 2}, {"int8", 1}, {"uint8", 1},
                                     {"int32", 4},   {"int64", 8},   {"bool", 1}, {"float64", 8}};
    value.dtype = text();
    uint64_t size = 0;
    for (Type const& type : types) size = value.dtype == type.name ? type.bytes : size;
    uint32_t const rank = number<uint32_t>();
    if (!size || rank > 64) fail("array of type '" + value.dtype + "' with " + std::to_string(rank) + " axes");
    value.shape.clear();
    bool empty = false;
    for (uint32_t i = 0; i < rank; ++i) {
        uint64_t const length = number<uint64_t>();
        if (length > uint64_t{1} << 62) fail("an array's axis has " + std::to_string(length) + " elements");
        value.shape.push_back(static_cast<int64_t>(length));
        empty |= length == 0;
    }
    for (int64_t length : value.shape) {
        if (empty || __builtin_mul_overflow(size, static_cast<uint64_t>(length), &size)) size = empty ? 0 : UINT64_MAX;
    }
    uint8_t const* data = take(size);
    value.data.assign(data, data + size);
}

// The plugin as bytes: magic, format version, length, key and fields, checksum.
inline Bytes serialize(Plugin const& plugin) {
    Writer payload;
    for (std::string const* text : {&plugin.key().nameSpace, &plugin.key().name, &plugin.key().version}) {
        payload.text(*text);
    }
    std::vector<Field> const fields = fieldsOf(plugin);
    payload.number(static_cast<uint32_t>(fields.size()));
    for (Field const& field : fields) {
        payload.text(field.name);
        payload.number(typeCode(field.value));
        std::visit([&](auto const& value) { payload.item(value); }, field.value);
    }
    Writer frame;
    for (char letter : {'P', 'T', 'R', 'P'}) frame.number(letter);
    frame.number(kFormatVersion);
    frame.number(uint16_t{0});
    frame.number(static_cast<uint64_t>(payload.bytes.size()));
    frame.bytes.insert(frame.bytes.end(), payload.bytes.begin(), payload.bytes.end());
    frame.number(crc32(frame.bytes.data(), frame.bytes.size()));
    return std::move(frame.bytes);
}

// Check the frame and give a reader of the payload.
inline Reader unwrap(std::string const& owner, uint8_t const* data, size_t size) {
    Reader frame(owner, data, size);
    if (size < kFrameBytes) frame.fail(std::to_string(size) + " bytes are too few for a serialized plugin");
    if (std::memcmp(frame.take(4), "PTRP", 4) != 0) frame.fail("the data is no serialized plugin");
    uint16_t const version = frame.number<uint16_t>();
    if (version != kFormatVersion) {
        frame.fail("format version " + std::to_string(version) + ", expected " + std::to_string(kFormatVersion)
                   + ".\nDo: build the engine file again.");
    }
    frame.number<uint16_t>();
    uint64_t const length = frame.number<uint64_t>();
    if (length != size - kFrameBytes) {
        frame.fail("the header says " + std::to_string(length) + " bytes, found " + std::to_string(size - kFrameBytes));
    }
    uint32_t sum;
    std::memcpy(&sum, data + size - 4, 4);
    if (crc32(data, size - 4) != sum) frame.fail("the checksum is wrong: the data is damaged");
    return Reader(owner, data + 16, static_cast<size_t>(length));
}

// Set the plugin's fields to what serialize wrote. The plugin has its defaults before, which say the fields' types.
inline void readFields(Plugin& plugin, uint8_t const* data, size_t size) {
    std::string const& owner = plugin.key().name;
    Reader reader = unwrap(owner, data, size);
    PluginKey found;
    for (std::string* text : {&found.nameSpace, &found.name, &found.version}) *text = reader.text();
    if (!(found == plugin.key())) reader.fail("the data is a " + found.text() + ", expected " + plugin.key().text());
    std::vector<Field> fields = fieldsOf(plugin);
    uint32_t const count = reader.number<uint32_t>();
    std::string const hint = "\nCauses: the class has changed since; give a changed class a new version.";
    if (count != fields.size()) {
        reader.fail("the data holds " + std::to_string(count) + " fields, the class declares "
                    + std::to_string(fields.size()) + "." + hint);
    }
    for (Field& field : fields) {
        std::string const name = reader.text();
        uint8_t const code = reader.number<uint8_t>();
        if (name != field.name || code != typeCode(field.value)) {
            reader.fail("expected field '" + field.name + "' of type " + typeName(field.value) + ", found '" + name
                        + "' (code " + std::to_string(code) + ")." + hint);
        }
        std::visit([&](auto& value) { reader.item(value); }, field.value);
    }
    reader.finish();
    setFields(plugin, fields);
}

// Make the plugin of this library that serialize wrote.
PYTRTPLUGINS_LOCAL inline std::unique_ptr<Plugin> deserialize(uint8_t const* data, size_t size) {
    Reader reader = unwrap("plugin", data, size);
    PluginKey key;
    for (std::string* text : {&key.nameSpace, &key.name, &key.version}) *text = reader.text();
    std::unique_ptr<Plugin> plugin = lookup(key).make();
    readFields(*plugin, data, size);
    return plugin;
}

}  // namespace pytrtplugins
