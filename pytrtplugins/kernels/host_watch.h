// What a watched run of a kernel on a CPU asks of host_watch.cpp: which block and which thread come next. Watched kernels are
// compiled with -fsanitize=thread and some of -fsanitize=undefined, whose calls before each access host_watch.cpp answers itself.
#pragma once

#include <csetjmp>
#include <cstddef>

extern "C" {
// How many blocks of a grid to run, and which one comes as number `turn`; its shared memory is filled with the pattern.
size_t pytrt_watch_blocks(size_t blocks, size_t threads);
size_t pytrt_watch_block(size_t turn);
// All threads stand behind a barrier, or at the start of the block.
void pytrt_watch_phase();
// Which thread comes as number `turn` of this phase; called right before it runs.
size_t pytrt_watch_thread(size_t turn);
// Accesses of this thread between the two are one atomic operation.
void pytrt_watch_atomic(int begins);
// The launch begins; `leave` is where it goes on when a defect is found. It ends.
void pytrt_watch_begin(sigjmp_buf* leave);
void pytrt_watch_end();
}
