// Images -> a network's input: fitted into the middle, grey around, values in 0..1.
//
// images: uint8, RGB, each [height, width, 3]. y: [N, 3, out_h, out_w], or [N, out_h, out_w, 3] with nhwc. An image fills
// new_w x new_h at (left, top), of any number of pixels, 0 included. rule: how it is resized, bit by bit as
// 0: darknet's resize_image does (rows first, in float); 1: OpenCV's resize does for uint8, INTER_AREA where a side shrinks,
// INTER_LINEAR elsewhere.
// placements: eight numbers for each image: begin in `images` in units of 16 bytes, width, height, new_w, new_h, left, top, rule;
// null: one image at the beginning, with the numbers given.
// step: the value of one step of an int8 output; 1 for floats.
//
// threads = (out_w, out_h, N), a thread per pixel

__device__ __forceinline__ void store(float* y, float value, float) { *y = value; }
__device__ __forceinline__ void store(__half* y, float value, float) { *y = __half(value); }
__device__ __forceinline__ void store(int8_t* y, float value, float step) {
    *y = static_cast<int8_t>(max(-128, min(127, __float2int_rn(__fdiv_rn(value, step)))));
}

struct Image {
    const uint8_t* pixels;
    int width, height, new_w, new_h;

    __device__ __forceinline__ const uint8_t* at(int x, int y) const {
        return pixels + (static_cast<long long>(y) * width + x) * 3;
    }
};

__device__ __forceinline__ float mix(float share, float a, float rest, float b) {
    return __fadd_rn(__fmul_rn(share, a), __fmul_rn(rest, b));
}

__device__ __forceinline__ float unit(float value) { return __fdiv_rn(value, 255.0f); }

// Pixels of the image from one pixel of the input to the next.
__device__ __forceinline__ float corner_step(int old, int fitted) {
    return fitted > 1 ? __fdiv_rn(static_cast<float>(old - 1), static_cast<float>(fitted - 1)) : 0.0f;
}

__device__ void darknet_pixel(const Image& image, int c, int r, float* value) {
    const int width = image.width, height = image.height;
    const float px = __fmul_rn(static_cast<float>(c), corner_step(width, image.new_w));
    const float py = __fmul_rn(static_cast<float>(r), corner_step(height, image.new_h));
    int x0 = min(static_cast<int>(px), width - 1), x1 = min(x0 + 1, width - 1);
    float right = __fsub_rn(px, static_cast<float>(x0));
    if (width == 1 || image.new_w == 1 || c == image.new_w - 1) {  // darknet takes the last column as it is
        x0 = x1 = width - 1;
        right = 0;
    }
    const int y0 = min(static_cast<int>(py), height - 1), y1 = min(y0 + 1, height - 1);
    const float down = __fsub_rn(py, static_cast<float>(y0)), keep = __fsub_rn(1.0f, right);
    const float below = height == 1 || r == image.new_h - 1 ? 0 : down;  // and leaves the share of the row below the last out
    for (int k = 0; k < 3; ++k) {
        const float a = mix(keep, unit(image.at(x0, y0)[k]), right, unit(image.at(x1, y0)[k]));
        const float b = mix(keep, unit(image.at(x0, y1)[k]), right, unit(image.at(x1, y1)[k]));
        value[k] = mix(__fsub_rn(1.0f, down), a, below, b);
    }
}

// OpenCV's scale: old / fitted, as it comes out of two divisions.
__device__ __forceinline__ double scale_of(int old, int fitted) { return 1.0 / (static_cast<double>(fitted) / old); }

__device__ __forceinline__ bool whole(double scale) { return fabs(scale - rint(scale)) < 2.220446049250313e-16; }

// The pixels of one axis that an area covers, and their shares.
struct Cover {
    int begin, end;       // pixels in begin..end-1
    int inner, inner_end;  // those that are covered whole
    float head, body, tail;

    __device__ __forceinline__ Cover(int place, double scale, int size) {
        const double from = __dmul_rn(place, scale), to = __dadd_rn(from, scale);
        const double cell = fmin(scale, size - from);
        inner_end = min(static_cast<int>(floor(to)), size - 1);
        inner = min(static_cast<int>(ceil(from)), inner_end);
        const bool first = inner - from > 1e-3, last = to - inner_end > 1e-3;
        begin = first ? inner - 1 : inner;
        end = last ? inner_end + 1 : inner_end;
        head = static_cast<float>((inner - from) / cell);
        body = static_cast<float>(1.0 / cell);
        tail = static_cast<float>(fmin(fmin(to - inner_end, 1.0), cell) / cell);
    }

    __device__ __forceinline__ float share(int pixel) const {
        return pixel < inner ? head : pixel < inner_end ? body : tail;
    }
};

__device__ __forceinline__ float to_byte(float value) { return fminf(fmaxf(rintf(value), 0.0f), 255.0f); }

__device__ void area_pixel(const Image& image, int c, int r, double scale_x, double scale_y, float* value) {
    const Cover across(c, scale_x, image.width), down(r, scale_y, image.height);
    float sum[3] = {0, 0, 0};
    for (int y = down.begin; y < down.end; ++y) {
        float row[3] = {0, 0, 0};
        for (int x = across.begin; x < across.end; ++x) {
            const uint8_t* const pixel = image.at(x, y);
            const float share = across.share(x);
            for (int k = 0; k < 3; ++k) row[k] = __fadd_rn(row[k], __fmul_rn(static_cast<float>(pixel[k]), share));
        }
        const float share = down.share(y);
        for (int k = 0; k < 3; ++k) sum[k] = __fadd_rn(sum[k], __fmul_rn(share, row[k]));
    }
    for (int k = 0; k < 3; ++k) value[k] = unit(to_byte(sum[k]));
}

// Where both scales are whole numbers: sums of integers.
__device__ void block_pixel(const Image& image, int c, int r, int side_x, int side_y, float* value) {
    int sum[3] = {0, 0, 0};
    for (int y = r * side_y; y < (r + 1) * side_y; ++y) {
        for (int x = c * side_x; x < (c + 1) * side_x; ++x) {
            for (int k = 0; k < 3; ++k) sum[k] += image.at(x, y)[k];
        }
    }
    const float share = __fdiv_rn(1.0f, static_cast<float>(side_x * side_y));
    for (int k = 0; k < 3; ++k) {
        value[k] = unit(side_x == 2 && side_y == 2 ? static_cast<float>((sum[k] + 2) >> 2)
                                                   : to_byte(__fmul_rn(static_cast<float>(sum[k]), share)));
    }
}

// The first of two pixels of one axis, which may lie before the image, and the second one's share. areas: one side of the
// image shrinks, and this or the other one grows.
__device__ __forceinline__ int first_of_two(int place, int old, int fitted, bool areas, float* share) {
    const double inverse = static_cast<double>(fitted) / old, scale = 1.0 / inverse;
    if (areas) {
        const int first = static_cast<int>(floor(__dmul_rn(place, scale)));
        const float rest = static_cast<float>(__dadd_rn(place + 1, -__dmul_rn(first + 1, inverse)));
        *share = rest <= 0 ? 0.0f : __fsub_rn(rest, floorf(rest));
        return first;
    }
    const float position = static_cast<float>(__dadd_rn(__dmul_rn(place + 0.5, scale), -0.5));
    *share = __fsub_rn(position, floorf(position));
    return static_cast<int>(floorf(position));
}

__device__ void linear_pixel(const Image& image, int c, int r, bool areas, float* value) {
    float right, down;
    int x0 = first_of_two(c, image.width, image.new_w, areas, &right);
    const int row = first_of_two(r, image.height, image.new_h, areas, &down);
    if (x0 < 0 || x0 >= image.width - 1) {
        x0 = x0 < 0 ? 0 : image.width - 1;
        right = 0;
    }
    const int x1 = min(x0 + 1, image.width - 1);
    const int y0 = min(max(row, 0), image.height - 1), y1 = min(max(row + 1, 0), image.height - 1);
    const int a0 = __float2int_rn(__fmul_rn(__fsub_rn(1.0f, right), 2048.0f)), a1 = __float2int_rn(right * 2048.0f);
    const int b0 = __float2int_rn(__fmul_rn(__fsub_rn(1.0f, down), 2048.0f)), b1 = __float2int_rn(down * 2048.0f);
    for (int k = 0; k < 3; ++k) {
        const int upper = image.at(x0, y0)[k] * a0 + image.at(x1, y0)[k] * a1;
        const int lower = image.at(x0, y1)[k] * a0 + image.at(x1, y1)[k] * a1;
        const int sum = (((b0 * (upper >> 4)) >> 16) + ((b1 * (lower >> 4)) >> 16) + 2) >> 2;
        value[k] = unit(static_cast<float>(max(0, min(255, sum))));
    }
}

__device__ void opencv_pixel(const Image& image, int c, int r, float* value) {
    const double scale_x = scale_of(image.width, image.new_w), scale_y = scale_of(image.height, image.new_h);
    const bool shrinks = image.new_w < image.width || image.new_h < image.height;
    if (!shrinks || scale_x < 1 || scale_y < 1) {
        linear_pixel(image, c, r, shrinks, value);
    } else if (whole(scale_x) && whole(scale_y)) {
        block_pixel(image, c, r, static_cast<int>(rint(scale_x)), static_cast<int>(rint(scale_y)), value);
    } else {
        area_pixel(image, c, r, scale_x, scale_y, value);
    }
}

template <typename T>
__global__ void letterbox(const uint8_t* __restrict__ images, T* __restrict__ y, const int* __restrict__ placements, int width,
                          int height, int new_w, int new_h, int left, int top, int rule, int out_w, int out_h, bool nhwc,
                          float step) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= out_w || row >= out_h) return;
    Image image = {images, width, height, new_w, new_h};
    if (placements) {
        placements += 8 * blockIdx.z;
        image = {images + 16LL * placements[0], placements[1], placements[2], placements[3], placements[4]};
        left = placements[5];
        top = placements[6];
        rule = placements[7];
    }
    const int c = column - left, r = row - top;
    float value[3] = {0.5f, 0.5f, 0.5f};
    if (c >= 0 && c < image.new_w && r >= 0 && r < image.new_h) {
        if (rule == 0) {
            darknet_pixel(image, c, r, value);
        } else {
            opencv_pixel(image, c, r, value);
        }
    }
    const long long area = static_cast<long long>(out_w) * out_h, pixel = static_cast<long long>(row) * out_w + column;
    y += 3 * area * blockIdx.z;
    for (int k = 0; k < 3; ++k) store(y + (nhwc ? pixel * 3 + k : k * area + pixel), value[k], step);
}
