// CUDA's names for a C++ compiler, so that a kernel's source runs on a CPU: one thread after the other, block by block.
// A kernel with __syncthreads needs PYTRT_HOST_BARRIERS: the threads of a block are then fibers that wait for each other.
// Launches of one library run one at a time, since blockIdx and __shared__ variables are its globals.
#ifndef PYTRT_HOST_SHIM_H
#define PYTRT_HOST_SHIM_H

#ifdef PYTRT_HOST_BARRIERS
#undef _FORTIFY_SOURCE  // whose longjmp refuses to go to another stack
#include <setjmp.h>
#include <ucontext.h>
#endif
#include <pthread.h>  // <mutex>, <vector> and <memory> take longer to compile than a kernel

#include <cmath>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __constant__ static
#ifdef PYTRT_HOST_WATCH
#include "host_watch.h"
#define __shared__ static thread_local  // memory of its own, which host_watch.cpp finds and fills
#else
#define __shared__ static
#endif

struct uint3 { unsigned x, y, z; };
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };

inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// float16: storage, and conversion with rounding to even.
struct __half {
    uint16_t bits;

    __half() = default;
    __half(float value) {
        uint32_t word;
        std::memcpy(&word, &value, 4);
        uint32_t const sign = (word >> 16) & 0x8000u, magnitude = word & 0x7FFFFFFFu;
        if (magnitude > 0x7F800000u) {
            bits = static_cast<uint16_t>(sign | 0x7E00u);  // NaN
        } else if (magnitude >= 0x477FF000u) {
            bits = static_cast<uint16_t>(sign | 0x7C00u);  // rounds beyond the largest: infinity
        } else if (magnitude >= 0x38800000u) {
            uint32_t const rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
            bits = static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
        } else {  // below the normal range: a float adds 0.5 and rounds at the right bit
            float shifted;
            std::memcpy(&shifted, &magnitude, 4);
            shifted += 0.5f;
            std::memcpy(&word, &shifted, 4);
            bits = static_cast<uint16_t>(sign | (word - 0x3F000000u));
        }
    }
    operator float() const {
        uint32_t const sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, mantissa = bits & 0x3FFu;
        uint32_t word = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112u) << 23) | (mantissa << 13);
        float value;
        if (exponent == 0) {
            value = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24
            std::memcpy(&word, &value, 4);
            word |= sign;
        }
        std::memcpy(&value, &word, 4);
        return value;
    }
};
typedef __half half;

inline float __half2float(__half value) { return value; }
inline __half __float2half(float value) { return value; }
inline __half __float2half_rn(float value) { return value; }

// Without contraction into fused products (-ffp-contract=off) these are the plain operators.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __expf(float a) { return std::exp(a); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __double2float_rn(double a) { return static_cast<float>(a); }
inline float __double2float_rz(double a) {
    float const near = static_cast<float>(a);
    return std::fabs(static_cast<double>(near)) > std::fabs(a) ? std::nextafter(near, 0.0f) : near;
}
inline int __float_as_int(float a) {
    int bits;
    std::memcpy(&bits, &a, 4);
    return bits;
}
inline float __int_as_float(int a) {
    float value;
    std::memcpy(&value, &a, 4);
    return value;
}
inline int __float2int_rn(float a) { return static_cast<int>(std::nearbyint(a)); }
inline int __float2int_rz(float a) { return static_cast<int>(a); }

inline unsigned __byte_perm(unsigned low, unsigned high, unsigned places) {
    uint64_t const bytes = low | static_cast<uint64_t>(high) << 32;
    unsigned found = 0;
    for (unsigned i = 0; i < 4; ++i) found |= static_cast<unsigned>(bytes >> (places >> 4 * i & 7u) * 8 & 0xFFu) << 8 * i;
    return found;
}
inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 32; i += 8) sum += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
    return sum;
}

template <typename T> inline T __ldg(T const* address) { return *address; }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a < b ? b : a; }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline long long max(long long a, long long b) { return a < b ? b : a; }
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }

// One thread runs at a time, so that these need no lock.
struct PytrtAtomic {
#ifdef PYTRT_HOST_WATCH
    PytrtAtomic() { pytrt_watch_atomic(1); }
    ~PytrtAtomic() { pytrt_watch_atomic(0); }
#else
    PytrtAtomic() {}
#endif
};
template <typename T> inline T atomicAdd(T* p, T value) { PytrtAtomic const one; T const old = *p; *p = old + value; return old; }
template <typename T> inline T atomicMax(T* p, T value) { PytrtAtomic const one; T const old = *p; if (old < value) *p = value; return old; }
template <typename T> inline T atomicMin(T* p, T value) { PytrtAtomic const one; T const old = *p; if (value < old) *p = value; return old; }
template <typename T> inline T atomicExch(T* p, T value) { PytrtAtomic const one; T const old = *p; *p = value; return old; }
template <typename T> inline T atomicCAS(T* p, T wanted, T value) { PytrtAtomic const one; T const old = *p; if (old == wanted) *p = value; return old; }
inline void __threadfence() {}

static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static constexpr int warpSize = 32;

namespace pytrt_host {

// One launch at a time has it.
class Turn {
public:
    Turn() { pthread_mutex_lock(mutex()); }
    ~Turn() { pthread_mutex_unlock(mutex()); }

private:
    static pthread_mutex_t* mutex() {
        static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
        return &one_at_a_time;
    }
};

// Number `flat` of a grid or of a block, x fastest.
inline uint3 place_in(dim3 sizes, size_t flat) {
    return {static_cast<unsigned>(flat % sizes.x), static_cast<unsigned>(flat / sizes.x % sizes.y),
            static_cast<unsigned>(flat / (static_cast<size_t>(sizes.x) * sizes.y))};
}

#ifdef PYTRT_HOST_WATCH
inline void start_phase() { pytrt_watch_phase(); }
inline size_t next_thread(size_t turn) { return pytrt_watch_thread(turn); }
#else
inline void start_phase() {}
inline size_t next_thread(size_t turn) { return turn; }
#endif

#ifdef PYTRT_HOST_BARRIERS
#ifdef __SANITIZE_ADDRESS__
typedef ucontext_t Place;  // its longjmp takes another stack for an error of this one
#else
typedef jmp_buf Place;  // swapcontext would ask the system for the mask of signals each time
#endif

// A thread of a block, on a stack of its own. It is kept for the next block and the next launch.
struct Fiber {
    ucontext_t start;
    Place place;  // where it goes on
    bool started, done;
};
static Fiber* running;
static Place scheduler;
static void (*body_of_fiber)(void*);
static void* argument_of_fiber;

#ifdef __SANITIZE_ADDRESS__
static void swap(Place& from, Place& to) { swapcontext(&from, &to); }
static void start(Fiber& fiber) { swapcontext(&scheduler, &fiber.start); }
#else
// Go on at `to` until somebody goes on at `from`.
static void swap(Place& from, Place& to) {
    if (!_setjmp(from)) _longjmp(to, 1);
}

static void start(Fiber& fiber) {
    if (!_setjmp(scheduler)) setcontext(&fiber.start);
}
#endif

static void go_on(Fiber& fiber) {
    running = &fiber;
    if (fiber.started) return swap(scheduler, fiber.place);
    fiber.started = true;
    start(fiber);
}

static void fiber_main() {
    for (;;) {
        body_of_fiber(argument_of_fiber);
        running->done = true;
        swap(running->place, scheduler);
    }
}

// As many fibers as a block has threads.
struct Fibers {
#ifdef PYTRT_HOST_WATCH
    static constexpr size_t stack_bytes = 256 << 10;
#else
    static constexpr size_t stack_bytes = 64 << 10;
#endif
    Fiber* all;
    char* stacks;
    size_t count;

    // Those that a launch has left in the middle of its work begin anew.
    void prepare(size_t threads) {
        if (threads > count) {
            delete[] all;
            delete[] stacks;
            count = 0;
            all = new Fiber[threads]();
            stacks = new char[threads * stack_bytes];
            count = threads;
        }
        for (size_t index = 0; index < threads; ++index) {
            Fiber& fiber = all[index];
            if (!fiber.done) {
                getcontext(&fiber.start);
                fiber.start.uc_stack.ss_sp = stacks + index * stack_bytes;
                fiber.start.uc_stack.ss_size = stack_bytes;
                fiber.start.uc_link = nullptr;
                makecontext(&fiber.start, fiber_main, 0);
                fiber.started = false;
            }
            fiber.done = false;
        }
    }
};
static Fibers fibers;

template <typename Body>
void run_block(Body& body, size_t threads) {
    body_of_fiber = [](void* pointer) { (*static_cast<Body*>(pointer))(); };
    argument_of_fiber = &body;
    fibers.prepare(threads);
    for (bool left = true; left;) {
        left = false;
        start_phase();
        for (size_t turn = 0; turn < threads; ++turn) {
            size_t const index = next_thread(turn);
            Fiber& fiber = fibers.all[index];
            if (fiber.done) continue;
            threadIdx = place_in(blockDim, index);
            go_on(fiber);
            left = left || !fiber.done;
        }
    }
}
#endif

#ifdef PYTRT_HOST_WATCH
// Call body() for each thread of the grid, in the order that is to be tried; ends where a defect is found.
template <typename Body>
void run(dim3 grid, dim3 block, Body body) {
    Turn const turn;
    gridDim = grid;
    blockDim = block;
    size_t const threads = static_cast<size_t>(block.x) * block.y * block.z;
    sigjmp_buf leave;
    pytrt_watch_begin(&leave);
    if (sigsetjmp(leave, 1) == 0) {
        size_t const blocks = pytrt_watch_blocks(static_cast<size_t>(grid.x) * grid.y * grid.z, threads);
        for (size_t number = 0; number < blocks; ++number) {
            blockIdx = place_in(grid, pytrt_watch_block(number));
#ifdef PYTRT_HOST_BARRIERS
            run_block(body, threads);
#else
            start_phase();
            for (size_t index = 0; index < threads; ++index) {
                threadIdx = place_in(block, next_thread(index));
                body();
            }
#endif
        }
    }
    pytrt_watch_end();
}
#else
// Call body() once for each thread of the grid.
template <typename Body>
void run(dim3 grid, dim3 block, Body body) {
    Turn const turn;
    gridDim = grid;
    blockDim = block;
    for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z) {
        for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
            for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
#ifdef PYTRT_HOST_BARRIERS
                run_block(body, static_cast<size_t>(block.x) * block.y * block.z);
#else
                for (threadIdx.z = 0; threadIdx.z < block.z; ++threadIdx.z) {
                    for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y) {
                        for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) body();
                    }
                }
#endif
            }
        }
    }
}

#endif

}  // namespace pytrt_host

#ifdef PYTRT_HOST_BARRIERS
inline void __syncthreads() {
    uint3 const mine = threadIdx;
    pytrt_host::swap(pytrt_host::running->place, pytrt_host::scheduler);
    threadIdx = mine;
}
#endif

#endif  // PYTRT_HOST_SHIM_H
