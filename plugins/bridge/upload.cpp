#include "upload.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pytrtplugins::bridge {
namespace {

constexpr size_t kPieces = 256, kLeastPiece = 32 << 10;

#if defined(__x86_64__)
void pause() { _mm_pause(); }

// As the GPU's cvt.rn rounds.
__attribute__((target("avx,f16c"))) void toHalf(float const* from, char* to, size_t count) {
    auto* const halves = reinterpret_cast<uint16_t*>(to);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m128i const packed = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + i), packed);
    }
    for (; i < count; ++i) halves[i] = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT);
}

// As the GPU's __float2int_rn of the quotient, saturated: NaN counts 0.
__attribute__((target("avx2"))) inline __m256i codes(float const* from, __m256 scale) {
    __m256 const quotient = _mm256_div_ps(_mm256_loadu_ps(from), scale);
    __m256 const number = _mm256_and_ps(quotient, _mm256_cmp_ps(quotient, quotient, _CMP_ORD_Q));
    __m256 const inside = _mm256_max_ps(_mm256_min_ps(number, _mm256_set1_ps(127)), _mm256_set1_ps(-128));
    return _mm256_cvtps_epi32(inside);
}

__attribute__((target("avx2"))) void toInt8(float const* from, char* to, size_t count, float scale) {
    __m256 const scales = _mm256_set1_ps(scale);
    __m256i const order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // packing goes by halves of a register
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        __m256i const low = _mm256_packs_epi32(codes(from + i, scales), codes(from + i + 8, scales));
        __m256i const high = _mm256_packs_epi32(codes(from + i + 16, scales), codes(from + i + 24, scales));
        __m256i const bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), bytes);
    }
    if (i == count) return;
    float rest[32] = {};
    char made[32];
    std::memcpy(rest, from + i, (count - i) * sizeof(float));
    toInt8(rest, made, 32, scale);
    std::memcpy(to + i, made, count - i);
}
#else
void pause() {}
void toHalf(float const*, char*, size_t) {}
void toInt8(float const*, char*, size_t, float) {}
#endif

// Waits for another thread: in a loop for some microseconds, then, since that thread may have no core, without taking one.
void wait(unsigned& tries) {
    if (++tries < 1024) pause();
    else std::this_thread::yield();
}

size_t sizeFrom(Form form) { return form == Form::kSAME ? 1 : sizeof(float); }
size_t sizeTo(Form form) { return form == Form::kHALF ? 2 : 1; }

// The pieces of an upload, which any thread takes in order.
struct Pieces {
    Upload what;
    size_t size = 0, count = 0;  // of what `what.count` counts; how many
    std::atomic<size_t> next{0};
    std::atomic<bool> done[kPieces];

    void begin(Upload const& upload) {
        what = upload;
        size_t const least = kLeastPiece / sizeFrom(what.form);
        size = std::max(least, (what.count + kPieces - 1) / kPieces);
        size = (size + 63) / 64 * 64;
        count = (what.count + size - 1) / size;
        for (size_t i = 0; i < count; ++i) done[i].store(false, std::memory_order_relaxed);
        next.store(0, std::memory_order_relaxed);
    }

    size_t end(size_t piece) const { return std::min(what.count, piece * size); }

    // Stages one piece; false if all are taken.
    bool step() {
        size_t const piece = next.fetch_add(1, std::memory_order_relaxed);
        if (piece >= count) return false;
        size_t const first = end(piece), values = end(piece + 1) - first;
        char const* const from = static_cast<char const*>(what.from) + first * sizeFrom(what.form);
        char* const to = static_cast<char*>(what.staged) + first * sizeTo(what.form);
        if (what.form == Form::kHALF) toHalf(reinterpret_cast<float const*>(from), to, values);
        else if (what.form == Form::kINT8) toInt8(reinterpret_cast<float const*>(from), to, values, what.scale);
        else std::memcpy(to, from, values);
        done[piece].store(true, std::memory_order_release);
        return true;
    }

    // Stages what others leave, and queues copies of what is staged, in order.
    int run() {
        size_t staged = 0, queued = 0;  // pieces
        int code = 0;
        unsigned tries = 0;
        for (bool more = true; queued < count;) {
            if (more) more = step();
            else wait(tries);
            while (staged < count && done[staged].load(std::memory_order_acquire)) ++staged;
            size_t const begin = end(queued) * sizeTo(what.form), bytes = end(staged) * sizeTo(what.form) - begin;
            if (staged == queued || (staged < count && bytes < what.stripe)) continue;
            if (!code) code = what.queue(what.to + begin, static_cast<char*>(what.staged) + begin, bytes, what.stream);
            queued = staged;
        }
        return code;
    }
};

// Threads beside the caller, for one upload at a time. It is never destroyed, since they never end.
class Helpers {
public:
    // Whether the caller may have them; it calls `run` then.
    bool take() { return !taken_.exchange(true); }

    int run(Upload const& upload, unsigned helpers, unsigned spinUs) {
        spinUs_ = spinUs;
        start(helpers);
        wanted_ = helpers;
        pieces_.begin(upload);
        open_ = true;
        ++turn_;
        if (sleepers_) {
            std::lock_guard<std::mutex> const lock(mutex_);
            wake_.notify_all();
        }
        int const code = pieces_.run();
        open_ = false;
        for (unsigned tries = 0; inside_;) wait(tries);
        taken_ = false;
        return code;
    }

private:
    void start(unsigned helpers) {
        try {
            for (; started_ < helpers; ++started_) std::thread(&Helpers::help, this, started_).detach();
        } catch (std::system_error const&) {  // the system has no more threads
        }
    }

    void help(unsigned number) {
        for (uint64_t seen = 0;;) {
            seen = nextTurn(seen);
            ++inside_;
            while (open_ && number < wanted_ && pieces_.step()) {}
            --inside_;
        }
    }

    uint64_t nextTurn(uint64_t seen) {
        auto const until = std::chrono::steady_clock::now() + std::chrono::microseconds(spinUs_);
        for (unsigned tries = 0; turn_ == seen; ++tries) {
            if (tries % 64 == 63 && std::chrono::steady_clock::now() > until) {
                std::unique_lock<std::mutex> lock(mutex_);
                ++sleepers_;
                wake_.wait(lock, [&] { return turn_ != seen; });
                --sleepers_;
                break;
            }
            pause();
        }
        return turn_;
    }

    Pieces pieces_;
    std::atomic<bool> taken_{false}, open_{false};
    std::atomic<uint64_t> turn_{0};
    std::atomic<unsigned> inside_{0}, sleepers_{0}, wanted_{0}, spinUs_{0};
    unsigned started_ = 0;
    std::mutex mutex_;
    std::condition_variable wake_;
};

std::atomic<Helpers*> team{nullptr};

// This process's: a child that was forked has none of its parent's threads.
Helpers& ours() {
    static int const forgets = pthread_atfork(nullptr, nullptr, [] { team = nullptr; });
    (void)forgets;
    Helpers* found = team;
    if (!found) {
        auto* const made = new Helpers;
        if (team.compare_exchange_strong(found, made)) found = made;
        else delete made;
    }
    return *found;
}

}  // namespace

bool makes(Form form) {
    if (form == Form::kSAME) return true;
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
#else
    return false;
#endif
}

int upload(Upload const& upload, unsigned helpers, unsigned spinUs) {
    Helpers& all = ours();
    return all.take() ? all.run(upload, helpers, spinUs) : kBUSY;
}

}  // namespace pytrtplugins::bridge
