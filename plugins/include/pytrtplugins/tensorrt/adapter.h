// A Plugin as IPluginV3, which has core, build and runtime in one object.
#pragma once

#include <NvInferRuntime.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../plugin.h"
#include "descs.h"
#include "dims.h"
#include "log.h"
#include "plugin_fields.h"

namespace pytrtplugins {
namespace tensorrt __attribute__((visibility("hidden"))) {

#ifdef PYTRTPLUGINS_TENSORRT_HOST
constexpr Device kDevice = Device::kCPU;
#else
constexpr Device kDevice = Device::kCUDA;
#endif

class Adapter final : public nvinfer1::IPluginV3,
                      public nvinfer1::IPluginV3OneCore,
                      public nvinfer1::IPluginV3OneBuild,
                      public nvinfer1::IPluginV3OneRuntime {
public:
    using Desc = nvinfer1::PluginTensorDesc;
    using DynamicDesc = nvinfer1::DynamicPluginTensorDesc;
    using DataType = nvinfer1::DataType;

    // Throws PluginError where the plugin cannot work on TensorRT's addresses.
    Adapter(std::unique_ptr<Plugin> plugin, Extras extras) : mPlugin(std::move(plugin)), mExtras(std::move(extras)) {
        if (!mPlugin->runsOn(kDevice)) {
            throw PluginError(kDevice == Device::kCUDA
                                  ? "this library holds no kernel of it for a GPU, where TensorRT's tensors lie.\n"
                                    "Causes: (1) the library was compiled without a CUDA compiler; (2) the class does not "
                                    "override runsOn.\nDo: compile it with nvcc"
                                  : "it does not run on a CPU");
        }
    }

    Adapter(Adapter const&) = delete;
    Adapter& operator=(Adapter const&) = delete;

    ~Adapter() override {
        if (mInitialized) run("terminate", 0, [&] { return mPlugin->terminate(), 0; });
    }

    // -- IPluginV3 --

    nvinfer1::IPluginCapability* getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override {
        switch (type) {
            case nvinfer1::PluginCapabilityType::kCORE: return static_cast<nvinfer1::IPluginV3OneCore*>(this);
            case nvinfer1::PluginCapabilityType::kBUILD: return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
            case nvinfer1::PluginCapabilityType::kRUNTIME: return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
        }
        return nullptr;
    }

    nvinfer1::IPluginV3* clone() noexcept override {
        return run("clone", static_cast<nvinfer1::IPluginV3*>(nullptr),
                   [&]() -> nvinfer1::IPluginV3* { return new Adapter(mPlugin->clone(), mExtras); });
    }

    // -- core --

    char const* getPluginName() const noexcept override { return mPlugin->key().name.c_str(); }
    char const* getPluginVersion() const noexcept override { return mPlugin->key().version.c_str(); }
    char const* getPluginNamespace() const noexcept override { return mPlugin->key().nameSpace.c_str(); }

    // -- build --

    int32_t getNbOutputs() const noexcept override { return mPlugin->nbOutputs(); }

    int32_t getOutputDataTypes(DataType* outputs, int32_t nbOutputs, DataType const* inputs,
                               int32_t nbInputs) const noexcept override {
        return run("getOutputDataTypes", -1, [&] {
            std::vector<DType> types;
            for (int32_t i = 0; i < nbInputs; ++i) types.push_back(requireType(inputs[i]));
            for (int32_t i = 0; i < nbOutputs; ++i) outputs[i] = writeType(mPlugin->outputType(i, types));
            return 0;
        });
    }

    // Shape inputs are none of ours: TensorRT has any only where the network names them.
    int32_t getOutputShapes(nvinfer1::DimsExprs const* inputs, int32_t nbInputs, nvinfer1::DimsExprs const*, int32_t,
                            nvinfer1::DimsExprs* outputs, int32_t nbOutputs,
                            nvinfer1::IExprBuilder& builder) noexcept override {
        return run("getOutputShapes", -1,
                   [&] { return writeOutputDims(*mPlugin, inputs, nbInputs, outputs, nbOutputs, builder), 0; });
    }

    bool supportsFormatCombination(int32_t position, DynamicDesc const* descs, int32_t nbInputs,
                                   int32_t nbOutputs) noexcept override {
        return run("supportsFormatCombination", false, [&] {
            Desc const& asked = descs[position].desc;
            if (!readType(asked.type) || !readLayout(asked.format)) return false;
            std::vector<TensorDesc> tensors(static_cast<size_t>(nbInputs + nbOutputs));
            for (int32_t i = 0; i <= position; ++i) {  // the others are not chosen yet
                tensors[static_cast<size_t>(i)] = readDesc(descs[i].desc, descs[i].desc.dims, "d" + std::to_string(i));
            }
            setScales(tensors, 0, tensors.size());
            if (!mPlugin->supportsFormat(position, tensors)) return false;
            if (position < nbInputs) return true;
            std::vector<DType> types;
            for (int32_t i = 0; i < nbInputs; ++i) types.push_back(tensors[static_cast<size_t>(i)].dtype);
            return tensors[static_cast<size_t>(position)].dtype == mPlugin->outputType(position - nbInputs, types);
        });
    }

    // The dims may still be free: the plugin is configured when they are numbers, in onShapeChange.
    int32_t configurePlugin(DynamicDesc const*, int32_t, DynamicDesc const*, int32_t) noexcept override { return 0; }

    size_t getWorkspaceSize(DynamicDesc const* inputs, int32_t nbInputs, DynamicDesc const* outputs,
                            int32_t nbOutputs) const noexcept override {
        return run("getWorkspaceSize", size_t{0}, [&] {
            size_t most = 0;
            for (auto const which : {&DynamicDesc::min, &DynamicDesc::opt, &DynamicDesc::max}) {
                auto const dims = [&](DynamicDesc const& desc) -> nvinfer1::Dims const& { return desc.*which; };
                most = std::max(most, mPlugin->workspaceSize(readDescs(inputs, nbInputs, "input", dims),
                                                             readDescs(outputs, nbOutputs, "output", dims)));
            }
            return most;
        });
    }

    // Only a builder asks: a plugin of an engine need not go through its weights for it.
    char const* getTimingCacheID() noexcept override {
        return run("getTimingCacheID", static_cast<char const*>(nullptr), [&] {
            if (mTimingId.empty()) {
                uint64_t digest = 0xCBF29CE484222325u;  // FNV-1a
                for (uint8_t byte : serialize(*mPlugin)) digest = (digest ^ byte) * 0x100000001B3u;
                mTimingId = mPlugin->key().text() + " " + std::to_string(digest);
            }
            return mTimingId.c_str();
        });
    }

    // -- runtime --

    int32_t setTactic(int32_t tactic) noexcept override {
        return run("setTactic", -1, [&] {
            if (tactic != 0) throw PluginError("tactic " + std::to_string(tactic) + " is unknown; there is 0");
            return 0;
        });
    }

    int32_t onShapeChange(Desc const* inputs, int32_t nbInputs, Desc const* outputs, int32_t nbOutputs) noexcept override {
        return run("onShapeChange", -1, [&] {
            auto const dims = [](Desc const& desc) -> nvinfer1::Dims const& { return desc.dims; };
            std::vector<TensorDesc> ins = readDescs(inputs, nbInputs, "input", dims);
            std::vector<TensorDesc> outs = readDescs(outputs, nbOutputs, "output", dims);
            setScales(ins, 0, ins.size() + outs.size());
            setScales(outs, ins.size(), ins.size() + outs.size());
            checkAgreed(ins, outs);
            mPlugin->configure(ins, outs);
            if (!mInitialized) {
                mPlugin->initialize();
                mInitialized = true;
            }
            mInputs = std::move(ins);
            mOutputs = std::move(outs);
            return 0;
        });
    }

    int32_t enqueue(Desc const*, Desc const*, void const* const* inputs, void* const* outputs, void* workspace,
                    cudaStream_t stream) noexcept override {
        return run("enqueue", -1, [&] {
            if (!mInitialized) throw PluginError("enqueue before the dims are known");
            mPlugin->enqueue(mInputs.data(), mOutputs.data(), inputs, outputs, workspace, Stream{kDevice, stream});
            return 0;
        });
    }

    nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext*) noexcept override { return clone(); }

    nvinfer1::PluginFieldCollection const* getFieldsToSerialize() noexcept override {
        return run("getFieldsToSerialize", static_cast<nvinfer1::PluginFieldCollection const*>(nullptr), [&] {
            mFields = toPluginFields(*mPlugin, mExtras);
            return mFields.get();
        });
    }

private:
    std::unique_ptr<Plugin> mPlugin;
    Extras mExtras;
    std::string mTimingId;
    FieldCollection mFields;
    bool mInitialized = false;
    std::vector<TensorDesc> mInputs, mOutputs;  // of the last onShapeChange, so that enqueue allocates nothing

    template <typename Result, typename Call>
    Result run(char const* where, Result failure, Call&& call) const noexcept {
        return guarded(mPlugin->key(), where, failure, std::forward<Call>(call));
    }

    // The network's scales go before those of TensorRT, which knows them in implicit quantization only.
    void setScales(std::vector<TensorDesc>& descs, size_t first, size_t count) const {
        for (size_t i = 0; mExtras.scales.size() == count && i < descs.size(); ++i) {
            float const known = mExtras.scales[first + i];
            if (descs[i].dtype == DType::kINT8 && known != 0.0f) descs[i].scale = known;
        }
    }

    // Require that the outputs have the dims and types that the plugin gives for these inputs.
    void checkAgreed(std::vector<TensorDesc> const& inputs, std::vector<TensorDesc> const& outputs) const {
        std::vector<Dims> dims;
        std::vector<DType> types;
        for (TensorDesc const& desc : inputs) {
            dims.push_back(desc.dims);
            types.push_back(desc.dtype);
        }
        dims = checkedOutputDims(*mPlugin, dims);
        if (dims.size() != outputs.size()) throw DimsError("TensorRT has another number of outputs");
        for (size_t i = 0; i < outputs.size(); ++i) {
            std::string const name = "output " + std::to_string(i);
            if (text(dims[i]) != text(outputs[i].dims)) {
                throw DimsError(name + " has dims " + text(outputs[i].dims) + ", outputDims gives " + text(dims[i]));
            }
            DType const type = mPlugin->outputType(static_cast<int32_t>(i), types);
            if (type != outputs[i].dtype) {
                throw PluginError(name + " is " + pytrtplugins::name(outputs[i].dtype) + ", outputType says "
                                  + pytrtplugins::name(type));
            }
        }
    }
};

}  // namespace tensorrt
}  // namespace pytrtplugins
