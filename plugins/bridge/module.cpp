// pytrtplugins._native: C++ plugins in Python, and Python plugins in C++, for pytrtplugins/native.py; uploads for engine cuda.
#include <dlfcn.h>
#include <pybind11/pybind11.h>
#include <pytrtplugins/plugin.h>
#include <pytrtplugins/run.h>

#include "convert.h"
#include "errors.h"
#include "python_plugin.h"
#include "upload.h"

namespace pytrtplugins::bridge {
namespace {

// C++ work, with the GIL released.
template <typename Work>
auto unlocked(Work&& work) {
    py::gil_scoped_release const release;
    return work();
}

// The classes of a library, which stays loaded for the life of the process.
py::list load(std::string const& path) {
    void* const handle = unlocked([&] { return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); });
    if (!handle) throw PluginError("library " + path + " cannot be loaded: " + dlerror());
    auto const describe = reinterpret_cast<Library const* (*)()>(dlsym(handle, "pytrtplugins_library"));
    if (!describe) {
        throw PluginError("library " + path + " has no plugins.\nDo: include <pytrtplugins/plugin.h>, and write "
                          "PYTRTPLUGINS_REGISTER(Class, \"namespace\", \"version\") below each class.");
    }
    Library const& library = *describe();
    if (library.interfaceVersion != kInterfaceVersion || library.stringAbi != kStringAbi) {
        throw PluginError("library " + path + " was compiled for interface version "
                          + std::to_string(library.interfaceVersion) + " (string ABI " + std::to_string(library.stringAbi)
                          + "), this package has version " + std::to_string(kInterfaceVersion) + " (string ABI "
                          + std::to_string(kStringAbi) + ").\nDo: compile the library again with this package's headers.");
    }
    py::list entries;
    for (Entry const& entry : *library.entries) entries.append(py::cast(&entry, py::return_value_policy::reference));
    return entries;
}

std::unique_ptr<Plugin> makeWith(Entry const& entry, py::dict const& values) {
    std::unique_ptr<Plugin> plugin = entry.make();
    std::vector<Field> fields;
    for (Field const& field : fieldsOf(*plugin)) {
        if (!values.contains(field.name)) continue;
        std::string const name = entry.key.name + "." + field.name;
        fields.push_back({field.name, valueFromPython(values[py::str(field.name)], field.value, name)});
    }
    setFields(*plugin, fields);
    return plugin;
}

py::list declaredFields(Entry const& entry) {
    py::list declared;
    for (Field const& field : fieldsOf(*entry.make())) {
        declared.append(py::make_tuple(field.name, typeName(field.value), toPython(field.value)));
    }
    return declared;
}

char const* int8Name(Plugin const& plugin) {
    static char const* const names[] = {"float", "pass_through", "requantize"};
    return names[static_cast<int32_t>(plugin.int8())];
}

using Layouts = std::vector<Layout>;

// The arrays of one call, checked against the plugin's own rules so that nothing is written beyond an output's end.
struct Call {
    std::vector<Binding> bound;
    std::vector<TensorDesc> inputDescs, outputDescs;
    std::vector<void const*> inputs;
    std::vector<void*> outputs;
    Device device = Device::kCPU;

    Call(Plugin const& plugin, py::iterable const& ins, py::iterable const& outs, Layouts const& layouts = {}) {
        for (py::handle array : ins) bound.push_back(bindArray(array, "input " + std::to_string(bound.size()), false));
        for (Binding const& one : bound) {
            inputDescs.push_back(one.desc);
            inputs.push_back(one.data);
        }
        outputDescs = describeOutputs(plugin, inputDescs);
        size_t const count = bound.size();
        for (py::handle array : outs) {
            size_t const index = bound.size() - count;
            bound.push_back(bindArray(array, "output " + std::to_string(index), true));
            check(bound.back().desc, index);
            outputs.push_back(bound.back().data);
        }
        setLayouts(layouts);
        if (outputs.size() != outputDescs.size()) {
            throw DimsError("expected " + std::to_string(outputDescs.size()) + " outputs, found "
                            + std::to_string(outputs.size()));
        }
        device = bound.empty() ? Device::kCPU : bound[0].device;
        for (Binding const& one : bound) {
            if (one.device != device) throw PluginError("arrays of a CPU and of a GPU in one call");
        }
        if (!plugin.runsOn(device)) {
            throw PluginError(plugin.key().text() + " does not run on a " + (device == Device::kCPU ? "CPU" : "GPU"));
        }
    }

    // Arrays have dims in the order of linear tensors, whatever the order of their memory.
    void setLayouts(Layouts const& layouts) {
        size_t index = 0;
        for (auto* descs : {&inputDescs, &outputDescs}) {
            for (TensorDesc& desc : *descs) desc.layout = index < layouts.size() ? layouts[index++] : Layout::kLINEAR;
        }
    }

    // Values of a step of the inputs and outputs that hold codes, 0 for the others.
    void setScales(std::vector<float> const& scales) {
        size_t index = 0;
        for (auto* descs : {&inputDescs, &outputDescs}) {
            for (TensorDesc& desc : *descs) desc.scale = index < scales.size() ? scales[index++] : 0.0f;
        }
    }

    void check(TensorDesc const& found, size_t index) const {
        bool const known = index < outputDescs.size();
        if (known && text(found.dims) == text(outputDescs[index].dims) && found.dtype == outputDescs[index].dtype) return;
        throw DimsError("output " + std::to_string(index) + ": expected "
                        + (known ? std::string(name(outputDescs[index].dtype)) + text(outputDescs[index].dims) : "none")
                        + ", found " + name(found.dtype) + text(found.dims));
    }
};

void enqueue(Plugin& plugin, py::iterable const& inputs, py::iterable const& outputs, py::iterable const& layouts,
             uintptr_t workspace, uintptr_t stream, py::iterable const& scales) {
    Layouts given;
    for (py::handle layout : layouts) given.push_back(layoutFromPython(layout));
    Call call(plugin, inputs, outputs, given);
    std::vector<float> steps;
    for (py::handle scale : scales) steps.push_back(scale.cast<float>());
    call.setScales(steps);
    unlocked([&] {
        plugin.enqueue(call.inputDescs.data(), call.outputDescs.data(), call.inputs.data(), call.outputs.data(),
                       reinterpret_cast<void*>(workspace), Stream{call.device, reinterpret_cast<void*>(stream)});
    });
}

void runOnHost(Plugin const& plugin, py::iterable const& inputs, py::iterable const& outputs) {
    Call const call(plugin, inputs, outputs);
    if (call.device != Device::kCPU) throw PluginError("run: arrays of a GPU");
    unlocked([&] { run(plugin, call.inputDescs, call.outputDescs, call.inputs.data(), call.outputs.data()); });
}

py::list outputDims(Plugin const& plugin, py::iterable const& inputs) {
    std::vector<Dims> const given = allDimsFromPython(inputs);
    py::list result;
    for (Dims const& dims : unlocked([&] { return checkedOutputDims(plugin, given); })) result.append(toPython(dims));
    return result;
}

py::list outputTypeNames(Plugin const& plugin, py::iterable const& inputs) {
    std::vector<DType> const given = allTypesFromPython(inputs);
    py::list result;
    for (DType dtype : unlocked([&] { return outputTypes(plugin, given); })) result.append(name(dtype));
    return result;
}

Form formFromPython(std::string const& name) {
    if (name == "float16") return Form::kHALF;
    if (name == "int8") return Form::kINT8;
    return Form::kSAME;
}

int uploadAddresses(uintptr_t from, uintptr_t staged, uint64_t to, size_t count, std::string const& form, float scale,
                    uintptr_t queue, uintptr_t stream, unsigned helpers) {
    Upload const what{reinterpret_cast<void const*>(from), reinterpret_cast<void*>(staged), to, count, formFromPython(form), scale,
                      reinterpret_cast<QueueCopy>(queue), reinterpret_cast<void*>(stream)};
    return unlocked([&] { return upload(what, helpers); });
}

}  // namespace

PYBIND11_MODULE(_native, module) {
    module.doc() = "The C++ half of pytrtplugins.native.";
    registerTranslator();

    py::class_<Entry>(module, "Entry", "A plugin class of a library.")
        .def_property_readonly("key", [](Entry const& entry) {
            return py::make_tuple(entry.key.nameSpace, entry.key.name, entry.key.version);
        })
        .def_property_readonly("description", [](Entry const& entry) { return entry.make()->description(); })
        .def_property_readonly("int8", [](Entry const& entry) { return int8Name(*entry.make()); })
        .def("fields", &declaredFields)
        .def("make", &makeWith);

    py::class_<Plugin>(module, "Handle", "A plugin behind the C++ interface.")
        .def_property_readonly("address", [](Plugin& plugin) { return reinterpret_cast<uintptr_t>(&plugin); })
        .def_property_readonly("num_inputs", &Plugin::nbInputs)
        .def("output_dims", &outputDims)
        .def("output_types", &outputTypeNames)
        .def("supports_format", [](Plugin const& plugin, int32_t position, py::iterable const& descs) {
            std::vector<TensorDesc> const given = allDescsFromPython(descs);
            return unlocked([&] { return plugin.supportsFormat(position, given); });
        })
        .def("runs_on_gpu", [](Plugin const& plugin) { return plugin.runsOn(Device::kCUDA); })
        .def("configure", [](Plugin& plugin, py::iterable const& inputs, py::iterable const& outputs) {
            std::vector<TensorDesc> const ins = allDescsFromPython(inputs), outs = allDescsFromPython(outputs);
            unlocked([&] { plugin.configure(ins, outs); });
        })
        .def("workspace_size", [](Plugin const& plugin, py::iterable const& inputs, py::iterable const& outputs) {
            std::vector<TensorDesc> const ins = allDescsFromPython(inputs), outs = allDescsFromPython(outputs);
            return unlocked([&] { return plugin.workspaceSize(ins, outs); });
        })
        .def("initialize", &Plugin::initialize, py::call_guard<py::gil_scoped_release>())
        .def("enqueue", &enqueue, py::arg("inputs"), py::arg("outputs"), py::arg("layouts"), py::arg("workspace"),
             py::arg("stream"), py::arg("scales") = py::tuple())
        .def("terminate", &Plugin::terminate, py::call_guard<py::gil_scoped_release>())
        .def("clone", &Plugin::clone, py::call_guard<py::gil_scoped_release>())
        .def("__deepcopy__", [](Plugin const& plugin, py::handle) { return unlocked([&] { return plugin.clone(); }); })
        .def("serialize", [](Plugin const& plugin) {
            Bytes const bytes = unlocked([&] { return serialize(plugin); });
            return py::bytes(reinterpret_cast<char const*>(bytes.data()), bytes.size());
        })
        .def("deserialize", [](Plugin const& plugin, py::bytes const& data) {
            std::string_view const view = data;
            return unlocked([&] {
                std::unique_ptr<Plugin> twin = plugin.clone();
                readFields(*twin, reinterpret_cast<uint8_t const*>(view.data()), view.size());
                return twin;
            });
        });

    module.def("load", &load, "Load a library and give its plugin classes.");
    module.def("wrap", [](py::object plugin, int32_t outputs) -> std::unique_ptr<Plugin> {
        return std::make_unique<PythonPlugin>(std::move(plugin), outputs);
    });
    module.def("makes", [](std::string const& form) { return makes(formFromPython(form)); });
    module.def("upload", &uploadAddresses, "Copy from ordinary memory to a GPU.");
    module.def("run", &runOnHost, "Run a clone through its whole life, on NumPy arrays.");
}

}  // namespace pytrtplugins::bridge
