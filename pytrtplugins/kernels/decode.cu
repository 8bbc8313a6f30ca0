// The output of a region or yolo layer -> boxes and scores, as darknet's get_region_box and get_yolo_box make them.
//
// x: [N, A * (5 + classes), H, W], or with nhwc the channels innermost. priors: A pairs of width and height in 0..1 of the
// network's input. boxes: [N, total, 4] centre x, centre y, width, height in 0..1; scores: [N, classes, total], 0 for what is
// not above the threshold: the one that `limit` points to, or `threshold` where that is null. This layer's boxes are
// A * H * W from `first` on, in the order [anchor][row][column]. background: a class probability is the score; else times
// the objectness. squared: sides are 4 v^2 of the prior instead of exp(v).
//
// threads = (H * W, A * (1 + classes), N): a thread makes a box, or one score of one
template <typename T>
__global__ void decode(const T* __restrict__ x, const float* __restrict__ priors, float* __restrict__ boxes,
                       float* __restrict__ scores, const float* __restrict__ limit, int first, int total, int anchors,
                       int classes, int h, int w, bool nhwc, bool background, bool squared, float threshold) {
    const int area = h * w, cell = blockIdx.x * blockDim.x + threadIdx.x;
    const int work = blockIdx.y * blockDim.y + threadIdx.y;
    if (cell >= area || work >= anchors * (1 + classes)) return;
    const int anchor = work / (1 + classes), item = work - anchor * (1 + classes);
    const int entries = 5 + classes, channels = anchors * entries;
    const long long step = nhwc ? 1 : area, image = blockIdx.z;
    x += image * channels * area + anchor * entries * step + static_cast<long long>(cell) * (nhwc ? channels : 1);
    const long long box = first + static_cast<long long>(anchor) * area + cell;
    if (item == 0) {
        const int row = cell / w, column = cell - row * w;
        float sides[2];
        for (int i = 0; i < 2; ++i) {
            const float value = static_cast<float>(x[(2 + i) * step]);
            const float factor = squared ? __fmul_rn(__fmul_rn(value, value), 4.0f)
                                         : __double2float_rn(exp(static_cast<double>(value)));
            sides[i] = __fmul_rn(factor, priors[2 * anchor + i]);
        }
        float* const to = boxes + (image * total + box) * 4;
        to[0] = __fdiv_rn(__fadd_rn(static_cast<float>(column), static_cast<float>(x[0])), static_cast<float>(w));
        to[1] = __fdiv_rn(__fadd_rn(static_cast<float>(row), static_cast<float>(x[step])), static_cast<float>(h));
        to[2] = sides[0];
        to[3] = sides[1];
        return;
    }
    const float probability = static_cast<float>(x[(4 + item) * step]);
    const float score = background ? probability : __fmul_rn(static_cast<float>(x[4 * step]), probability);
    scores[(image * classes + item - 1) * total + box] = score > (limit ? *limit : threshold) ? score : 0.0f;
}
