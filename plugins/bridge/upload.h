// Copies from ordinary memory to a GPU: a few threads copy pieces into page-locked memory, from where the GPU takes them meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pytrtplugins::bridge {

// What is written for each float32: itself, a float16, or an int8 code, value / scale rounded to the nearest.
enum class Form { kSAME, kHALF, kINT8 };

// The signature of cuMemcpyHtoDAsync.
using QueueCopy = int (*)(uint64_t to, void const* from, size_t bytes, void* stream);

struct Upload {
    void const* from = nullptr;  // ordinary memory
    void* staged = nullptr;      // page-locked memory
    uint64_t to = 0;             // on the GPU
    size_t count = 0;            // bytes; for the other forms float32 values
    Form form = Form::kSAME;
    float scale = 1;
    QueueCopy queue = nullptr;
    void* stream = nullptr;
    size_t stripe = 256 << 10;  // the least bytes that one copy of the GPU's has
};

// Whether this processor makes a form.
bool makes(Form form);

// What `upload` returns where it does nothing, since another thread's upload has the helpers.
constexpr int kBUSY = -1;

// Copies; when it returns, all is staged and queued. Helpers are threads beside the caller, which are started once, wait in
// a loop for the next upload for spinUs microseconds, and sleep then. Returns the first code of queue's that is not 0.
int upload(Upload const& upload, unsigned helpers, unsigned spinUs = 500);

}  // namespace pytrtplugins::bridge
