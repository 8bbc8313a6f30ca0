// TensorRT's descriptions of tensors in the terms of tensor.h.
#pragma once

#include <NvInferRuntime.h>

#include <optional>
#include <string>
#include <vector>

#include "../plugin.h"

namespace pytrtplugins {
namespace tensorrt __attribute__((visibility("hidden"))) {

// None for types that plugins do not get, such as FP8.
inline std::optional<DType> readType(nvinfer1::DataType type) {
    switch (type) {
        case nvinfer1::DataType::kFLOAT: return DType::kFLOAT32;
        case nvinfer1::DataType::kHALF: return DType::kFLOAT16;
        case nvinfer1::DataType::kBF16: return DType::kBFLOAT16;
        case nvinfer1::DataType::kINT8: return DType::kINT8;
        case nvinfer1::DataType::kUINT8: return DType::kUINT8;
        case nvinfer1::DataType::kINT32: return DType::kINT32;
        case nvinfer1::DataType::kINT64: return DType::kINT64;
        case nvinfer1::DataType::kBOOL: return DType::kBOOL;
        default: return std::nullopt;
    }
}

inline nvinfer1::DataType writeType(DType dtype) {
    using Type = nvinfer1::DataType;
    static Type const types[] = {Type::kFLOAT, Type::kHALF,  Type::kBF16,  Type::kINT8,
                                 Type::kUINT8, Type::kINT32, Type::kINT64, Type::kBOOL};
    return types[static_cast<int32_t>(dtype)];
}

// None for layouts that plugins do not get, such as kCHW32.
inline std::optional<Layout> readLayout(nvinfer1::TensorFormat format) {
    if (format == nvinfer1::TensorFormat::kLINEAR) return Layout::kLINEAR;
    if (format == nvinfer1::TensorFormat::kHWC) return Layout::kNHWC;
    return std::nullopt;
}

inline DType requireType(nvinfer1::DataType type) {
    std::optional<DType> const dtype = readType(type);
    if (!dtype) throw PluginError("plugins cannot take tensors of DataType " + std::to_string(static_cast<int32_t>(type)));
    return *dtype;
}

// Dims that are not known yet, -1, become symbols.
inline Dims readDims(nvinfer1::Dims const& dims, std::string const& name) {
    Dims read;
    for (int32_t axis = 0; axis < dims.nbDims; ++axis) {
        int64_t const size = dims.d[axis];
        read.push_back(size >= 0 ? Dim(size) : Dim::symbol(name + "_" + std::to_string(axis)));
    }
    return read;
}

inline TensorDesc readDesc(nvinfer1::PluginTensorDesc const& desc, nvinfer1::Dims const& dims, std::string const& name) {
    std::optional<Layout> const layout = readLayout(desc.format);
    if (!layout) {
        throw PluginError("plugins cannot take tensors of TensorFormat " + std::to_string(static_cast<int32_t>(desc.format)));
    }
    float const scale = desc.type == nvinfer1::DataType::kINT8 ? desc.scale : 0.0f;
    return {readDims(dims, name), requireType(desc.type), *layout, scale};
}

inline nvinfer1::PluginTensorDesc const& plain(nvinfer1::PluginTensorDesc const& desc) { return desc; }
inline nvinfer1::PluginTensorDesc const& plain(nvinfer1::DynamicPluginTensorDesc const& desc) { return desc.desc; }

// The descriptions of some tensors; `dimsOf` says which dims of a description count.
template <typename Desc, typename DimsOf>
std::vector<TensorDesc> readDescs(Desc const* descs, int32_t count, char const* name, DimsOf&& dimsOf) {
    std::vector<TensorDesc> read;
    for (int32_t i = 0; i < count; ++i) {
        read.push_back(readDesc(plain(descs[i]), dimsOf(descs[i]), name + std::to_string(i)));
    }
    return read;
}

}  // namespace tensorrt
}  // namespace pytrtplugins
