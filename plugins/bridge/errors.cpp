#include "errors.h"

#include <pytrtplugins/errors.h>

#include <exception>
#include <memory>
#include <new>
#include <string>

namespace pytrtplugins::bridge {
namespace {

namespace py = pybind11;

struct Class {
    ErrorKind kind;
    char const* name;
};
constexpr Class kClasses[] = {{ErrorKind::kDims, "DimsError"},
                              {ErrorKind::kField, "FieldError"},
                              {ErrorKind::kRegistry, "RegistryError"},
                              {ErrorKind::kSerialization, "SerializationError"},
                              {ErrorKind::kPlugin, "PluginError"}};  // the base of the others stands last

void raise(char const* name, std::string const& message, Facts const& facts) {
    py::object const cls = py::module_::import("pytrtplugins.errors").attr(name);
    py::dict keywords;
    for (auto const& [fact, value] : facts) keywords[py::str(fact)] = py::int_(value);
    auto const text = py::reinterpret_steal<py::object>(
        PyUnicode_DecodeUTF8(message.data(), static_cast<py::ssize_t>(message.size()), "replace"));
    PyErr_SetObject(cls.ptr(), cls(text, **keywords).ptr());
}

void raise(Error const& error) {
    if (auto const original = std::static_pointer_cast<py::error_already_set>(error.cause())) {
        PyErr_Restore(original->type().inc_ref().ptr(), original->value().inc_ref().ptr(),
                      original->trace().inc_ref().ptr());
        return;
    }
    for (Class const& one : kClasses) {
        if (one.kind == error.kind()) return raise(one.name, error.what(), error.facts());
    }
}

void translate(std::exception_ptr thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (Error const& error) {
        raise(error);
    } catch (py::builtin_exception const&) {
        throw;
    } catch (py::error_already_set const&) {
        throw;
    } catch (std::bad_alloc const&) {
        throw;
    } catch (std::exception const& error) {
        raise("PluginError", std::string("a C++ plugin failed: ") + error.what(), {});
    }
}

template <typename Kind>
[[noreturn]] void throwAs(std::string const& message, Facts const& facts, std::shared_ptr<void> const& cause) {
    Kind error(message, facts);
    error.setCause(cause);
    throw error;
}

}  // namespace

void registerTranslator() { py::register_exception_translator(&translate); }

void rethrow(py::error_already_set const& error) {
    std::string const message = py::str(error.value());
    auto const cause = std::make_shared<py::error_already_set>(error);
    Facts facts;
    if (py::hasattr(error.value(), "facts")) {
        for (auto const& [name, value] : py::dict(error.value().attr("facts"))) {
            if (py::isinstance<py::int_>(value)) facts.emplace_back(name.cast<std::string>(), value.cast<int64_t>());
        }
    }
    py::module_ const errors = py::module_::import("pytrtplugins.errors");
    for (Class const& one : kClasses) {
        if (!error.matches(errors.attr(one.name))) continue;
        switch (one.kind) {
            case ErrorKind::kDims: throwAs<DimsError>(message, facts, cause);
            case ErrorKind::kField: throwAs<FieldError>(message, facts, cause);
            case ErrorKind::kRegistry: throwAs<RegistryError>(message, facts, cause);
            case ErrorKind::kSerialization: throwAs<SerializationError>(message, facts, cause);
            case ErrorKind::kPlugin: break;
        }
    }
    std::string const type = error.type().attr("__name__").cast<std::string>();
    throwAs<PluginError>(type + ": " + message, facts, cause);
}

}  // namespace pytrtplugins::bridge
