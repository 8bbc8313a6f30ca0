// The plugin classes of one library, and the entry point by which others find them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugin.h"

namespace pytrtplugins __attribute__((visibility("default"))) {

struct Entry {
    PluginKey key;
    std::unique_ptr<Plugin> (*make)();  // with the fields' defaults
};

// What pytrtplugins_library() gives. The first two say whether the rest can be read at all.
struct Library {
    int32_t interfaceVersion;
    int32_t stringAbi;  // of the C++ library: _GLIBCXX_USE_CXX11_ABI
    std::vector<Entry> const* entries;
};

#ifdef _GLIBCXX_USE_CXX11_ABI
constexpr int32_t kStringAbi = _GLIBCXX_USE_CXX11_ABI;
#else
constexpr int32_t kStringAbi = -1;
#endif

// These symbols have hidden visibility: each library has its own registry, even with RTLD_GLOBAL.
#define PYTRTPLUGINS_LOCAL __attribute__((visibility("hidden")))

PYTRTPLUGINS_LOCAL inline std::vector<Entry>& libraryEntries() {
    static std::vector<Entry> entries;
    return entries;
}

PYTRTPLUGINS_LOCAL inline Library const& thisLibrary() {
    static Library const library{kInterfaceVersion, kStringAbi, &libraryEntries()};
    return library;
}

// A class with the two methods that follow from its registration.
template <typename Base, typename Tag>
class Registered final : public Base {
public:
    PluginKey const& key() const override { return Tag::key(); }
    std::unique_ptr<Plugin> clone() const override { return std::make_unique<Registered>(*this); }
    static std::unique_ptr<Plugin> make() { return std::make_unique<Registered>(); }
};

inline std::string classNameOf(std::string const& written) {
    size_t const colon = written.rfind(':');
    return colon == std::string::npos ? written : written.substr(colon + 1);
}

// The fields' values, in declared order.
inline std::vector<Field> fieldsOf(Plugin const& plugin) {
    FieldReader reader;
    const_cast<Plugin&>(plugin).fields(reader);  // a reader changes nothing
    return std::move(reader.fields);
}

// Set fields by name, and validate.
inline void setFields(Plugin& plugin, std::vector<Field> const& fields) {
    FieldWriter writer(plugin.key().name, fields);
    plugin.fields(writer);
    writer.finish();
    plugin.validate();
}

// A class of this library.
PYTRTPLUGINS_LOCAL inline Entry const& lookup(PluginKey const& key) {
    std::string known;
    for (Entry const& entry : libraryEntries()) {
        if (entry.key == key) return entry;
        known += (known.empty() ? "" : ", ") + entry.key.text();
    }
    throw RegistryError("plugin " + key.text() + " is not registered. Registered: " + (known.empty() ? "none" : known) + ".");
}

// Make a plugin of this library.
PYTRTPLUGINS_LOCAL inline std::unique_ptr<Plugin> make(PluginKey const& key,
                                                        std::vector<Field> const& fields = {}) {
    std::unique_ptr<Plugin> plugin = lookup(key).make();
    setFields(*plugin, fields);
    return plugin;
}

// -- what callers of plugins use: the results of a plugin's methods, checked --

inline std::vector<Dims> checkedOutputDims(Plugin const& plugin, std::vector<Dims> const& inputs) {
    std::string const name = plugin.key().name;
    int32_t const expected = plugin.nbInputs();
    if (expected >= 0 && inputs.size() != static_cast<size_t>(expected)) {
        throw DimsError(name + ": expected " + std::to_string(expected) + " inputs, found "
                        + std::to_string(inputs.size()));
    }
    std::vector<Dims> outputs = plugin.outputDims(inputs);
    if (outputs.size() != static_cast<size_t>(plugin.nbOutputs())) {
        throw DimsError(name + ": outputDims gave " + std::to_string(outputs.size()) + " dims, nbOutputs says "
                        + std::to_string(plugin.nbOutputs()));
    }
    for (Dims const& dims : outputs) {
        for (Dim const& dim : dims) {
            if (dim.isConstant() && dim.value() < 0) {
                throw DimsError(name + ": outputDims gave " + text(dims) + ": dims are numbers of at least 0");
            }
        }
    }
    return outputs;
}

inline std::vector<DType> outputTypes(Plugin const& plugin, std::vector<DType> const& inputs) {
    std::vector<DType> outputs;
    for (int32_t i = 0; i < plugin.nbOutputs(); ++i) outputs.push_back(plugin.outputType(i, inputs));
    return outputs;
}

}  // namespace pytrtplugins

// Visible, since others look for it.
extern "C" __attribute__((visibility("default"), used)) inline pytrtplugins::Library const*
pytrtplugins_library() {
    return &pytrtplugins::thisLibrary();
}

#define PYTRTPLUGINS_JOIN_(a, b) a##b
#define PYTRTPLUGINS_JOIN(a, b) PYTRTPLUGINS_JOIN_(a, b)
#define PYTRTPLUGINS_REGISTER(Class, nameSpace, version) PYTRTPLUGINS_REGISTER_(Class, nameSpace, version, __COUNTER__)
#define PYTRTPLUGINS_REGISTER_(Class, nameSpace, version, number)                                                 \
    namespace {                                                                                                   \
    struct PYTRTPLUGINS_JOIN(PytrtpluginsTag, number) {                                                           \
        static ::pytrtplugins::PluginKey const& key() {                                                           \
            static ::pytrtplugins::PluginKey const key{nameSpace, ::pytrtplugins::classNameOf(#Class), version};  \
            return key;                                                                                           \
        }                                                                                                         \
    };                                                                                                            \
    [[maybe_unused]] bool const PYTRTPLUGINS_JOIN(pytrtpluginsRegistered, number) = [] {                          \
        using Tag = PYTRTPLUGINS_JOIN(PytrtpluginsTag, number);                                                   \
        ::pytrtplugins::libraryEntries().push_back({Tag::key(), &::pytrtplugins::Registered<Class, Tag>::make});  \
        return true;                                                                                              \
    }();                                                                                                          \
    }
