// The launches on a GPU.
#include <cuda_runtime_api.h>

#include "launches.h"

namespace pytrtplugins::layers::cuda {
namespace {

void check(cudaError_t status, char const* what) {
    if (status == cudaSuccess) return;
    throw PluginError(std::string(what) + ": CUDA says " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status));
}

}  // namespace

void launchReorg(TensorDesc const& desc, void const* x, void* y, int stride, bool reverse, void* stream) {
    reorgOn(desc, x, y, stride, reverse, static_cast<cudaStream_t>(stream));
    check(cudaPeekAtLastError(), "Reorg");
}

void launchHead(TensorDesc const& desc, void const* x, void* y, HeadTable const& table, void* stream) {
    headOn(desc, x, y, table, Device::kCUDA, static_cast<cudaStream_t>(stream));
    check(cudaPeekAtLastError(), "Region");
}

std::shared_ptr<int32_t const> upload(std::vector<int32_t> const& values) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        cudaGetLastError();  // no GPU is no error: the layer may run on the CPU
        return nullptr;
    }
    size_t const bytes = values.size() * sizeof(int32_t);
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "Region");
    std::shared_ptr<int32_t const> table(static_cast<int32_t const*>(memory), [](int32_t const* held) {
        cudaFree(const_cast<int32_t*>(held));
    });
    check(cudaMemcpy(memory, values.data(), bytes, cudaMemcpyHostToDevice), "Region");
    return table;
}

}  // namespace pytrtplugins::layers::cuda
