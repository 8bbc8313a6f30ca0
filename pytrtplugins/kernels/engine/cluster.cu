// Thread block clusters: their barrier, and their distributed shared memory. On a CPU all blocks of a cluster run as one block.

// How many blocks of a cluster run as one block: all of them on a CPU.
#ifdef __CUDACC__
__device__ constexpr int host_blocks(int) { return 1; }
#else
constexpr int host_blocks(int blocks) { return blocks; }
#endif

// The two halves of the barrier of a cluster. What a thread has written to shared memory before it arrives, others may read once
// they have waited. A block whose shared memory others read must wait for their arrival before it ends.
__device__ __forceinline__ void arrive_in_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
// An arrival that passes no writes on: the reads of this thread from other blocks are done, since it has used their values.
__device__ __forceinline__ void tell_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// A value in the shared memory of a block of the cluster; `place` is its address in the shared memory of this block.
__device__ __forceinline__ float value_in_block(const float* place, int block) {
    float value = *place;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    unsigned remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(static_cast<unsigned>(__cvta_generic_to_shared(place))), "r"(block));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(remote) : "memory");
#endif
    return value;
}
