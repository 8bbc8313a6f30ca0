// Write a custom layer in C++, in the words of TensorRT's IPluginV2 and without its headers.
//
//     #include <pytrtplugins/plugin.h>
//
//     class Scale : public pytrtplugins::Plugin {
//     public:
//         float factor = 2.0f;
//         void fields(pytrtplugins::FieldVisitor& visit) override { visit("factor", factor); }
//         std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override { return inputs; }
//         void enqueue(TensorDesc const* inputDescs, ...) override { ... }
//     };
//     PYTRTPLUGINS_REGISTER(Scale, "acme", "1")
//
// Compile it into a shared library, link nothing; in Python, pytrtplugins.load_library("libacme.so") makes a Plugin class
// of each registered one. Errors are the exceptions of errors.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fields.h"
#include "tensor.h"

namespace pytrtplugins __attribute__((visibility("default"))) {

// Changes when the classes that cross between libraries change.
constexpr int32_t kInterfaceVersion = 1;

// What identifies a plugin class in a model, an engine and TensorRT's registry.
struct PluginKey {
    std::string nameSpace, name, version;

    std::string text() const { return nameSpace + "::" + name + " version " + version; }
    bool operator==(PluginKey const& other) const {
        return nameSpace == other.nameSpace && name == other.name && version == other.version;
    }
};

enum class Device : int32_t { kCPU, kCUDA };

// Where the pointers of an enqueue lie, and the queue of the work: a cudaStream_t, or null on a CPU.
struct Stream {
    Device device = Device::kCPU;
    void* handle = nullptr;
};

// INT8 support of a layer: none (float only), pass-through (values move, same scale), or requantize (own scales).
enum class Int8 : int32_t { kFLOAT, kPASS_THROUGH, kREQUANTIZE };

// Base of all plugins; the methods are called in this order. A copy must share no changeable state with its original,
// which holds by itself where all members are values: clone() copies. Different objects are used from different threads.
class Plugin {
public:
    virtual ~Plugin() = default;

    // -- what a plugin writes --

    // Name each field: visit("stride", stride). Members of bool, int64_t, float, std::string, a std::vector of one of
    // them, or Array; their initial values are the defaults.
    virtual void fields(FieldVisitor& /*visit*/) {}

    // Check the fields against each other; throw FieldError.
    virtual void validate() const {}

    // For Python's help().
    virtual char const* description() const { return ""; }

    virtual Int8 int8() const { return Int8::kFLOAT; }
    virtual int32_t nbInputs() const { return 1; }  // -1: any number
    virtual int32_t nbOutputs() const { return 1; }

    // The only shape rule: one dims for each output; throw DimsError for dims that are not accepted.
    virtual std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const = 0;

    virtual DType outputType(int32_t /*index*/, std::vector<DType> const& inputs) const { return inputs.at(0); }

    // Whether tensor `position` of the inputs and then the outputs may have its type and layout, given those before it.
    virtual bool supportsFormat(int32_t position, std::vector<TensorDesc> const& descs) const {
        TensorDesc const& desc = descs[static_cast<size_t>(position)];
        bool const accepted = desc.dtype == DType::kFLOAT32 || desc.dtype == DType::kFLOAT16
                              || (desc.dtype == DType::kINT8 && int8() != Int8::kFLOAT);
        return accepted && desc.layout == Layout::kLINEAR && desc.dtype == descs[0].dtype;
    }

    virtual bool runsOn(Device device) const { return device == Device::kCPU; }

    // Learn what was chosen; called again when it changes.
    virtual void configure(std::vector<TensorDesc> const& /*inputs*/, std::vector<TensorDesc> const& /*outputs*/) {}

    // Scratch memory that enqueue needs, in bytes.
    virtual size_t workspaceSize(std::vector<TensorDesc> const& /*inputs*/,
                                 std::vector<TensorDesc> const& /*outputs*/) const {
        return 0;
    }

    virtual void initialize() {}

    // Queue the work, writing every element of the outputs. No allocation, no synchronization.
    virtual void enqueue(TensorDesc const* inputDescs, TensorDesc const* outputDescs, void const* const* inputs,
                         void* const* outputs, void* workspace, Stream stream) = 0;

    virtual void terminate() {}

    // -- what PYTRTPLUGINS_REGISTER writes --

    virtual PluginKey const& key() const = 0;
    virtual std::unique_ptr<Plugin> clone() const = 0;
};

}  // namespace pytrtplugins

#include "registry.h"   // PYTRTPLUGINS_REGISTER
#include "serialize.h"  // serialize, deserialize
