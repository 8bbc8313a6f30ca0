// Stands in for CUDA's driver, libcuda.so.1: says what it is asked for, and runs nothing.
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {
int modules = 0;
unsigned long long next = 0x1000;
// What is said comes in order with what Python prints, into a pipe too.
int const unbuffered = std::setvbuf(stdout, nullptr, _IONBF, 0);
}  // namespace

extern "C" {

int cuCtxGetCurrent(void** context) { return *context = &modules, 0; }

// A fatbin begins with its magic number.
int cuModuleLoadData(void** module, void const* image) {
    uint32_t magic;
    std::memcpy(&magic, image, 4);
    std::printf("module %d magic %08x aligned %d\n", ++modules, magic, reinterpret_cast<uintptr_t>(image) % 64 == 0);
    return *module = &modules, 0;
}

int cuModuleGetFunction(void** function, void*, char const* name) {
    char* const copy = new char[std::strlen(name) + 1];
    std::strcpy(copy, name);
    return *function = copy, 0;
}

int cuFuncSetAttribute(void* function, int attribute, int value) {
    std::printf("attribute %s %d %d\n", static_cast<char*>(function), attribute, value);
    return 0;
}

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void* stream, void** arguments, void**) {
    std::printf("launch %s grid %u %u %u block %u %u %u shared %u stream %llx arguments", static_cast<char*>(function), gx, gy, gz,
                bx, by, bz, shared, static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(stream)));
    for (int i = 0; arguments[i]; ++i) {
        uint32_t low = 0;  // enough to tell them apart; a bool has one byte
        std::memcpy(&low, arguments[i], 1);
        std::printf(" %u", low);
    }
    std::printf("\n");
    return stream == reinterpret_cast<void*>(0xBAD) ? 700 : 0;
}

int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
    std::printf("allocate %zu\n", bytes);
    return *address = next += 0x100, 0;
}

int cuMemcpyHtoD_v2(unsigned long long address, void const* data, size_t bytes) {
    float first;
    std::memcpy(&first, data, 4);
    std::printf("upload %llx %zu bytes from %g\n", address, bytes, static_cast<double>(first));
    return 0;
}

int cuMemFree_v2(unsigned long long address) {
    std::printf("free %llx\n", address);
    return 0;
}

int cuStreamSynchronize(void* stream) {
    std::printf("synchronize %llx\n", static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(stream)));
    return 0;
}

int cuCtxPushCurrent_v2(void* context) { return context != &modules; }
int cuCtxPopCurrent_v2(void** context) { return *context = &modules, 0; }

int cuGetErrorString(int code, char const** text) { return *text = code == 700 ? "an illegal address" : "?", 0; }
}
