// Bytes as text that every field of type CHAR can hold.
#pragma once

#include <string>

#include "../plugin.h"

namespace pytrtplugins {
namespace tensorrt __attribute__((visibility("hidden"))) {

constexpr char const* kBase64Letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

inline std::string toBase64(Bytes const& bytes) {
    std::string text;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t group = 0;
        for (size_t j = i; j < i + 3; ++j) group = group << 8 | (j < bytes.size() ? bytes[j] : 0u);
        for (int shift = 18; shift >= 0; shift -= 6) text += kBase64Letters[group >> shift & 63];
    }
    for (size_t spare = (3 - bytes.size() % 3) % 3, i = 1; i <= spare; ++i) text[text.size() - i] = '=';
    return text;
}

inline Bytes fromBase64(std::string const& owner, std::string const& text) {
    std::string const letters = kBase64Letters;
    size_t const spare = text.empty() || text.back() != '=' ? 0 : text[text.size() - 2] == '=' ? 2 : 1;
    bool valid = text.size() % 4 == 0;
    Bytes bytes;
    for (size_t i = 0; valid && i < text.size(); i += 4) {
        uint32_t group = 0;
        for (size_t j = i; j < i + 4; ++j) {
            size_t const digit = j >= text.size() - spare ? 0 : letters.find(text[j]);
            valid &= digit != std::string::npos;
            group = group << 6 | static_cast<uint32_t>(digit & 63);
        }
        for (int shift = 16; shift >= 0; shift -= 8) bytes.push_back(static_cast<uint8_t>(group >> shift));
    }
    if (!valid) throw SerializationError(owner + ": the field with the serialized bytes is not Base64");
    bytes.resize(bytes.size() - spare);
    return bytes;
}

}  // namespace tensorrt
}  // namespace pytrtplugins
