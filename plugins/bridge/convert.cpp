#include "convert.h"

#include <cstring>

namespace pytrtplugins::bridge {
namespace {

py::object fromModule(char const* module, char const* name) { return py::module_::import(module).attr(name); }

Dim dimFromPython(py::handle value) {
    if (py::isinstance<py::int_>(value)) return value.cast<int64_t>();
    if (!py::isinstance(value, fromModule("pytrtplugins.tensor", "SymbolicDim"))) {
        return py::int_(value.attr("__index__")()).cast<int64_t>();
    }
    std::string const name = value.attr("name").cast<std::string>();
    py::object const left = value.attr("left"), right = value.attr("right");
    if (left.is_none()) return Dim::symbol(name);
    return Dim::combine(name[0], dimFromPython(left), dimFromPython(right));
}

template <typename T>
py::tuple tupleOf(std::vector<T> const& values) {
    py::tuple items(values.size());
    for (size_t i = 0; i < values.size(); ++i) items[i] = py::cast(static_cast<T>(values[i]));
    return items;
}

template <typename T>
std::vector<T> vectorOf(py::handle values) {
    std::vector<T> items;
    for (py::handle value : values) items.push_back(value.cast<T>());
    return items;
}

template <typename T>
py::object heldToPython(T const& item) {
    return py::cast(item);
}

template <typename T>
py::object heldToPython(std::vector<T> const& items) {
    return tupleOf(items);
}

py::object heldToPython(Array const& array) {
    py::object const flat = fromModule("numpy", "frombuffer")(
        py::bytes(reinterpret_cast<char const*>(array.data.data()), array.data.size()), array.dtype);
    return flat.attr("reshape")(tupleOf(array.shape));
}

template <typename T>
T fromPython(py::handle value, T const& /*like*/) {
    return value.cast<T>();
}

template <typename T>
std::vector<T> fromPython(py::handle values, std::vector<T> const& /*like*/) {
    return vectorOf<T>(values);
}

Array fromPython(py::handle value, Array const& /*like*/) {
    py::bytes const data = value.attr("tobytes")();
    std::string_view const view = data;
    Array array{value.attr("dtype").attr("name").cast<std::string>(), vectorOf<int64_t>(value.attr("shape")), {}};
    array.data.assign(view.begin(), view.end());
    return array;
}

}  // namespace

py::object toPython(Dim const& dim) {
    if (dim.isConstant()) return py::int_(dim.value());
    py::object const symbolic = fromModule("pytrtplugins.tensor", "SymbolicDim");
    if (!dim.operation()) return symbolic(dim.symbolName());
    std::string const shown = dim.operation() == '/' ? "//" : std::string(1, dim.operation());
    return symbolic(shown, toPython(dim.left()), toPython(dim.right()));
}

py::tuple toPython(Dims const& dims) {
    py::tuple items(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) items[i] = toPython(dims[i]);
    return items;
}

py::object toPython(Value const& value) {
    return std::visit([](auto const& held) { return heldToPython(held); }, value);
}

py::object toPython(TensorDesc const& desc, std::string const& name) {
    py::object const dtype = fromModule("pytrtplugins.tensor", "DType")(pytrtplugins::name(desc.dtype));
    char const* const layout = desc.layout == Layout::kNHWC ? "nhwc" : "linear";
    py::object const scale = desc.scale != 0 ? py::object(py::float_(desc.scale)) : py::none();
    return fromModule("pytrtplugins.tensor", "TensorDesc")(name, toPython(desc.dims), dtype, layout, scale);
}

py::list toPython(std::vector<TensorDesc> const& descs, std::string const& prefix) {
    py::list items;
    for (size_t i = 0; i < descs.size(); ++i) items.append(toPython(descs[i], prefix + std::to_string(i)));
    return items;
}

Dims dimsFromPython(py::handle dims) {
    Dims result;
    for (py::handle dim : dims) result.push_back(dimFromPython(dim));
    return result;
}

DType dtypeFromPython(py::handle given) {
    std::string const wanted = py::str(given);
    for (DType dtype : {DType::kFLOAT32, DType::kFLOAT16, DType::kBFLOAT16, DType::kINT8, DType::kUINT8, DType::kINT32,
                        DType::kINT64, DType::kBOOL}) {
        if (wanted == name(dtype)) return dtype;
    }
    throw PluginError("element type '" + wanted + "' is not supported");
}

Layout layoutFromPython(py::handle given) {
    std::string const wanted = given.cast<std::string>();
    if (wanted == "linear") return Layout::kLINEAR;
    if (wanted == "nhwc") return Layout::kNHWC;
    throw PluginError("layout '" + wanted + "' is not supported");
}

Value valueFromPython(py::handle value, Value const& like, std::string const& field) {
    try {
        return std::visit([&](auto const& held) -> Value { return fromPython(value, held); }, like);
    } catch (py::cast_error const&) {
        std::string const found = py::repr(value);
        throw FieldError(field + ": expected " + typeName(like) + ", found " + found);
    }
}

TensorDesc descFromPython(py::handle desc) {
    py::object const scale = desc.attr("scale");
    return {dimsFromPython(desc.attr("dims")), dtypeFromPython(desc.attr("dtype")), layoutFromPython(desc.attr("layout")),
            scale.is_none() ? 0.0f : scale.cast<float>()};
}

std::vector<Dims> allDimsFromPython(py::iterable const& all) {
    std::vector<Dims> result;
    for (py::handle dims : all) result.push_back(dimsFromPython(dims));
    return result;
}

std::vector<DType> allTypesFromPython(py::iterable const& all) {
    std::vector<DType> result;
    for (py::handle dtype : all) result.push_back(dtypeFromPython(dtype));
    return result;
}

std::vector<TensorDesc> allDescsFromPython(py::iterable const& all) {
    std::vector<TensorDesc> result;
    for (py::handle desc : all) result.push_back(descFromPython(desc));
    return result;
}

Binding bindArray(py::handle array, std::string const& name, bool writable) {
    Binding binding;
    binding.array = py::reinterpret_borrow<py::object>(array);
    py::object interface;
    bool contiguous = true;
    if (py::isinstance<py::array>(array)) {
        interface = array.attr("__array_interface__");
        auto const given = py::reinterpret_borrow<py::array>(array);
        contiguous = (given.flags() & py::array::c_style) != 0;
        if (std::strchr("=|", given.dtype().byteorder()) == nullptr) throw PluginError(name + " is in the other byte order");
    } else if (py::hasattr(array, "__cuda_array_interface__")) {
        interface = array.attr("__cuda_array_interface__");
        contiguous = py::dict(interface).attr("get")("strides").is_none();
        binding.device = Device::kCUDA;
    } else {
        throw PluginError(name + " is no array of NumPy and has no __cuda_array_interface__: "
                          + std::string(py::str(py::type::of(array))));
    }
    if (!contiguous) throw PluginError(name + " is not contiguous");
    py::tuple const data = interface["data"];
    if (writable && data[1].cast<bool>()) throw PluginError(name + " cannot be written: it is read-only");
    binding.data = reinterpret_cast<void*>(data[0].cast<uintptr_t>());
    binding.desc.dims = dimsFromPython(interface["shape"]);
    binding.desc.dtype = dtypeFromPython(array.attr("dtype").attr("name"));
    return binding;
}

py::array arrayOver(TensorDesc const& desc, void* data, bool writable) {
    std::vector<py::ssize_t> shape;
    for (Dim const& dim : desc.dims) shape.push_back(static_cast<py::ssize_t>(dim.value()));
    py::object const dtype = fromModule("pytrtplugins.tensor", "DType")(name(desc.dtype)).attr("numpy");
    py::capsule const owner(data ? data : static_cast<void*>(&shape), [](void*) {});  // owns nothing: no copy is made
    py::array array(py::reinterpret_borrow<py::dtype>(dtype), shape, {}, data, owner);
    if (!writable) array.attr("flags").attr("writeable") = false;
    return array;
}

}  // namespace pytrtplugins::bridge
