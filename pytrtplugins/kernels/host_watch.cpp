// Watches a kernel that runs on a CPU: each access before it happens, the order of blocks and threads, and signals.
// `pytrtplugins.cuda.watch` fills in the plan below, and reads what was found; the two structs stand there once more.
#include "host_watch.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

namespace {

// Who touched a byte last. A phase is what lies between two barriers of one block; its number is never used again.
struct Cell {
    uint32_t written_in, writer, read_in, reader;
};

// Memory of an input, an output or the workspace, between guard pages.
struct Region {
    uint8_t *low, *high;  // with the guard pages
    uint8_t* data;
    uint64_t bytes;
    Cell* cells;       // one for each byte; null: races are not watched
    uint8_t* written;  // likewise: whether a kernel wrote it; null for inputs
    int64_t read_only;
};

struct Finding {
    int64_t kind, region, offset, size, writes, thread, other, block, place, signal, line;
    uint64_t address;
    char const* text;
};

struct Plan {
    Region* regions;
    int64_t count;
    int64_t order;    // 0 forward, 1 backward, 2 random
    uint64_t seed;    // of the random order
    int64_t pattern;  // what shared memory holds at first, byte by byte
    int64_t sample;   // run at most this many blocks; 0: all
    int64_t races;    // whether races are findings
    Finding found, unset;
};

enum Kind { NONE, OUTSIDE, READ_ONLY, RACE, OVERFLOW_, BOUNDS, MISALIGNED, DIVISION, SIGNAL, TIME };
constexpr int64_t SHARED = -2;
constexpr uint32_t SEVERAL = 0xFFFFFFFFu, ATOMIC = 0xFFFFFFFEu;

thread_local volatile char anchor;  // __shared__ variables are thread_local in a watched kernel: they lie beside it
uint8_t* shared_low = nullptr;
uint64_t shared_bytes = 0;
std::vector<Cell> shared_cells;

sigjmp_buf* leave = nullptr;
size_t thread_now, block_now;
uint32_t phase = 0, block_phase = 0;
bool atomic = false;
void const* last_access = nullptr;
std::vector<size_t> block_order, thread_order;
uint64_t random_state;
struct sigaction before[5];
constexpr int SIGNALS[5] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};

}  // namespace

extern "C" __attribute__((visibility("default"))) Plan pytrt_watch_plan;
Plan pytrt_watch_plan;

namespace {

Plan& plan = pytrt_watch_plan;

uint64_t random_number() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

void arrange(std::vector<size_t>& order, size_t count) {
    order.resize(count);
    std::iota(order.begin(), order.end(), size_t{0});
    if (plan.order == 1) std::reverse(order.begin(), order.end());
    if (plan.order != 2) return;
    for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random_number() % i]);
}

int64_t place_of(void const* address) {
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fbase) return 0;
    return static_cast<uint8_t const*>(address) - static_cast<uint8_t const*>(info.dli_fbase);
}

Finding here(Kind kind, void const* pc) {
    Finding finding{};
    finding.kind = kind;
    finding.region = -1;
    finding.thread = static_cast<int64_t>(thread_now);
    finding.block = static_cast<int64_t>(block_now);
    finding.other = -1;
    finding.place = place_of(pc);
    return finding;
}

[[noreturn]] void stop(Finding const& finding) {
    plan.found = finding;
    siglongjmp(*leave, 1);
}

// A sample of a large launch touches so many places at most: each may take a page of memory.
constexpr uint64_t MAX_ACCESSES = 1 << 18;
uint64_t accesses = 0;

void access(uintptr_t address, uint64_t size, bool writes, void const* pc) {
    if (!leave) return;
    last_access = pc;
    uint8_t* const byte = reinterpret_cast<uint8_t*>(address);
    Cell* cells = nullptr;
    uint8_t* written = nullptr;
    int64_t region = -1, offset = 0;
    if (byte >= shared_low && byte < shared_low + shared_bytes) {
        region = SHARED;
        offset = byte - shared_low;
        cells = shared_cells.data() + offset;
        size = std::min<uint64_t>(size, shared_bytes - offset);
    } else {
        for (int64_t i = 0; i < plan.count; ++i) {
            Region const& one = plan.regions[i];
            if (byte < one.low || byte >= one.high) continue;
            region = i;
            offset = byte - one.data;
            bool const outside = byte < one.data || byte + size > one.data + one.bytes;
            if (outside || (writes && one.read_only)) {
                Finding finding = here(outside ? OUTSIDE : READ_ONLY, pc);
                finding.region = i;
                finding.offset = offset;
                finding.size = static_cast<int64_t>(size);
                finding.writes = writes;
                stop(finding);
            }
            if (plan.sample && ++accesses > MAX_ACCESSES) siglongjmp(*leave, 1);
            if (one.cells) cells = one.cells + offset;
            if (one.written) written = one.written + offset;
            break;
        }
        if (region == -1) return;
    }
    uint32_t const me = static_cast<uint32_t>(thread_now);
    for (uint64_t i = 0; i < size; ++i) {
        if (written) {
            if (writes) written[i] = 1;
            else if (!written[i] && !plan.unset.kind) {
                plan.unset = here(OUTSIDE, pc);
                plan.unset.region = region;
                plan.unset.offset = offset;
            }
        }
        if (!cells) continue;
        Cell& cell = cells[i];
        if (region == SHARED && !writes && cell.written_in < block_phase && !plan.unset.kind) {
            plan.unset = here(OUTSIDE, pc);
            plan.unset.region = region;
        }
        bool const after_write = cell.written_in == phase && cell.writer != me && !(atomic && cell.writer == ATOMIC);
        bool const after_read = cell.read_in == phase && cell.reader != me;
        if (plan.races && ((!writes && after_write) || (writes && after_read && !atomic))) {
            Finding finding = here(RACE, pc);
            finding.region = region;
            finding.offset = offset;
            finding.size = static_cast<int64_t>(size);
            finding.writes = writes;
            uint32_t const other = writes ? cell.reader : cell.writer;
            finding.other = other >= ATOMIC ? -1 : static_cast<int64_t>(other);
            stop(finding);
        }
        if (writes) {
            cell.written_in = phase;
            cell.writer = atomic ? ATOMIC : me;
        } else if (!atomic) {
            cell.reader = cell.read_in == phase && cell.reader != me ? SEVERAL : me;
            cell.read_in = phase;
        }
    }
}

void on_signal(int number, siginfo_t* info, void* context) {
    if (!leave) return;
    auto const& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
    void const* pc = nullptr;
#if defined(__x86_64__)
    pc = reinterpret_cast<void const*>(registers.gregs[REG_RIP] + 1);
#elif defined(__aarch64__)
    pc = reinterpret_cast<void const*>(registers.pc + 1);
#endif
    if (number == SIGALRM && last_access) pc = last_access;  // the signal may have come between two accesses, in here
    Finding finding = here(number == SIGALRM ? TIME : number == SIGFPE ? DIVISION : SIGNAL, pc);
    finding.signal = number;
    finding.address = reinterpret_cast<uint64_t>(info->si_addr);
    stop(finding);
}

int find_shared(dl_phdr_info* info, size_t, void*) {
    uintptr_t const inside = reinterpret_cast<uintptr_t>(&pytrt_watch_plan);
    bool mine = false;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        auto const& header = info->dlpi_phdr[i];
        uintptr_t const start = info->dlpi_addr + header.p_vaddr;
        mine = mine || (header.p_type == PT_LOAD && inside >= start && inside < start + header.p_memsz);
    }
    if (!mine) return 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        if (info->dlpi_phdr[i].p_type != PT_TLS || !info->dlpi_tls_data) continue;
        shared_low = static_cast<uint8_t*>(info->dlpi_tls_data);
        shared_bytes = info->dlpi_phdr[i].p_memsz;
    }
    return 1;
}

struct Location {
    char const* file;
    uint32_t line, column;
};

[[noreturn]] void undefined(Kind kind, void const* data, void const* pc) {
    Finding finding = here(kind, pc);
    auto const* location = static_cast<Location const*>(data);
    finding.line = location->line;
    finding.text = location->file;
    stop(finding);
}

}  // namespace

extern "C" {

void pytrt_watch_begin(sigjmp_buf* out) {
    anchor = 1;
    dl_iterate_phdr(find_shared, nullptr);
    shared_cells.assign(shared_bytes, Cell{});
    plan.found = plan.unset = Finding{};
    random_state = plan.seed * 2654435769u + 88172645463325252u;
    phase = block_phase = 0;
    atomic = false;
    last_access = nullptr;
    accesses = 0;
    for (int64_t i = 0; i < plan.count; ++i) {
        if (plan.regions[i].cells) std::memset(plan.regions[i].cells, 0, plan.regions[i].bytes * sizeof(Cell));
    }
    struct sigaction action;
    std::memset(&action, 0, sizeof action);
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int i = 0; i < 5; ++i) sigaction(SIGNALS[i], &action, &before[i]);
    leave = out;
}

void pytrt_watch_end() {
    leave = nullptr;
    for (int i = 0; i < 5; ++i) sigaction(SIGNALS[i], &before[i], nullptr);
}

size_t pytrt_watch_blocks(size_t blocks, size_t threads) {
    thread_order.resize(threads);
    size_t const most = static_cast<size_t>(plan.sample);
    if (!most || blocks <= most) {
        arrange(block_order, blocks);
        return blocks;
    }
    block_order = {0, blocks - 1, blocks / 2, blocks / 2 + 1};
    while (block_order.size() < most) block_order.push_back(random_number() % blocks);
    return block_order.size();
}

size_t pytrt_watch_block(size_t turn) {
    block_now = block_order[turn];
    std::memset(shared_low, static_cast<int>(plan.pattern), shared_bytes);
    block_phase = phase + 1;
    return block_now;
}

void pytrt_watch_phase() {
    ++phase;
    arrange(thread_order, thread_order.size());
}

size_t pytrt_watch_thread(size_t turn) { return thread_now = thread_order[turn]; }

void pytrt_watch_atomic(int begins) { atomic = begins; }

// -- what -fsanitize=thread calls ------------------------------------------------------------------------------------

#define PYTRT_CALLER __builtin_return_address(0)
#define PYTRT_SIZED(size)                                                                                              \
    void __tsan_read##size(void* p) { access(reinterpret_cast<uintptr_t>(p), size, false, PYTRT_CALLER); }             \
    void __tsan_write##size(void* p) { access(reinterpret_cast<uintptr_t>(p), size, true, PYTRT_CALLER); }             \
    void __tsan_unaligned_read##size(void* p) { access(reinterpret_cast<uintptr_t>(p), size, false, PYTRT_CALLER); }   \
    void __tsan_unaligned_write##size(void* p) { access(reinterpret_cast<uintptr_t>(p), size, true, PYTRT_CALLER); }   \
    void __tsan_volatile_read##size(void* p) { access(reinterpret_cast<uintptr_t>(p), size, false, PYTRT_CALLER); }    \
    void __tsan_volatile_write##size(void* p) { access(reinterpret_cast<uintptr_t>(p), size, true, PYTRT_CALLER); }
PYTRT_SIZED(1)
PYTRT_SIZED(2)
PYTRT_SIZED(4)
PYTRT_SIZED(8)
PYTRT_SIZED(16)
void __tsan_read_range(void* p, size_t size) { access(reinterpret_cast<uintptr_t>(p), size, false, PYTRT_CALLER); }
void __tsan_write_range(void* p, size_t size) { access(reinterpret_cast<uintptr_t>(p), size, true, PYTRT_CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void*) {}
void __tsan_vptr_update(void*, void*) {}
void* __tsan_memcpy(void* to, void const* from, size_t size) {
    access(reinterpret_cast<uintptr_t>(from), size, false, PYTRT_CALLER);
    access(reinterpret_cast<uintptr_t>(to), size, true, PYTRT_CALLER);
    return std::memcpy(to, from, size);
}
void* __tsan_memmove(void* to, void const* from, size_t size) {
    access(reinterpret_cast<uintptr_t>(from), size, false, PYTRT_CALLER);
    access(reinterpret_cast<uintptr_t>(to), size, true, PYTRT_CALLER);
    return std::memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, size_t size) {
    access(reinterpret_cast<uintptr_t>(to), size, true, PYTRT_CALLER);
    return std::memset(to, value, size);
}

// -- what -fsanitize=undefined calls ---------------------------------------------------------------------------------

#define PYTRT_UNDEFINED(name, kind) \
    void __ubsan_handle_##name##_abort(void* data, void*, void*) { undefined(kind, data, PYTRT_CALLER); }
PYTRT_UNDEFINED(add_overflow, OVERFLOW_)
PYTRT_UNDEFINED(sub_overflow, OVERFLOW_)
PYTRT_UNDEFINED(mul_overflow, OVERFLOW_)
PYTRT_UNDEFINED(negate_overflow, OVERFLOW_)
PYTRT_UNDEFINED(divrem_overflow, DIVISION)
PYTRT_UNDEFINED(out_of_bounds, BOUNDS)
PYTRT_UNDEFINED(type_mismatch_v1, MISALIGNED)
}
