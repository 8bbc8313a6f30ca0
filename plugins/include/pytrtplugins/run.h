// Run a plugin from C++, through its whole life and on host memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "plugin.h"

namespace pytrtplugins __attribute__((visibility("default"))) {

// Describe the outputs that the plugin gives for these inputs.
inline std::vector<TensorDesc> describeOutputs(Plugin const& plugin, std::vector<TensorDesc> const& inputs) {
    std::vector<Dims> dims;
    std::vector<DType> types;
    for (TensorDesc const& desc : inputs) {
        dims.push_back(desc.dims);
        types.push_back(desc.dtype);
    }
    std::vector<TensorDesc> outputs;
    for (Dims& one : dims = checkedOutputDims(plugin, dims)) outputs.push_back({std::move(one)});
    types = outputTypes(plugin, types);
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].dtype = types[i];
    return outputs;
}

// Configure, initialize, enqueue and terminate a clone.
inline void run(Plugin const& plugin, std::vector<TensorDesc> const& inputDescs,
                std::vector<TensorDesc> const& outputDescs, void const* const* inputs, void* const* outputs) {
    std::unique_ptr<Plugin> const mine = plugin.clone();
    mine->configure(inputDescs, outputDescs);
    size_t const bytes = mine->workspaceSize(inputDescs, outputDescs);
    std::vector<std::max_align_t> workspace(bytes / sizeof(std::max_align_t) + 1);
    mine->initialize();
    struct Terminate {
        Plugin& plugin;
        ~Terminate() { plugin.terminate(); }
    } const terminate{*mine};
    mine->enqueue(inputDescs.data(), outputDescs.data(), inputs, outputs, bytes ? workspace.data() : nullptr, Stream{});
}

}  // namespace pytrtplugins
