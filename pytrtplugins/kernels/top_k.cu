// What suppression has left -> the top-k boxes of each image by score, best first.
//
// found: [N, capacity], counts: [N]: of nms.cu. boxes: [N, boxes_per_image, 4]. rows: [N, max_detections, 6] class, score, centre x,
// centre y, width, height; total: [N], how many rows are written: at most `max_detections`.
//
// A thread does some of the found: its row is the number of those that are better, so that the order does not depend on
// who came first.
//
// threads = (any number, N)
__global__ void top_k(const unsigned long long* __restrict__ found, const int* __restrict__ counts,
                      const float* __restrict__ boxes, float* __restrict__ rows, int* __restrict__ total, int capacity,
                      int classes, int boxes_per_image, int max_detections) {
    const long long image = blockIdx.y;
    const int count = min(counts[image], capacity), first = blockIdx.x * blockDim.x + threadIdx.x;
    const int step = gridDim.x * blockDim.x;
    found += image * capacity;
    for (int i = first; i < count; i += step) {
        const unsigned long long own = found[i];
        int better = 0;
        for (int j = 0; j < count && better < max_detections; j += 32) {  // 32 at a time, so that their loads do not wait for each other
            const int end = min(j + 32, count);
            for (int k = j; k < end; ++k) better += found[k] > own;
        }
        if (better >= max_detections) continue;
        const unsigned place = 0xFFFFFFFFu - static_cast<unsigned>(own), box = place / classes;
        const float* const from = boxes + (image * boxes_per_image + box) * 4;
        float* const row = rows + (image * max_detections + better) * 6;
        row[0] = static_cast<float>(place - box * classes);
        row[1] = __int_as_float(static_cast<int>(own >> 32));
        for (int k = 0; k < 4; ++k) row[2 + k] = from[k];
    }
    if (first == 0) total[image] = min(count, max_detections);
}
