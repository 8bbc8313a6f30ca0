// What plugins need that were written in Python and exported as C++ (pytrt export-plugin): their types and layouts, and their
// kernels. python_numbers.h has Python's rules for numbers, exported_arrays.h has array fields.
//
// Kernels travel inside the library, compiled for GPUs, and are launched through CUDA's driver, libcuda.so.1, which is
// found when it is needed: nothing of CUDA is linked. With -DPYTRTPLUGINS_HOST_KERNELS, for tests, they are compiled for the CPU.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "exported_arrays.h"
#include "plugin.h"
#include "python_numbers.h"

namespace pytrtplugins {
namespace exported __attribute__((visibility("hidden"))) {

// -- types and layouts --

struct Format {
    DType dtype;
    Layout layout;
};

// Whether tensors 0 to `position` are those of one of the rows.
inline bool matches(int32_t position, std::vector<TensorDesc> const& descs, Format const* table, size_t tensors,
                    std::vector<int32_t> const& rows) {
    for (int32_t row : rows) {
        Format const* const formats = table + static_cast<size_t>(row) * tensors;
        bool same = true;
        for (size_t i = 0; i <= static_cast<size_t>(position); ++i) {
            same &= formats[i].dtype == descs[i].dtype && formats[i].layout == descs[i].layout;
        }
        if (same) return true;
    }
    return false;
}

// The row of these tensors; -1 where there is none.
inline int32_t findFormat(Format const* table, size_t rows, TensorDesc const* inputs, size_t nbInputs,
                          TensorDesc const* outputs, size_t nbOutputs) {
    for (size_t row = 0; row < rows; ++row) {
        bool same = true;
        for (size_t i = 0; i < nbInputs + nbOutputs; ++i) {
            TensorDesc const& desc = i < nbInputs ? inputs[i] : outputs[i - nbInputs];
            Format const& format = table[row * (nbInputs + nbOutputs) + i];
            same &= format.dtype == desc.dtype && format.layout == desc.layout;
        }
        if (same) return static_cast<int32_t>(row);
    }
    return -1;
}

[[noreturn]] inline void refuseDims(char const* name, std::vector<Dims> const& inputs) {
    std::string all;
    for (Dims const& dims : inputs) all += (all.empty() ? "" : ", ") + text(dims);
    throw DimsError(std::string(name) + " does not accept inputs with these numbers of axes: " + all);
}

[[noreturn]] inline void refuseFormat(char const* name) {
    throw PluginError(std::string(name) + ": types, layouts or numbers of axes that it does not accept");
}

// -- kernels --

struct Extent {
    int64_t x, y, z;
};

// Numbers of blocks; one along x has 2^31 - 1 at most, along the others 65535.
inline Extent gridOf(char const* kernel, Extent threads, Extent block) {
    auto const blocks = [&](int64_t total, int64_t side, int64_t most) {
        int64_t const count = (total + side - 1) / side;
        if (total < 0 || count > most) {
            throw DimsError(std::string(kernel) + ": " + std::to_string(total) + " threads are more than a GPU takes");
        }
        return count;
    };
    return {blocks(threads.x, block.x, 2147483647), blocks(threads.y, block.y, 65535), blocks(threads.z, block.z, 65535)};
}

#ifdef PYTRTPLUGINS_HOST_KERNELS

constexpr Device kRunsOn = Device::kCPU;

using HostKernel = void(unsigned const* grid, unsigned const* block, void** arguments);

class Kernel {
public:
    constexpr Kernel(char const* label, HostKernel* function) : mLabel(label), mFunction(function) {}

    void prepare() const {}

protected:
    char const* mLabel;

    void start(Stream, Extent grid, Extent block, int64_t, void** arguments) const {
        unsigned const blocks[] = {static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z)};
        unsigned const sides[] = {static_cast<unsigned>(block.x), static_cast<unsigned>(block.y), static_cast<unsigned>(block.z)};
        mFunction(blocks, sides, arguments);
    }

private:
    HostKernel* mFunction;
};

// Numbers that never change.
class Constant {
public:
    constexpr Constant(void const* data, size_t) : mData(data) {}

    void prepare() const {}
    void const* address() const { return mData; }

private:
    void const* mData;
};

// An array field's elements for kernels. Each plugin object has its own, made in initialize: a copy of an object has none yet.
class Table {
public:
    Table() = default;
    Table(Table const&) {}
    Table& operator=(Table const&) = delete;

    void fill(Bytes data) { mData = std::move(data); }
    void clear() { mData = {}; }
    void const* address() const { return mData.data(); }

private:
    Bytes mData;
};

#define PYTRTPLUGINS_IMAGE(number)
#define PYTRTPLUGINS_KERNEL(variable, number, image, label)                         \
    extern "C" ::pytrtplugins::exported::HostKernel pytrtplugins_kernel_##number; \
    ::pytrtplugins::exported::Launcher const variable(label, pytrtplugins_kernel_##number);

#else

constexpr Device kRunsOn = Device::kCUDA;

// The part of CUDA's driver that is used.
struct Driver {
    int (*getContext)(void** context);
    int (*loadModule)(void** module, void const* image);
    int (*getFunction)(void** function, void* module, char const* name);
    int (*setAttribute)(void* function, int attribute, int value);
    int (*launch)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared, void* stream,
                  void** arguments, void** extra);
    int (*allocate)(unsigned long long* address, size_t bytes);
    int (*release)(unsigned long long address);
    int (*copy)(unsigned long long address, void const* data, size_t bytes);
    int (*synchronize)(void* stream);
    int (*pushContext)(void* context);
    int (*popContext)(void** context);
    int (*errorText)(int code, char const** text);

    static Driver const& get() {
        static Driver const driver;
        return driver;
    }

    void check(int code, char const* what) const {
        if (code == 0) return;
        char const* text = nullptr;
        errorText(code, &text);
        throw PluginError(std::string(what) + ": CUDA says: " + (text ? text : "unknown error") + " (" + std::to_string(code) + ")");
    }

    void* context() const {
        void* found = nullptr;
        check(getContext(&found), "CUDA's context");
        if (!found) throw PluginError("no CUDA context is current in this thread; TensorRT makes one");
        return found;
    }

    // A copy of numbers on the GPU, which every stream may read.
    unsigned long long upload(void const* data, size_t bytes, char const* what) const {
        unsigned long long address = 0;
        check(allocate(&address, bytes ? bytes : 1), what);
        int code = bytes ? copy(address, data, bytes) : 0;
        if (code == 0) code = synchronize(nullptr);  // the copy may return before its last bytes are there
        if (code != 0) release(address);
        check(code, what);
        return address;
    }

private:
    Driver() {
        void* const library = dlopen("libcuda.so.1", RTLD_NOW);
        if (!library) throw PluginError("libcuda.so.1 cannot be loaded: this machine has no NVIDIA driver");
        auto const find = [&](auto& function, char const* name) {
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
            if (!function) throw PluginError(std::string("libcuda.so.1 has no ") + name);
        };
        find(getContext, "cuCtxGetCurrent");
        find(loadModule, "cuModuleLoadData");
        find(getFunction, "cuModuleGetFunction");
        find(setAttribute, "cuFuncSetAttribute");
        find(launch, "cuLaunchKernel");
        find(allocate, "cuMemAlloc_v2");
        find(release, "cuMemFree_v2");
        find(copy, "cuMemcpyHtoD_v2");
        find(synchronize, "cuStreamSynchronize");
        find(pushContext, "cuCtxPushCurrent_v2");
        find(popContext, "cuCtxPopCurrent_v2");
        find(errorText, "cuGetErrorString");
    }
};

// Something made once for each CUDA context, and kept until the process ends, as contexts are.
template <typename T>
class PerContext {
public:
    template <typename Make>
    T get(Make&& make) {
        void* const context = Driver::get().context();
        std::lock_guard<std::mutex> const lock(mMutex);
        for (auto const& [known, value] : mAll) {
            if (known == context) return value;
        }
        mAll.emplace_back(context, make());
        return mAll.back().second;
    }

private:
    std::mutex mMutex;
    std::vector<std::pair<void*, T>> mAll;
};

// Compiled code for several architectures, a fatbin or PTX; several kernels share it.
class Image {
public:
    explicit Image(void const* data) : mData(data) {}

    void* module() {
        return mModules.get([&] {
            void* module = nullptr;
            Driver const& driver = Driver::get();
            driver.check(driver.loadModule(&module, mData), "loading kernels");
            return module;
        });
    }

private:
    void const* mData;
    PerContext<void*> mModules;
};

class Kernel {
public:
    Kernel(char const* label, Image& image, char const* symbol) : mLabel(label), mImage(image), mSymbol(symbol) {}

    // Load it into the current context, so that its first launch may be captured in a graph.
    void prepare() const { function(); }

protected:
    char const* mLabel;

    void start(Stream stream, Extent grid, Extent block, int64_t shared, void** arguments) const {
        Driver const& driver = Driver::get();
        void* const kernel = function();
        if (shared > 48 * 1024) driver.check(driver.setAttribute(kernel, 8, static_cast<int>(shared)), mLabel);
        auto const u = [](int64_t value) { return static_cast<unsigned>(value); };
        driver.check(driver.launch(kernel, u(grid.x), u(grid.y), u(grid.z), u(block.x), u(block.y), u(block.z), u(shared),
                                   stream.handle, arguments, nullptr),
                     mLabel);
    }

private:
    Image& mImage;
    char const* mSymbol;
    mutable PerContext<void*> mFunctions;

    void* function() const {
        return mFunctions.get([&] {
            void* found = nullptr;
            Driver const& driver = Driver::get();
            driver.check(driver.getFunction(&found, mImage.module(), mSymbol), mLabel);
            return found;
        });
    }
};

// Numbers that never change, copied to the GPU once.
class Constant {
public:
    Constant(void const* data, size_t bytes) : mData(data), mBytes(bytes) {}

    void prepare() const { address(); }

    void const* address() const {
        return reinterpret_cast<void const*>(
            mAddresses.get([&] { return Driver::get().upload(mData, mBytes, "constants"); }));
    }

private:
    void const* mData;
    size_t mBytes;
    mutable PerContext<unsigned long long> mAddresses;
};

// An array field's elements on the GPU. Each plugin object has its own, made in initialize: a copy of an object has none yet.
class Table {
public:
    Table() = default;
    Table(Table const&) {}
    Table& operator=(Table const&) = delete;
    ~Table() { clear(); }

    void fill(Bytes const& data) {
        clear();
        mContext = Driver::get().context();
        mAddress = Driver::get().upload(data.data(), data.size(), "an array field");
    }

    // What fails here, such as in a context that is no more, leaves nothing to give back.
    void clear() {
        if (!mAddress) return;
        Driver const& driver = Driver::get();
        void* popped = nullptr;
        if (driver.pushContext(mContext) == 0) {
            driver.release(mAddress);
            driver.popContext(&popped);
        }
        mAddress = 0;
    }

    void const* address() const { return reinterpret_cast<void const*>(mAddress); }

private:
    void* mContext = nullptr;
    unsigned long long mAddress = 0;
};

// A file's bytes, and a zero behind them.
#define PYTRTPLUGINS_EMBED(name, file)                                                                     \
    asm(".pushsection .rodata\n.balign 64\n.hidden " #name "\n.globl " #name "\n" #name ":\n.incbin \"" file \
        "\"\n.byte 0\n.popsection\n");                                                                     \
    extern "C" __attribute__((visibility("hidden"))) char const name[];

#define PYTRTPLUGINS_IMAGE(number)                                                \
    PYTRTPLUGINS_EMBED(pytrtplugins_image_##number, "image" #number ".fatbin") \
    ::pytrtplugins::exported::Image image##number(pytrtplugins_image_##number);

#define PYTRTPLUGINS_KERNEL(variable, number, image, label)                        \
    PYTRTPLUGINS_EMBED(pytrtplugins_symbol_##number, "kernel" #number ".symbol") \
    ::pytrtplugins::exported::Launcher const variable(label, image, pytrtplugins_symbol_##number);

#endif

// A kernel that can be launched: threads are counted in all, the grid is that divided by the block, rounded up.
class Launcher : public Kernel {
public:
    using Kernel::Kernel;

    template <typename... Arguments>
    void operator()(Stream stream, Extent threads, Extent block, int64_t shared, Arguments... arguments) const {
        Extent const grid = gridOf(mLabel, threads, block);
        if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
        void* pointers[] = {static_cast<void*>(&arguments)..., nullptr};
        start(stream, grid, block, shared, pointers);
    }
};

}  // namespace exported
}  // namespace pytrtplugins
