// Exceptions across the border: each is of its class's counterpart on the other side.
#pragma once

#include <pybind11/pybind11.h>

namespace pytrtplugins::bridge {

// Raise C++ exceptions in Python as those of pytrtplugins.errors.
void registerTranslator();

// Throw a Python exception in C++. It keeps the original, which Python gets back if it arrives there.
[[noreturn]] void rethrow(pybind11::error_already_set const& error);

}  // namespace pytrtplugins::bridge
