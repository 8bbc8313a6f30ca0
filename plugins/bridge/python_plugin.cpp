#include "python_plugin.h"

#include <utility>

#include "convert.h"
#include "errors.h"

namespace pytrtplugins::bridge {
namespace {

// Work in Python, whose exceptions become those of errors.h.
template <typename Work>
auto inPython(Work&& work) {
    py::gil_scoped_acquire const gil;
    try {
        return work();
    } catch (py::error_already_set const& error) {
        rethrow(error);
    }
}

py::list dtypesToPython(std::vector<DType> const& dtypes) {
    py::object const cls = py::module_::import("pytrtplugins.tensor").attr("DType");
    py::list items;
    for (DType dtype : dtypes) items.append(cls(name(dtype)));
    return items;
}

}  // namespace

PythonPlugin::PythonPlugin(py::object plugin, int32_t nbOutputs) : mPlugin(std::move(plugin)), mNbOutputs(nbOutputs) {
    py::tuple const key = mPlugin.attr("plugin_key")();
    mKey = {key[0].cast<std::string>(), key[1].cast<std::string>(), key[2].cast<std::string>()};
    std::string const int8 = mPlugin.attr("int8").cast<std::string>();
    mInt8 = int8 == "pass_through" ? Int8::kPASS_THROUGH : int8 == "requantize" ? Int8::kREQUANTIZE : Int8::kFLOAT;
    py::object const count = mPlugin.attr("num_inputs");
    if (!count.is_none()) mNbInputs = count.cast<int32_t>();
}

PythonPlugin::~PythonPlugin() {
    py::gil_scoped_acquire const gil;
    mPlugin = py::object();
}

void PythonPlugin::fields(FieldVisitor& visit) {
    inPython([&] {
        py::dict const values = mPlugin.attr("fields")();
        py::dict changed;
        for (py::handle spec : mPlugin.attr("field_specs")()) {
            std::string const name = spec.attr("name").cast<std::string>();
            Value value = valueOfType(spec.attr("code").cast<int>());
            Value const before = value = valueFromPython(values[py::str(name)], value, mKey.name + "." + name);
            visit.visit(name.c_str(), value);
            if (!(value == before)) changed[py::str(name)] = bridge::toPython(value);
        }
        if (changed.empty()) return;
        values.attr("update")(changed);
        mPlugin = py::type::of(mPlugin)(**values);
    });
}

std::vector<Dims> PythonPlugin::outputDims(std::vector<Dims> const& inputs) const {
    return inPython([&] {
        py::list all;
        for (Dims const& dims : inputs) all.append(bridge::toPython(dims));
        return allDimsFromPython(mPlugin.attr("all_output_dims")(all));
    });
}

DType PythonPlugin::outputType(int32_t index, std::vector<DType> const& inputs) const {
    return inPython([&] {
        py::tuple const types = mPlugin.attr("all_output_dtypes")(dtypesToPython(inputs), mNbOutputs);
        return dtypeFromPython(types[static_cast<size_t>(index)]);
    });
}

bool PythonPlugin::supportsFormat(int32_t position, std::vector<TensorDesc> const& descs) const {
    return inPython([&] {
        return py::bool_(mPlugin.attr("supports_format")(position, bridge::toPython(descs, "tensor"))).cast<bool>();
    });
}

void PythonPlugin::configure(std::vector<TensorDesc> const& inputs, std::vector<TensorDesc> const& outputs) {
    mNbEnqueued = inputs.size();
    mWorkspaceBytes = inPython([&] {
        py::list const ins = bridge::toPython(inputs, "input"), outs = bridge::toPython(outputs, "output");
        mPlugin.attr("configure")(ins, outs);
        return mPlugin.attr("workspace_size")(ins, outs).cast<size_t>();
    });
}

size_t PythonPlugin::workspaceSize(std::vector<TensorDesc> const& inputs, std::vector<TensorDesc> const& outputs) const {
    return inPython([&] {
        py::list const ins = bridge::toPython(inputs, "input"), outs = bridge::toPython(outputs, "output");
        return mPlugin.attr("workspace_size")(ins, outs).cast<size_t>();
    });
}

void PythonPlugin::initialize() {
    inPython([&] { mPlugin.attr("initialize")(); });
}

void PythonPlugin::enqueue(TensorDesc const* inputDescs, TensorDesc const* outputDescs, void const* const* inputs,
                           void* const* outputs, void* workspace, Stream stream) {
    if (stream.device == Device::kCUDA) return enqueueOnGpu(inputDescs, outputDescs, inputs, outputs, workspace, stream);
    inPython([&] {
        py::list ins, outs;
        for (size_t i = 0; i < mNbEnqueued; ++i) {
            ins.append(arrayOver(inputDescs[i], const_cast<void*>(inputs[i]), false));
        }
        for (int32_t i = 0; i < mNbOutputs; ++i) outs.append(arrayOver(outputDescs[i], outputs[i], true));
        py::object scratch = py::none();
        if (mWorkspaceBytes) scratch = arrayOver({{mWorkspaceBytes}, DType::kUINT8}, workspace, true);
        mPlugin.attr("enqueue")(ins, outs, scratch, py::none());
    });
}

void PythonPlugin::enqueueOnGpu(TensorDesc const* inputDescs, TensorDesc const* outputDescs, void const* const* inputs,
                                void* const* outputs, void* workspace, Stream stream) {
    inPython([&] {
        auto const describe = [](TensorDesc const& desc, void const* data, std::string const& name) {
            return py::make_tuple(reinterpret_cast<uintptr_t>(data), bridge::toPython(desc, name));
        };
        py::list ins, outs;
        for (size_t i = 0; i < mNbEnqueued; ++i) ins.append(describe(inputDescs[i], inputs[i], "input"));
        for (int32_t i = 0; i < mNbOutputs; ++i) outs.append(describe(outputDescs[i], outputs[i], "output"));
        py::object scratch = py::none();
        if (mWorkspaceBytes) scratch = describe({{mWorkspaceBytes}, DType::kUINT8}, workspace, "workspace");
        py::module_::import("pytrtplugins.native")
            .attr("_enqueue_on_gpu")(mPlugin, ins, outs, scratch, reinterpret_cast<uintptr_t>(stream.handle));
    });
}

void PythonPlugin::terminate() {
    inPython([&] { mPlugin.attr("terminate")(); });
}

std::unique_ptr<Plugin> PythonPlugin::clone() const {
    return inPython([&]() -> std::unique_ptr<Plugin> {
        auto twin = std::make_unique<PythonPlugin>(mPlugin.attr("clone")(), mNbOutputs);
        twin->mNbEnqueued = mNbEnqueued;
        twin->mWorkspaceBytes = mWorkspaceBytes;
        return twin;
    });
}

}  // namespace pytrtplugins::bridge
