// How a kernel begins whose launch may overlap the end of the one before.

// The next kernel may start from here on, and what this one reads is written.
__device__ __forceinline__ void begin_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Before that: constants may be on their way already.
__device__ __forceinline__ void fetch_ahead(const void* constant) {
#ifdef __CUDA_ARCH__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(constant));
#endif
}
