// Copies bytes, and lets the next kernel begin long before it does: what reads them without waiting for this kernel to end
// finds what was there before.
// Constants: CYCLES (that pass before the first byte is written), DEPENDENT.
struct LateCopyArgs {
    const char* source;
    char* target;
    long long bytes;
};

extern "C" __global__ void __launch_bounds__(256) late_copy(const __grid_constant__ LateCopyArgs a) {
#if DEPENDENT
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    long long const begin = clock64();
    while (clock64() - begin < CYCLES) {
    }
    long long const first = blockIdx.x * 256ll + threadIdx.x, words = a.bytes / 16, step = gridDim.x * 256ll;
    for (long long i = first; i < words; i += step) reinterpret_cast<uint4*>(a.target)[i] = reinterpret_cast<const uint4*>(a.source)[i];
    for (long long i = words * 16 + first; i < a.bytes; i += step) a.target[i] = a.source[i];
}
