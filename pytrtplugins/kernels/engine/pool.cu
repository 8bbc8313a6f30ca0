// The largest value of each window, NHWC, 16 bytes of channels a thread: padding never wins, NaN does.
// An image may be one of the `d` frames of a volume, along which a window has T.
// Constants: ELEMENT (FLOAT 0, HALF 1, INT8 2 or FP8 4), T, R, S, STRIDE_D, STRIDE_H, STRIDE_W, PADDED (whether a window may leave the image), DEPENDENT.
typedef unsigned int u32;

struct PoolArgs {
    const char* x;
    char* y;
    int d, h, w, od, oh, ow, pixels, pieces;  // pixels of y; pieces of 16 bytes in a pixel
    int pad_d, pad_h, pad_w;                  // before, above and at the left
    int x_pitch, y_pitch;              // in bytes
};

// Codes of FP8 as signed bytes of the same order, and back: all bits of a negative one but its sign change. What is no number
// becomes the positive one first.
__device__ __forceinline__ u32 ordered(u32 codes) { return codes ^ ((codes >> 7 & 0x01010101u) * 0x7Fu); }
__device__ __forceinline__ u32 numbered(u32 codes) { return codes & ~(__vcmpeq4(codes, 0xFFFFFFFFu) & 0x80808080u); }

__device__ __forceinline__ u32 larger(u32 a, u32 b) {
    u32 r;
#if ELEMENT == 0
    asm("max.NaN.f32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
#elif ELEMENT == 1
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
#elif ELEMENT == 2
    r = __vmaxs4(a, b);
#else
    r = ordered(__vmaxs4(ordered(numbered(a)), ordered(numbered(b))));
#endif
    return r;
}
__device__ __forceinline__ uint4 larger(uint4 a, uint4 b) {
    return make_uint4(larger(a.x, b.x), larger(a.y, b.y), larger(a.z, b.z), larger(a.w, b.w));
}

extern "C" __global__ void __launch_bounds__(128) pool(const __grid_constant__ PoolArgs a) {
    long long const index = blockIdx.x * 128ll + threadIdx.x;
    int const piece = static_cast<int>(index % a.pieces), pixel = static_cast<int>(index / a.pieces);
    if (pixel >= a.pixels) return;
    int const row = pixel / a.ow % a.oh * STRIDE_H - a.pad_h, column = pixel % a.ow * STRIDE_W - a.pad_w;
    int const frame = pixel / a.ow / a.oh, volume = T * STRIDE_D > 1 ? frame / a.od : frame;  // one of one frame, then
    int const front = T * STRIDE_D > 1 ? frame % a.od * STRIDE_D - a.pad_d : 0, frames = T * STRIDE_D > 1 ? a.d : 1;
    const char* x = a.x + static_cast<long long>(volume) * frames * a.h * a.w * a.x_pitch + piece * 16;
#if DEPENDENT
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    uint4 best = make_uint4(0, 0, 0, 0);
    bool first = true;
    constexpr int rows = R * S > 9 ? 1 : R, columns = R * S > 9 ? 1 : S, depth = T * R * S > 27 ? 1 : T;  // of the loops that are written out
#pragma unroll depth
    for (int t = 0; t < T; ++t) {
        int const k = front + t;
        if (PADDED && (k < 0 || k >= frames)) continue;
#pragma unroll rows
        for (int r = 0; r < R; ++r) {  // from 0 to a constant: with other bounds compilers do not write it out
            int const i = row + r;
#pragma unroll columns
            for (int s = 0; s < S; ++s) {
                int const j = column + s;
                if (PADDED && (i < 0 || i >= a.h || j < 0 || j >= a.w)) continue;
                long long const at = (static_cast<long long>(k) * a.h + i) * a.w + j;
                uint4 const found = *reinterpret_cast<const uint4*>(x + at * a.x_pitch);
                best = first ? found : larger(best, found);
                first = false;
            }
        }
    }
    *reinterpret_cast<uint4*>(a.y + static_cast<long long>(pixel) * a.y_pitch + piece * 16) = best;
}
