// The launches, for the compiler that includes this: on the GPU with nvcc, else on the CPU, block by block.
#pragma once

#include "../../pytrtplugins/kernels/launch.h"
#include "kernels.h"

namespace pytrtplugins::layers {
namespace {

#include "../../pytrtplugins/kernels/head.cu"
#include "../../pytrtplugins/kernels/reorg.cu"

#ifdef __CUDACC__
using Queue = cudaStream_t;
#else
using Queue = void*;
#endif

[[noreturn]] inline void refuse(char const* layer, DType dtype) {
    throw PluginError(std::string(layer) + ": no kernel for " + name(dtype));
}

template <typename T>
void reorgOf(TensorDesc const& desc, void const* from, void* to, int s, bool reverse, [[maybe_unused]] Queue queue) {
    int64_t const images = desc.dims[0].value(), maps = desc.dims[1].value() / (s * s);
    int const h = static_cast<int>(desc.dims[2].value()), w = static_cast<int>(desc.dims[3].value());
    bool const nhwc = desc.layout == Layout::kNHWC;
    // a thread moves 16 bytes, in NHWC two pieces of 16
    int64_t const vector = (nhwc ? 32 : 16) / sizeof(T), values = maps * h * w * (nhwc ? s * s : 1);
    T const* const x = static_cast<T const*>(from);
    T* const y = static_cast<T*>(to);
    int const count = static_cast<int>(maps);
    PytrtThreads const threads = pytrt_dims((values + vector - 1) / vector, nhwc ? 1 : s, images);
    if (nhwc) {
        PYTRT_LAUNCH(reorg_nhwc<T>, threads, dim3(256), queue, x, y, count, h, w, s, reverse);
    } else {
        PYTRT_LAUNCH(reorg<T>, threads, dim3(256), queue, x, y, count, h, w, s, reverse);
    }
}

inline void reorgOn(TensorDesc const& desc, void const* x, void* y, int stride, bool reverse, Queue queue) {
    switch (itemsize(desc.dtype)) {
        case 1: return reorgOf<int8_t>(desc, x, y, stride, reverse, queue);
        case 2: return reorgOf<__half>(desc, x, y, stride, reverse, queue);
        case 4: return reorgOf<float>(desc, x, y, stride, reverse, queue);
        default: refuse("Reorg", desc.dtype);
    }
}

template <typename T>
void headOf(TensorDesc const& desc, void const* from, void* to, HeadTable const& table, int32_t const* slots,
            [[maybe_unused]] Queue queue) {
    int64_t const images = desc.dims[0].value(), area = desc.dims[2].value() * desc.dims[3].value();
    int64_t const boxes = desc.dims[1].value() / table.entries(), rows = boxes * table.count();
    bool const nhwc = desc.layout == Layout::kNHWC;
    PytrtThreads const threads = nhwc ? pytrt_dims(rows, area, images) : pytrt_dims(area, rows, images);
    PYTRT_LAUNCH(head<T>, threads, dim3(64, 4), queue, static_cast<T const*>(from), static_cast<T*>(to), slots,
                 table.count(), static_cast<int>(boxes), table.entries(), static_cast<int>(area), nhwc, table.factor(),
                 table.summand());
}

inline void headOn(TensorDesc const& desc, void const* x, void* y, HeadTable const& table, Device device, Queue queue) {
    int32_t const* const slots = table.on(device);
    switch (desc.dtype) {
        case DType::kFLOAT32: return headOf<float>(desc, x, y, table, slots, queue);
        case DType::kFLOAT16: return headOf<__half>(desc, x, y, table, slots, queue);
        default: refuse("Region", desc.dtype);
    }
}

}  // namespace
}  // namespace pytrtplugins::layers
