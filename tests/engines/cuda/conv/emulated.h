// What the convolution kernels say in PTX, for a C++ compiler: behind host_shim.h, whose fibers are a block's threads.
//
// All threads of a block reach each of these together, as the kernels' loops see to it. Copies are done at once, so that what
// waits for them is not put to the test.
#include <cstdlib>

typedef unsigned int u32;
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
static constexpr size_t MAX_THREADS = 1024;
alignas(1024) static char shared_memory[SHARED_BYTES];

static inline unsigned __float_as_uint(float v) { return static_cast<unsigned>(__float_as_int(v)); }
static inline u32 shared_address(const void* p) { return static_cast<u32>(static_cast<const char*>(p) - shared_memory); }
static inline void launch_dependents() {}
static inline void wait_for_inputs() {}
static inline u32 pinned(u32 v) { return v; }
static inline void cluster_sync() { std::abort(); }
static inline float4 load_shared(u32, int) { std::abort(); }

static inline char* shared_at(u32 at, u32 bytes) {
    if (at + bytes > SHARED_BYTES || at % bytes) std::abort();
    return shared_memory + at;
}
static inline void copy_bytes(u32 to, const char* from, int bytes, bool inside) {
    char* const target = shared_at(to, bytes);
    if (inside) std::memcpy(target, from, bytes);
    else std::memset(target, 0, bytes);
}
static inline void copy_piece(u32 to, const char* from, bool inside) { copy_bytes(to, from, 16, inside); }
static inline void copy_word(u32 to, const char* from, bool inside) { copy_bytes(to, from, 4, inside); }

// A value of each thread of the block.
template <typename T> struct Exchange {
    static T values[MAX_THREADS];
    explicit Exchange(T mine) {
        __syncthreads();
        values[threadIdx.x] = mine;
        __syncthreads();
    }
    T of(int lane) const { return values[threadIdx.x / 32 * 32 + lane]; }
};
template <typename T> T Exchange<T>::values[MAX_THREADS];

template <typename T> static inline T __shfl_xor_sync(unsigned, T mine, int lanes) {
    Exchange<T> const all(mine);
    return all.of(static_cast<int>(threadIdx.x % 32) ^ lanes);
}

// Four matrices of 8 rows of 16 bytes: a thread names a row, and gets a word of each matrix.
static inline void load_matrices(u32 (&r)[4], u32 address) {
    Exchange<u32> const rows(address);
    int const lane = threadIdx.x % 32;
    for (int i = 0; i < 4; ++i) std::memcpy(&r[i], shared_at(rows.of(8 * i + lane / 4), 16) + lane % 4 * 4, 4);
}

static inline float half_bits(unsigned short bits) {
    __half v;
    v.bits = bits;
    return v;
}
static inline unsigned short bits_of_half(float v) { return __half(v).bits; }
static inline u32 halves(float low, float high) { return bits_of_half(low) | static_cast<u32>(bits_of_half(high)) << 16; }
static inline u32 code(float v) {
    float const near = std::nearbyint(v);
    return static_cast<unsigned char>(static_cast<signed char>(near < -128.0f ? -128.0f : near > 127.0f ? 127.0f : near));
}
static inline u32 codes(float a, float b, float c, float d) { return code(a) | code(b) << 8 | code(c) << 16 | code(d) << 24; }

static inline float of_fp8(u32 code) {
    int const exponent = code >> 3 & 15, fraction = code & 7;
    float const size = exponent ? std::ldexp(8.0f + fraction, exponent - 10) : std::ldexp(static_cast<float>(fraction), -9);
    return code & 128 ? -size : size;
}
// The nearest of all codes but NaN; of two the even one.
static inline u32 to_fp8(float v) {
    u32 best = 0;
    for (u32 code = 0; code < 127; ++code) {
        float const off = std::fabs(std::fabs(v) - of_fp8(code)), least = std::fabs(std::fabs(v) - of_fp8(best));
        if (off < least || (off == least && code % 2 == 0)) best = code;
    }
    return best | (std::signbit(v) ? 128 : 0);
}
static inline u32 fp8_codes(float low, float high) { return to_fp8(low) | to_fp8(high) << 8; }
static inline u32 fp8_codes(float a, float b, float c, float d) { return fp8_codes(a, b) | fp8_codes(c, d) << 16; }
static inline u32 fp8_halves(unsigned short codes) { return halves(of_fp8(codes & 255), of_fp8(codes >> 8)); }

// The products of two words: of two halves, or of four codes.
static inline void add_products(float& sum, u32 a, u32 b) {
    for (int i = 0; i < 32; i += FP8_WORDS ? 8 : 16) {
        if (FP8_WORDS) sum += of_fp8(a >> i & 255) * of_fp8(b >> i & 255);
        else sum += half_bits(static_cast<unsigned short>(a >> i)) * half_bits(static_cast<unsigned short>(b >> i));
    }
}
static inline void add_products(int& sum, u32 a, u32 b) { sum = __dp4a(static_cast<int>(a), static_cast<int>(b), sum); }

struct Words { u32 values[6]; };

// 16 rows by 8 columns, 32 bytes of each: D += A * B, in fragments as PTX lays them out.
template <typename Sum> static inline void multiply(Sum* d, const u32 (&a)[4], u32 b0, u32 b1) {
    Exchange<Words> const all({a[0], a[1], a[2], a[3], b0, b1});
    int const lane = threadIdx.x % 32;
    for (int i = 0; i < 4; ++i) {
        int const row = lane / 4, column = lane % 4 * 2 + i % 2;
        for (int word = 0; word < 8; ++word) {
            u32 const x = all.of(4 * row + word % 4).values[i / 2 + word / 4 * 2];
            add_products(d[i], x, all.of(4 * column + word % 4).values[4 + word / 4]);
        }
    }
}

// The stem's: 4 channels of a tap are two words of halves, or one of codes.
static inline void step(float (&d)[4], uint2 even, uint2 odd, uint2 w) { multiply(d, {even.x, odd.x, even.y, odd.y}, w.x, w.y); }
static inline void multiply(int (&d)[4], const u32 (&even)[3], const u32 (&odd)[3], const u32 (&w)[3]) {
    multiply<int>(d, {even[0], odd[0], even[1], odd[1]}, w[0], w[1]);
    multiply<int>(d, {even[2], odd[2], 0, 0}, w[2], 0);
}
