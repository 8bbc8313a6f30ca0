// boxes: [N, B, 4], centre x, centre y, width, height; scores: [N, C, B]. An entry is a class and a box: its number is
// class * B + box. Entries of higher scores come first; of equal scores, the one with the smaller number.

// counts: [N], set to 0; a thread for each image
__global__ void clear(int* counts, int n) {
    const int image = blockIdx.x * blockDim.x + threadIdx.x;
    if (image < n) counts[image] = 0;
}

// order: [N, entries], the entries of an image above the threshold, the best first; counts: [N], how many they are.
// A thread for each entry of each image.
template <typename T>
__global__ void rank(const T* scores, int* order, int* counts, int total, int entries, float threshold) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    const int image = i / entries, entry = i % entries;
    const T* all = scores + image * entries;
    const float score = float(all[entry]);
    if (!(score > threshold)) return;
    int place = 0;
    for (int other = 0; other < entries; ++other) {
        const float others = float(all[other]);
        if (others > score || (others == score && other < entry)) ++place;
    }
    order[image * entries + place] = entry;
    atomicAdd(counts + image, 1);
}

// Left, top, right, bottom and area of a box.
struct Edges {
    float left, top, right, bottom, area;
};

template <typename T>
__device__ Edges edges_of(const T* box) {
    const float x = float(box[0]), y = float(box[1]), w = float(box[2]), h = float(box[3]);
    return {x - w / 2, y - h / 2, x + w / 2, y + h / 2, w * h};
}

__device__ bool overlap(const Edges& a, const Edges& b, float threshold) {
    const float width = fmaxf(fminf(a.right, b.right) - fmaxf(a.left, b.left), 0.0f);
    const float height = fmaxf(fminf(a.bottom, b.bottom) - fmaxf(a.top, b.top), 0.0f);
    const float shared = width * height;
    return shared > threshold * (a.area + b.area - shared);
}

// Goes through the entries of an image in order and keeps those that do not overlap with one that is kept, of their class.
// kept: [N, most], their numbers. The results are padded with boxes and scores of 0 and with class -1. A block for each image.
template <typename T>
__global__ void select(const T* boxes, const T* scores, const int* order, const int* counts, int* kept, int* found,
                       T* out_boxes, T* out_scores, int* out_classes, int count, int entries, int most, float threshold) {
    __shared__ int number, suppressed;
    const long long image = blockIdx.x;
    const int thread = threadIdx.x;
    boxes += image * count * 4, scores += image * entries, order += image * entries, kept += image * most;
    out_boxes += image * most * 4, out_scores += image * most, out_classes += image * most;
    if (thread == 0) number = 0;
    __syncthreads();
    for (int next = 0; next < counts[image] && number < most; ++next) {
        const int entry = order[next], kind = entry / count;
        const Edges edges = edges_of(boxes + entry % count * 4);
        if (thread == 0) suppressed = 0;
        __syncthreads();
        for (int k = thread; k < number; k += blockDim.x) {
            if (kept[k] / count == kind && overlap(edges_of(boxes + kept[k] % count * 4), edges, threshold)) {
                atomicExch(&suppressed, 1);
            }
        }
        __syncthreads();
        if (thread == 0 && !suppressed) kept[number++] = entry;
        __syncthreads();
    }
    if (thread == 0) found[image] = number;
    for (int k = thread; k < most; k += blockDim.x) {
        const bool taken = k < number;
        for (int edge = 0; edge < 4; ++edge) out_boxes[4 * k + edge] = taken ? boxes[kept[k] % count * 4 + edge] : T(0.0f);
        out_scores[k] = taken ? scores[kept[k]] : T(0.0f);
        out_classes[k] = taken ? kept[k] / count : -1;
    }
}
