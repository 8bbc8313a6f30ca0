// Bytes that the host has staged -> the GPU's own memory; and counters for a new run.
//
// from: pinned memory, which the GPU reads over the bus; its first number says how many units of 16 bytes there are, itself
// included. to: as many bytes, at least. counts: set to 0.
//
// threads = any number
__global__ void fetch(const uint8_t* __restrict__ from, uint8_t* __restrict__ to, int* __restrict__ counts, int images) {
    const int first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    const int units = *reinterpret_cast<const int*>(from);
    const uint4* const source = reinterpret_cast<const uint4*>(from);
    for (int i = first; i < units; i += step) reinterpret_cast<uint4*>(to)[i] = source[i];
    for (int i = first; i < images; i += step) counts[i] = 0;
}
