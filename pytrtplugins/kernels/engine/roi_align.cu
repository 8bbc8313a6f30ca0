// Where a RoiAlign reads along one axis, behind pointwise.cu.

// One of the points of a bin: the pixels below and above it, the weight of the upper one, and whether it lies outside the image.
struct Point {
    unsigned place[2];
    float upper;
    bool outside;
};

__device__ __forceinline__ Point point_at(float at, int size) {
    float const inside = smaller(larger(at, 0.0f), static_cast<float>(size - 1));
    unsigned const below = static_cast<unsigned>(inside), above = below + 1 < static_cast<unsigned>(size) ? below + 1 : below;
    return Point{{below, above}, inside - static_cast<float>(below), !(at >= -1.0f && at <= static_cast<float>(size))};
}

// A side of a box: where it begins, the length of a bin, and how many points a bin has: `ratio`, or with 0 as many as it has pixels.
struct Side {
    float first, bin;
    int points;
    __device__ __forceinline__ Side(float begin, float end, int bins, bool at_least_1, int ratio) {
        float const length = at_least_1 ? larger(end - begin, 1.0f) : end - begin;
        first = begin;
        bin = length / static_cast<float>(bins);
        points = ratio > 0 ? ratio : static_cast<int>(round_up(bin));
    }
    __device__ __forceinline__ float at(unsigned number, int point) const {
        float const step = (static_cast<float>(point) + 0.5f) * bin / static_cast<float>(points);
        return first + static_cast<float>(number) * bin + step;
    }
};
