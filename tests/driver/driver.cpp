// Plays TensorRT's part: finds creators in TensorRT's own registry and makes every call that TensorRT makes to a plugin, from
// C++ and through the virtual methods, whatever language the plugin is written in. Used through ctypes (tests/driver).
//
// It decides nothing: the order of the calls is the caller's. Addresses are handed through as they are, a GPU's or, for
// plugins that work there, the process's own. Functions give what the plugin gives; null objects give -100.
#include <NvInferRuntime.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "exprs.h"

#define API extern "C" __attribute__((visibility("default")))

namespace driver {
namespace {

constexpr int32_t kNoObject = -100, kNullExpr = -101;
constexpr int32_t kMaxDims = 8;

// A tensor as the caller describes it: dims of -1 are free, and min, opt, max are the range of a profile.
struct Tensor {
    int32_t type, format, rank;
    float scale;
    int64_t dims[kMaxDims], min[kMaxDims], opt[kMaxDims], max[kMaxDims];
};

// The two sides of a plugin: `inputs`, then `outputs`.
struct Tensors {
    Tensor const* all;
    int32_t inputs, outputs;
};

// A plugin with its capabilities, asked for once as TensorRT does.
struct Plugin {
    nvinfer1::IPluginV3* object;
    nvinfer1::IPluginV3OneCore* core;
    nvinfer1::IPluginV3OneBuild* build;
    nvinfer1::IPluginV3OneRuntime* runtime;
};

// What an engine file keeps of a plugin: a copy of its fields.
struct Saved {
    std::vector<std::string> names, data;
    std::vector<nvinfer1::PluginField> fields;
};

nvinfer1::Dims dimsOf(int64_t const* sizes, int32_t rank) {
    nvinfer1::Dims dims{};
    dims.nbDims = rank;
    std::copy(sizes, sizes + rank, dims.d);
    return dims;
}

nvinfer1::PluginTensorDesc describe(Tensor const& tensor) {
    nvinfer1::PluginTensorDesc desc{};
    desc.dims = dimsOf(tensor.dims, tensor.rank);
    desc.type = static_cast<nvinfer1::DataType>(tensor.type);
    desc.format = static_cast<nvinfer1::TensorFormat>(tensor.format);
    desc.scale = tensor.scale;
    return desc;
}

std::vector<nvinfer1::PluginTensorDesc> describe(Tensors const& tensors) {
    std::vector<nvinfer1::PluginTensorDesc> descs;
    for (int32_t i = 0; i < tensors.inputs + tensors.outputs; ++i) descs.push_back(describe(tensors.all[i]));
    return descs;
}

std::vector<nvinfer1::DynamicPluginTensorDesc> describeRanges(Tensors const& tensors) {
    std::vector<nvinfer1::DynamicPluginTensorDesc> descs;
    for (int32_t i = 0; i < tensors.inputs + tensors.outputs; ++i) {
        Tensor const& tensor = tensors.all[i];
        nvinfer1::DynamicPluginTensorDesc desc{};
        desc.desc = describe(tensor);
        desc.min = dimsOf(tensor.min, tensor.rank);
        desc.opt = dimsOf(tensor.opt, tensor.rank);
        desc.max = dimsOf(tensor.max, tensor.rank);
        descs.push_back(desc);
    }
    return descs;
}

Plugin* hold(nvinfer1::IPluginV3* object) {
    if (!object) return nullptr;
    using Kind = nvinfer1::PluginCapabilityType;
    return new Plugin{object,
                      static_cast<nvinfer1::IPluginV3OneCore*>(object->getCapabilityInterface(Kind::kCORE)),
                      static_cast<nvinfer1::IPluginV3OneBuild*>(object->getCapabilityInterface(Kind::kBUILD)),
                      static_cast<nvinfer1::IPluginV3OneRuntime*>(object->getCapabilityInterface(Kind::kRUNTIME))};
}

size_t elementBytes(nvinfer1::PluginFieldType type) {
    using Type = nvinfer1::PluginFieldType;
    switch (type) {
        case Type::kFLOAT64:
        case Type::kINT64: return 8;
        case Type::kFLOAT32:
        case Type::kINT32: return 4;
        case Type::kFLOAT16:
        case Type::kINT16: return 2;
        case Type::kDIMS: return sizeof(nvinfer1::Dims);
        default: return 1;
    }
}

// Keeps what libraries log.
class Log final : public nvinfer1::ILogger {
public:
    void log(Severity, nvinfer1::AsciiChar const* message) noexcept override {
        std::lock_guard<std::mutex> const lock(mMutex);
        mText += std::string(message) + "\n";
    }
    std::string take() {
        std::lock_guard<std::mutex> const lock(mMutex);
        return std::move(mText);
    }

private:
    std::mutex mMutex;
    std::string mText;
};

Log& theLog() {
    static Log log;
    return log;
}

class Finder final : public nvinfer1::ILoggerFinder {
public:
    nvinfer1::ILogger* findLogger() override { return &theLog(); }
};

}  // namespace
}  // namespace driver

using driver::Plugin;
using driver::Saved;
using driver::Tensor;
using driver::Tensors;

// -- TensorRT --

// Major * 1000 + minor of the headers.
API int32_t driver_headers() { return NV_TENSORRT_MAJOR * 1000 + NV_TENSORRT_MINOR; }

// The plugin registry of a loaded library; null for a library of another major version.
API nvinfer1::IPluginRegistry* driver_registry(char const* library) {
    void* const handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (!handle) return nullptr;
    auto* const major = reinterpret_cast<int32_t (*)()>(dlsym(handle, "getInferLibMajorVersion"));
    auto* const registry = reinterpret_cast<nvinfer1::IPluginRegistry* (*)()>(dlsym(handle, "getPluginRegistry"));
    return major && registry && major() == NV_TENSORRT_MAJOR ? registry() : nullptr;
}

API void* driver_load_library(nvinfer1::IPluginRegistry* registry, char const* path) {
    void* const loaded = registry->loadLibrary(path);
    void* const handle = loaded ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
    if (!handle) return loaded;
    static driver::Finder finder;  // in the place of TensorRT's, to see what is logged
    using SetFinder = void(nvinfer1::ILoggerFinder*);
    reinterpret_cast<SetFinder*>(dlsym(handle, "setLoggerFinder"))(&finder);
    dlclose(handle);
    return loaded;
}

API void driver_unload_library(nvinfer1::IPluginRegistry* registry, void* handle) { registry->deregisterLibrary(handle); }

// What libraries have logged since the last call; the caller's buffer is filled and closed with a zero.
API void driver_log(char* text, int32_t size) {
    std::string const taken = driver::theLog().take();
    std::strncpy(text, taken.c_str(), static_cast<size_t>(size) - 1);
    text[size - 1] = '\0';
}

// A creator of IPluginV3 objects; null where there is none.
API nvinfer1::IPluginCreatorV3One* driver_creator(nvinfer1::IPluginRegistry* registry, char const* name, char const* version,
                                                  char const* nameSpace) {
    nvinfer1::IPluginCreatorInterface* const found = registry->getCreator(name, version, nameSpace);
    if (!found || std::strcmp(found->getInterfaceInfo().kind, "PLUGIN CREATOR_V3ONE") != 0) return nullptr;
    return static_cast<nvinfer1::IPluginCreatorV3One*>(found);
}

API nvinfer1::PluginFieldCollection const* driver_declared(nvinfer1::IPluginCreatorV3One* creator) {
    return creator->getFieldNames();
}

// -- life and death --

API Plugin* driver_create(nvinfer1::IPluginCreatorV3One* creator, nvinfer1::PluginField const* fields, int32_t count,
                          int32_t phase) {
    nvinfer1::PluginFieldCollection const collection{count, fields};
    return driver::hold(creator->createPlugin("layer", &collection, static_cast<nvinfer1::TensorRTPhase>(phase)));
}

API Plugin* driver_clone(Plugin* plugin) { return driver::hold(plugin->object->clone()); }

API Plugin* driver_attach(Plugin* plugin) {
    return plugin->runtime ? driver::hold(plugin->runtime->attachToContext(nullptr)) : nullptr;
}

// A plugin that is written in Python belongs to Python.
API void driver_destroy(Plugin* plugin) {
    if (plugin->object->getAPILanguage() == nvinfer1::APILanguage::kCPP) delete plugin->object;
    delete plugin;
}

API char const* driver_text(Plugin* plugin, int32_t which) {
    switch (which) {
        case 0: return plugin->core ? plugin->core->getPluginNamespace() : nullptr;
        case 1: return plugin->core ? plugin->core->getPluginName() : nullptr;
        case 2: return plugin->core ? plugin->core->getPluginVersion() : nullptr;
        case 3: return plugin->build ? plugin->build->getTimingCacheID() : nullptr;
        default: return plugin->build ? plugin->build->getMetadataString() : nullptr;
    }
}

// -- build --

API int32_t driver_output_count(Plugin* plugin) {
    return plugin->build ? plugin->build->getNbOutputs() : driver::kNoObject;
}

API int32_t driver_output_types(Plugin* plugin, int32_t const* inputs, int32_t nbInputs, int32_t* outputs,
                                int32_t nbOutputs) {
    if (!plugin->build) return driver::kNoObject;
    std::vector<nvinfer1::DataType> ins, outs(static_cast<size_t>(nbOutputs));
    for (int32_t i = 0; i < nbInputs; ++i) ins.push_back(static_cast<nvinfer1::DataType>(inputs[i]));
    int32_t const code = plugin->build->getOutputDataTypes(outs.data(), nbOutputs, ins.data(), nbInputs);
    for (int32_t i = 0; i < nbOutputs; ++i) outputs[i] = static_cast<int32_t>(outs[static_cast<size_t>(i)]);
    return code;
}

// Dims of -1 are free and have the values of `opt`; so have the outputs' afterwards.
API int32_t driver_output_dims(Plugin* plugin, Tensor const* inputs, int32_t nbInputs, Tensor* outputs, int32_t nbOutputs) {
    if (!plugin->build) return driver::kNoObject;
    driver::Exprs exprs;
    driver::ExprBuilder builder(exprs);
    std::vector<nvinfer1::DimsExprs> ins(static_cast<size_t>(nbInputs)), outs(static_cast<size_t>(nbOutputs));
    for (size_t i = 0; i < ins.size(); ++i) {
        ins[i].nbDims = inputs[i].rank;
        for (int32_t axis = 0; axis < inputs[i].rank; ++axis) {
            bool const free = inputs[i].dims[axis] < 0;
            ins[i].d[axis] = exprs.make(free ? inputs[i].opt[axis] : inputs[i].dims[axis], !free);
        }
    }
    int32_t const code =
        plugin->build->getOutputShapes(ins.data(), nbInputs, nullptr, 0, outs.data(), nbOutputs, builder);
    if (code) return code;
    for (size_t i = 0; i < outs.size(); ++i) {
        outputs[i].rank = outs[i].nbDims;
        for (int32_t axis = 0; axis < outs[i].nbDims; ++axis) {
            if (!outs[i].d[axis]) return driver::kNullExpr;
            outputs[i].opt[axis] = driver::Exprs::valueOf(*outs[i].d[axis]);
            outputs[i].dims[axis] = outs[i].d[axis]->isConstant() ? outputs[i].opt[axis] : -1;
        }
    }
    return 0;
}

API int32_t driver_accepts(Plugin* plugin, int32_t position, Tensors const* tensors) {
    if (!plugin->build) return driver::kNoObject;
    auto const descs = driver::describeRanges(*tensors);
    return plugin->build->supportsFormatCombination(position, descs.data(), tensors->inputs, tensors->outputs);
}

API int32_t driver_configure(Plugin* plugin, Tensors const* tensors) {
    if (!plugin->build) return driver::kNoObject;
    auto const descs = driver::describeRanges(*tensors);
    return plugin->build->configurePlugin(descs.data(), tensors->inputs, descs.data() + tensors->inputs, tensors->outputs);
}

API int64_t driver_workspace(Plugin* plugin, Tensors const* tensors) {
    if (!plugin->build) return driver::kNoObject;
    auto const descs = driver::describeRanges(*tensors);
    return static_cast<int64_t>(plugin->build->getWorkspaceSize(descs.data(), tensors->inputs,
                                                                descs.data() + tensors->inputs, tensors->outputs));
}

// The number of tactics, of which up to `capacity` are written.
API int32_t driver_tactics(Plugin* plugin, int32_t* tactics, int32_t capacity) {
    if (!plugin->build) return driver::kNoObject;
    int32_t const count = plugin->build->getNbTactics();
    std::vector<int32_t> found(static_cast<size_t>(std::max(count, 0)));
    if (count > 0 && plugin->build->getValidTactics(found.data(), count)) return -1;
    std::copy_n(found.begin(), std::min(std::max(count, 0), capacity), tactics);
    return count;
}

// A copy of the fields to serialize, which outlives the plugin; null where it gives none.
API Saved* driver_save(Plugin* plugin) {
    nvinfer1::PluginFieldCollection const* const given = plugin->runtime ? plugin->runtime->getFieldsToSerialize() : nullptr;
    if (!given) return nullptr;
    auto saved = std::make_unique<Saved>();
    for (int32_t i = 0; i < given->nbFields; ++i) {
        nvinfer1::PluginField const& field = given->fields[i];
        size_t const bytes = static_cast<size_t>(field.length) * driver::elementBytes(field.type);
        saved->names.emplace_back(field.name);
        saved->data.emplace_back(static_cast<char const*>(field.data), bytes);
    }
    for (int32_t i = 0; i < given->nbFields; ++i) {
        nvinfer1::PluginField const& field = given->fields[i];
        size_t const at = static_cast<size_t>(i);
        saved->fields.emplace_back(saved->names[at].c_str(), saved->data[at].data(), field.type, field.length);
    }
    return saved.release();
}

API nvinfer1::PluginField const* driver_saved(Saved* saved, int32_t* count) {
    *count = static_cast<int32_t>(saved->fields.size());
    return saved->fields.data();
}

API void driver_forget(Saved* saved) { delete saved; }

// -- runtime --

API int32_t driver_set_tactic(Plugin* plugin, int32_t tactic) {
    return plugin->runtime ? plugin->runtime->setTactic(tactic) : driver::kNoObject;
}

API int32_t driver_shape_change(Plugin* plugin, Tensors const* tensors) {
    if (!plugin->runtime) return driver::kNoObject;
    auto const descs = driver::describe(*tensors);
    return plugin->runtime->onShapeChange(descs.data(), tensors->inputs, descs.data() + tensors->inputs, tensors->outputs);
}

// Enqueue `times` times, and write how many nanoseconds each call took; `aside`: from a thread of the driver's own.
API int32_t driver_enqueue(Plugin* plugin, Tensors const* tensors, void const* const* inputs, void* const* outputs,
                           void* workspace, void* stream, int32_t times, double* nanoseconds, int32_t aside) {
    if (!plugin->runtime) return driver::kNoObject;
    auto const descs = driver::describe(*tensors);
    int32_t code = 0;
    auto const work = [&] {
        for (int32_t i = 0; i < times && !code; ++i) {
            auto const begin = std::chrono::steady_clock::now();
            code = plugin->runtime->enqueue(descs.data(), descs.data() + tensors->inputs, inputs, outputs, workspace,
                                            static_cast<cudaStream_t>(stream));
            std::chrono::duration<double, std::nano> const passed = std::chrono::steady_clock::now() - begin;
            nanoseconds[i] = passed.count();
        }
    };
    if (aside) {
        std::thread(work).join();
    } else {
        work();
    }
    return code;
}
