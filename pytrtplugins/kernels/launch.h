// Launch a kernel of this folder from C++, on a device (nvcc) or, compiled by a C++ compiler, on the host:
//
//     #include "prelude.h"
//     #include "reorg.cu"
//     #include "launch.h"
//     PYTRT_LAUNCH(reorg<float>, pytrt_dims(threads_x, threads_y, threads_z), dim3(256), stream, x, y, ...);
//
// Threads are counted in all; the grid is that number divided by the block, rounded up. Nothing is launched for none.
#pragma once

#include "prelude.h"

struct PytrtThreads { long long x, y, z; };

inline PytrtThreads pytrt_dims(long long x, long long y = 1, long long z = 1) { return {x, y, z}; }

inline dim3 pytrt_grid(PytrtThreads threads, dim3 block) {
    return dim3(static_cast<unsigned>((threads.x + block.x - 1) / block.x),
                static_cast<unsigned>((threads.y + block.y - 1) / block.y),
                static_cast<unsigned>((threads.z + block.z - 1) / block.z));
}

#ifdef __CUDACC__
#define PYTRT_LAUNCH(kernel, threads, block, stream, ...)                                                   \
    do {                                                                                                    \
        PytrtThreads const pytrt_threads = (threads);                                                       \
        dim3 const pytrt_block = (block);                                                                   \
        if (pytrt_threads.x > 0 && pytrt_threads.y > 0 && pytrt_threads.z > 0)                              \
            kernel<<<pytrt_grid(pytrt_threads, pytrt_block), pytrt_block, 0, (stream)>>>(__VA_ARGS__);      \
    } while (0)
#else
#define PYTRT_LAUNCH(kernel, threads, block, stream, ...)                                                   \
    do {                                                                                                    \
        PytrtThreads const pytrt_threads = (threads);                                                       \
        dim3 const pytrt_block = (block);                                                                   \
        if (pytrt_threads.x > 0 && pytrt_threads.y > 0 && pytrt_threads.z > 0)                              \
            pytrt_host::run(pytrt_grid(pytrt_threads, pytrt_block), pytrt_block, [&] { kernel(__VA_ARGS__); }); \
    } while (0)
#endif
