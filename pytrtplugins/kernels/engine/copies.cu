// Copies up to 8 arrays at once; a row of blocks for each. As nodes of a CUDA graph, copies by the driver cost the host several
// times what a kernel costs. Lets no kernel begin early: what comes behind finds all bytes written.
struct CopiesArgs {
    char* targets[8];
    const char* sources[8];
    long long bytes[8];
};

// As many whole words as fit; gives the bytes that they are.
template <typename Word>
__device__ long long copy_words(char* target, const char* source, long long bytes) {
    long long const words = bytes / sizeof(Word), step = gridDim.x * 256ll;
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < words; i += step)
        reinterpret_cast<Word*>(target)[i] = reinterpret_cast<const Word*>(source)[i];
    return words * sizeof(Word);
}

extern "C" __global__ void __launch_bounds__(256) copies(const __grid_constant__ CopiesArgs a) {
    char* const target = a.targets[blockIdx.y];
    const char* const source = a.sources[blockIdx.y];
    long long const bytes = a.bytes[blockIdx.y];
    unsigned long long const places = reinterpret_cast<unsigned long long>(target) | reinterpret_cast<unsigned long long>(source);
    long long done = 0;
    if (places % 16 == 0)
        done = copy_words<uint4>(target, source, bytes);
    else if (places % 4 == 0)
        done = copy_words<unsigned>(target, source, bytes);
    copy_words<char>(target + done, source + done, bytes - done);
}
