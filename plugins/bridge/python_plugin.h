// A plugin written in Python, for callers in C++.
#pragma once

#include <pybind11/pybind11.h>
#include <pytrtplugins/plugin.h>

namespace pytrtplugins::bridge {

// Each method takes the GIL and calls the one of the same name; Python's exceptions arrive as those of errors.h.
class PythonPlugin final : public Plugin {
public:
    PythonPlugin(pybind11::object plugin, int32_t nbOutputs);
    PythonPlugin(PythonPlugin const&) = delete;
    ~PythonPlugin() override;

    void fields(FieldVisitor& visit) override;
    Int8 int8() const override { return mInt8; }
    int32_t nbInputs() const override { return mNbInputs; }
    int32_t nbOutputs() const override { return mNbOutputs; }
    std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override;
    DType outputType(int32_t index, std::vector<DType> const& inputs) const override;
    bool supportsFormat(int32_t position, std::vector<TensorDesc> const& descs) const override;
    void configure(std::vector<TensorDesc> const& inputs, std::vector<TensorDesc> const& outputs) override;
    size_t workspaceSize(std::vector<TensorDesc> const& inputs, std::vector<TensorDesc> const& outputs) const override;
    void initialize() override;
    void enqueue(TensorDesc const* inputDescs, TensorDesc const* outputDescs, void const* const* inputs,
                 void* const* outputs, void* workspace, Stream stream) override;
    void terminate() override;
    PluginKey const& key() const override { return mKey; }
    std::unique_ptr<Plugin> clone() const override;

private:
    void enqueueOnGpu(TensorDesc const* inputDescs, TensorDesc const* outputDescs, void const* const* inputs,
                      void* const* outputs, void* workspace, Stream stream);

    pybind11::object mPlugin;
    PluginKey mKey;
    Int8 mInt8 = Int8::kFLOAT;
    int32_t mNbInputs = -1, mNbOutputs;
    size_t mNbEnqueued = 0, mWorkspaceBytes = 0;
};

}  // namespace pytrtplugins::bridge
