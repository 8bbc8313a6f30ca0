// The largest of each 2x2 pixels, NHWC, 16 bytes of channels a thread. Constants: ELEMENT (HALF or INT8), DEPENDENT.
typedef unsigned int u32;

struct PoolArgs {
    const char* x;
    char* y;
    int oh, ow, pixels, pieces;  // of y; pieces of 16 bytes in a pixel
    int x_pitch, y_pitch;        // in bytes
};

__device__ __forceinline__ u32 larger(u32 a, u32 b) {
#if ELEMENT == 1
    u32 r;
    asm("max.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
#else
    return __vmaxs4(a, b);
#endif
}
__device__ __forceinline__ uint4 larger(uint4 a, uint4 b) {
    return make_uint4(larger(a.x, b.x), larger(a.y, b.y), larger(a.z, b.z), larger(a.w, b.w));
}

extern "C" __global__ void __launch_bounds__(128) pool(const __grid_constant__ PoolArgs a) {
#if DEPENDENT
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    long long const index = blockIdx.x * 128ll + threadIdx.x;
    int const piece = static_cast<int>(index % a.pieces), pixel = static_cast<int>(index / a.pieces);
    if (pixel >= a.pixels) return;
    int const column = pixel % a.ow, line = pixel / a.ow;  // lines of y over all images lie evenly in x
    const char* x = a.x + (static_cast<long long>(line) * 4 * a.ow + column * 2) * a.x_pitch + piece * 16;
    const char* below = x + 2ll * a.ow * a.x_pitch;
    auto at = [&](const char* p) { return *reinterpret_cast<const uint4*>(p); };
    uint4 const best = larger(larger(at(x), at(x + a.x_pitch)), larger(at(below), at(below + a.x_pitch)));
    *reinterpret_cast<uint4*>(a.y + static_cast<long long>(pixel) * a.y_pitch + piece * 16) = best;
}
