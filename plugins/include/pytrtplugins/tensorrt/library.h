// The creators of one library, and how TensorRT learns of them.
#pragma once

#include <NvInferRuntime.h>
#include <dlfcn.h>

#include <memory>
#include <string>
#include <vector>

#include "adapter.h"

namespace pytrtplugins {
namespace tensorrt __attribute__((visibility("hidden"))) {

// Makes IPluginV3 objects of one plugin class.
class Creator final : public nvinfer1::IPluginCreatorV3One {
public:
    explicit Creator(Entry const& entry) : mEntry(entry), mDeclared(declaredFields(*entry.make())) {}

    char const* getPluginName() const noexcept override { return mEntry.key.name.c_str(); }
    char const* getPluginVersion() const noexcept override { return mEntry.key.version.c_str(); }
    char const* getPluginNamespace() const noexcept override { return mEntry.key.nameSpace.c_str(); }

    nvinfer1::PluginFieldCollection const* getFieldNames() noexcept override { return mDeclared.get(); }

    nvinfer1::IPluginV3* createPlugin(char const*, nvinfer1::PluginFieldCollection const* fields,
                                      nvinfer1::TensorRTPhase) noexcept override {
        return guarded(mEntry.key, "createPlugin", static_cast<nvinfer1::IPluginV3*>(nullptr),
                       [&]() -> nvinfer1::IPluginV3* {
                           std::unique_ptr<Plugin> plugin = mEntry.make();
                           Extras extras = readPluginFields(*plugin, fields);
                           return new Adapter(std::move(plugin), std::move(extras));
                       });
    }

private:
    Entry mEntry;
    FieldCollection mDeclared;
};

// A creator for each class of this library. They are never freed: TensorRT's registry may ask for them until the end.
inline std::vector<nvinfer1::IPluginCreatorInterface*> const& creators() {
    static auto const* const all = [] {
        auto* made = new std::vector<nvinfer1::IPluginCreatorInterface*>;
        for (Entry const& entry : libraryEntries()) made->push_back(new Creator(entry));
        return made;
    }();
    return *all;
}

// Put the creators into the registry of the TensorRT in this process, and this library to stay as long as that.
inline bool registerAll() noexcept {
    PluginKey const self{"pytrtplugins", "library", std::to_string(kInterfaceVersion)};
    return guarded(self, "loading", false, [&] {
        auto* const getRegistry = runtimeFunction<nvinfer1::IPluginRegistry*()>("getPluginRegistry");
        nvinfer1::IPluginRegistry* const registry = getRegistry ? getRegistry() : nullptr;
        if (!registry) {
            throw RegistryError("no TensorRT " + std::to_string(NV_TENSORRT_MAJOR)
                                + " is in this process, so its plugins cannot be registered.\nDo: load libnvinfer.so."
                                + std::to_string(NV_TENSORRT_MAJOR) + " first, or put its folder into LD_LIBRARY_PATH");
        }
        if (creators().empty()) {
            throw RegistryError("no plugin class is known yet.\nDo: link the file with PYTRTPLUGINS_TENSORRT_LIBRARY last");
        }
        Dl_info info;
        if (dladdr(reinterpret_cast<void*>(&registerAll), &info)) dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
        bool all = true;
        for (nvinfer1::IPluginCreatorInterface* creator : creators()) {
            auto& one = static_cast<Creator&>(*creator);
            if (registry->registerCreator(one, one.getPluginNamespace())) continue;
            report(PluginKey{one.getPluginNamespace(), one.getPluginName(), one.getPluginVersion()}.text()
                   + ": TensorRT's registry has a creator of this key already, which stays");
            all = false;
        }
        return all;
    });
}

}  // namespace tensorrt
}  // namespace pytrtplugins
