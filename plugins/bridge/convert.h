// Values of the C++ interface as Python objects, and back. All need the GIL.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pytrtplugins/plugin.h>

namespace pytrtplugins::bridge {

namespace py = pybind11;

py::object toPython(Dim const& dim);
py::tuple toPython(Dims const& dims);
py::object toPython(Value const& value);
py::object toPython(TensorDesc const& desc, std::string const& name);

Dims dimsFromPython(py::handle dims);
DType dtypeFromPython(py::handle name);
Layout layoutFromPython(py::handle name);
Value valueFromPython(py::handle value, Value const& like, std::string const& field);
TensorDesc descFromPython(py::handle desc);

std::vector<Dims> allDimsFromPython(py::iterable const& all);
std::vector<DType> allTypesFromPython(py::iterable const& all);
std::vector<TensorDesc> allDescsFromPython(py::iterable const& all);
py::list toPython(std::vector<TensorDesc> const& descs, std::string const& prefix);

// An array of a run: what it is and where its elements lie.
struct Binding {
    py::object array;  // held, since an iterator's array has no other owner, and a list may change during the run
    TensorDesc desc;
    void* data = nullptr;
    Device device = Device::kCPU;
};

// Take a NumPy array, or any with __cuda_array_interface__, without a copy.
Binding bindArray(py::handle array, std::string const& name, bool writable);

// A NumPy array over memory that somebody else owns.
py::array arrayOver(TensorDesc const& desc, void* data, bool writable);

}  // namespace pytrtplugins::bridge
