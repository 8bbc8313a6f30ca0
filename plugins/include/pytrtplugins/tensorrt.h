// Offer the plugin classes of a library to TensorRT 10 and 11, as IPluginV3 with its creators.
//
//     #include <pytrtplugins/tensorrt.h>
//
//     class Scale : public pytrtplugins::Plugin { ... };      // see plugin.h
//     PYTRTPLUGINS_REGISTER(Scale, "acme", "1")
//     PYTRTPLUGINS_TENSORRT_LIBRARY                           // once, behind all classes
//
// The last line gives the library one of two forms, never both:
//   - as it stands, the creators enter TensorRT's plugin registry when the library is loaded, each under its class's
//     namespace: for LD_PRELOAD, Triton's --backend-config=tensorrt,plugins=, trtexec --staticPlugins=, ctypes.CDLL;
//   - with -DPYTRTPLUGINS_TENSORRT_LOADABLE it has what TensorRT's load_library looks for, getCreators and
//     setLoggerFinder: for registry.load_library(), trtexec --dynamicPlugins= and plugins_to_serialize.
// Where the classes stand in several source files, the one with this line is linked last: the first form registers the
// classes that were made known before it.
//
// Compile with TensorRT's headers and CUDA's (or, for a look on a machine without CUDA, the stand-in of
// plugins/tensorrt/without_cuda) and link libdl; TensorRT itself is found among the loaded libraries: libnvinfer, its lean
// or its dispatch form. TensorRT hands over addresses of the GPU, so each class must say runsOn(Device::kCUDA); with
// -DPYTRTPLUGINS_TENSORRT_HOST, for tests, the addresses are the process's own and the classes run on the CPU.
//
// An exception of a plugin becomes what TensorRT understands, a return code or null, and a message in its log.
#pragma once

#include "tensorrt/library.h"

#ifdef PYTRTPLUGINS_TENSORRT_LOADABLE
#define PYTRTPLUGINS_TENSORRT_LIBRARY                                                                                 \
    extern "C" __attribute__((visibility("default"))) nvinfer1::IPluginCreatorInterface* const* getCreators(          \
        int32_t& count) {                                                                                             \
        auto const& all = ::pytrtplugins::tensorrt::creators();                                                       \
        count = static_cast<int32_t>(all.size());                                                                     \
        return all.data();                                                                                            \
    }                                                                                                                 \
    extern "C" __attribute__((visibility("default"))) void setLoggerFinder(nvinfer1::ILoggerFinder* finder) {         \
        ::pytrtplugins::tensorrt::loggerFinder() = finder;                                                            \
    }
#else
#define PYTRTPLUGINS_TENSORRT_LIBRARY                                                                                 \
    namespace {                                                                                                       \
    [[maybe_unused]] bool const pytrtpluginsInTensorrt = ::pytrtplugins::tensorrt::registerAll();                     \
    }
#endif
