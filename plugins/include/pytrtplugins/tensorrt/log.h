// The TensorRT in this process, and messages in its log.
#pragma once

#include <NvInferRuntime.h>
#include <dlfcn.h>

#include <cstdio>
#include <string>

#include "../plugin.h"

#if NV_TENSORRT_MAJOR < 10
#error "pytrtplugins/tensorrt.h needs the headers of TensorRT 10 or 11"
#endif

namespace pytrtplugins {
namespace tensorrt __attribute__((visibility("hidden"))) {

// Set by TensorRT in a library that load_library opened.
inline nvinfer1::ILoggerFinder*& loggerFinder() {
    static nvinfer1::ILoggerFinder* finder = nullptr;
    return finder;
}

// The loaded library of the headers' major version: the full, the lean or the dispatch one; else one that can be loaded.
inline void* runtimeLibrary() {
    static void* const library = [] {
        std::string const major = std::to_string(NV_TENSORRT_MAJOR);
        for (int const mode : {RTLD_NOW | RTLD_NOLOAD, RTLD_NOW}) {
            for (char const* name : {"libnvinfer.so.", "libnvinfer_lean.so.", "libnvinfer_dispatch.so."}) {
                if (void* found = dlopen((name + major).c_str(), mode)) return found;
            }
        }
        return static_cast<void*>(RTLD_DEFAULT);  // linked into the program, or absent
    }();
    return library;
}

// A function that TensorRT exports; null where there is none.
template <typename Function>
Function* runtimeFunction(char const* name) {
    return reinterpret_cast<Function*>(dlsym(runtimeLibrary(), name));
}

// Write an error where TensorRT writes its own; to stderr where it has no log.
inline void report(std::string const& message) noexcept {
    nvinfer1::ILogger* logger = nullptr;
    try {
        if (loggerFinder()) {
            logger = loggerFinder()->findLogger();
        } else if (auto* const getLogger = runtimeFunction<nvinfer1::ILogger*()>("getLogger")) {
            logger = getLogger();
        }
    } catch (...) {
        logger = nullptr;
    }
    if (logger) {
        logger->log(nvinfer1::ILogger::Severity::kERROR, message.c_str());
    } else {
        std::fprintf(stderr, "%s\n", message.c_str());
    }
}

// The result of a call, or `failure` where it throws; what was thrown is reported.
template <typename Result, typename Call>
Result guarded(PluginKey const& key, char const* where, Result failure, Call&& call) noexcept {
    try {
        return call();
    } catch (std::exception const& error) {
        report(key.text() + ": " + where + ": " + error.what());
    } catch (...) {
        report(key.text() + ": " + where + ": an exception of unknown type");
    }
    return failure;
}

}  // namespace tensorrt
}  // namespace pytrtplugins
