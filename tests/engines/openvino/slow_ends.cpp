// Preloaded: freed objects hold no zeros, and a thread that asked for it waits in the middle of a destructor of its thread_local objects.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace {

using Destructor = void(void*);

struct Object {
    Destructor* destroy;
    void* object;
};

thread_local bool slow = false;
thread_local int locks = -1;  // those taken by the present destructor; -1 where there is none

template <typename F>
F* next(char const* name) {
    return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

void destroy(void* given) {
    auto* const what = static_cast<Object*>(given);
    locks = slow ? 0 : -1;
    what->destroy(what->object);
    locks = -1;
    std::free(given);
}

}  // namespace

void operator delete(void* object, std::size_t size) noexcept {
    if (object) std::memset(object, 0xf5, size);
    std::free(object);
}

extern "C" {

void end_slowly() { slow = true; }

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
    static auto* const lock = next<int(pthread_mutex_t*)>("pthread_mutex_lock");
    if (locks >= 0 && ++locks == 2) usleep(500000);  // OpenVINO's first lock is that of all threads, its second that of one queue
    return lock(mutex);
}

int __cxa_thread_atexit(Destructor* destructor, void* object, void* library) noexcept {
    static auto* const add = next<int(Destructor*, void*, void*)>("__cxa_thread_atexit_impl");
    auto* const what = static_cast<Object*>(std::malloc(sizeof(Object)));
    *what = {destructor, object};
    return add(destroy, what, library);
}
}
