// What surrounds the convolutions: formats, pooling, epilogues, and a convolution for any GPU, any groups and any type.
//
// A pixel's channels lie side by side; `pitch` values lie between pixels, and rows and images follow without gaps. So a
// tensor may be a run of channels of a larger one, and channels may be padded: padding holds zeros. What is multiplied or
// laid out anew as unsigned char is FP8. It stands behind codes.cu and activations.cu.

enum Kind { FLOAT = 0, HALF = 1, INT8 = 2, UINT8 = 3, FP8 = 4 };

// FP8, E4M3: a sign, 4 bits of exponent, which counts from -7, 3 of fraction; all ones are no number, and nothing is infinite.
union FloatBits {
    float value;
    unsigned bits;
};
__device__ __forceinline__ float from_fp8(unsigned char code) {
    unsigned const size = code & 0x7Fu;
    FloatBits found;
    found.bits = size << 20;  // 120 less of exponent than float has
    found.value *= 1.329227995784916e36f;  // 2^120
    if (size == 0x7Fu) found.bits = 0x7FC00000u;
    return code & 0x80u ? -found.value : found.value;
}
// The nearest code, of two the even one; the largest for what lies beyond it.
__device__ __forceinline__ unsigned char to_fp8(float v) {
    FloatBits given;
    given.value = v;
    unsigned const sign = given.bits >> 24 & 0x80u, size = given.bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u) return 0x7F;
    if (size >= 0x43E00000u) return static_cast<unsigned char>(sign | 0x7Eu);  // 448
    if (size < 0x3C800000u) {                                                  // 2^-6: steps of 2^-9 from there down
        given.bits = size;
        return static_cast<unsigned char>(sign | static_cast<unsigned>(rintf(given.value * 512.0f)));
    }
    return static_cast<unsigned char>(sign | ((size + 0x7FFFFu + (size >> 20 & 1u)) >> 20) - (120u << 3));
}

__device__ constexpr bool is_codes(int kind) { return kind == INT8 || kind == FP8; }

// A value as the sums take it.
template <typename Total, typename T> __device__ __forceinline__ Total number(T v) { return static_cast<Total>(v); }
template <> __device__ __forceinline__ float number<float, unsigned char>(unsigned char v) { return from_fp8(v); }

__device__ __forceinline__ float load(const void* x, long long i, int kind) {
    if (kind == FLOAT) return static_cast<const float*>(x)[i];
    if (kind == HALF) return static_cast<float>(static_cast<const __half*>(x)[i]);
    if (kind == INT8) return static_cast<float>(static_cast<const int8_t*>(x)[i]);
    if (kind == FP8) return from_fp8(static_cast<const unsigned char*>(x)[i]);
    return static_cast<float>(static_cast<const unsigned char*>(x)[i]);
}

// Codes: value / y_scale, rounded to even, saturated.
__device__ __forceinline__ void store(void* y, long long i, int kind, float value, float y_scale) {
    if (kind == FLOAT) {
        static_cast<float*>(y)[i] = value;
    } else if (kind == HALF) {
        static_cast<__half*>(y)[i] = __half(value);
    } else if (kind == INT8) {
        float const code = rintf(in_steps(value, y_scale));
        static_cast<int8_t*>(y)[i] = static_cast<int8_t>(code < -128.0f ? -128.0f : code > 127.0f ? 127.0f : code);
    } else if (kind == FP8) {
        static_cast<unsigned char*>(y)[i] = to_fp8(in_steps(value, y_scale));
    } else {
        float const code = rintf(in_steps(value, y_scale));
        static_cast<unsigned char*>(y)[i] = static_cast<unsigned char>(code < 0.0f ? 0.0f : code > 255.0f ? 255.0f : code);
    }
}

// `a` and `b` are the bounds of a convolution: slope, or lowest and highest, or slope and offset.
template <bool QUICK = false> __device__ __forceinline__ float activate(float v, int kind, float a, float b) {
    if (kind == ACTIVATION_LINEAR) return v;
    if (kind == ACTIVATION_RELU || (kind == ACTIVATION_LEAKY && a == 0.0f)) return v < 0.0f ? 0.0f : v;  // minus infinity times 0 would be NaN
    if (kind == ACTIVATION_LEAKY || kind == ACTIVATION_PRELU) return v > 0.0f ? v : v * a;
    if (kind == ACTIVATION_CLIP) return v < a ? a : v > b ? b : v;
    if (kind == ACTIVATION_LOGISTIC) return QUICK ? quick_sigmoid(v) : 1.0f / (1.0f + expf(-v));
    if (kind == ACTIVATION_HARD_SIGMOID) return v * a + b < 0.0f ? 0.0f : v * a + b > 1.0f ? 1.0f : v * a + b;
    if (QUICK && (kind == ACTIVATION_SWISH || kind == ACTIVATION_GELU_TANH || kind == ACTIVATION_QUICK_GELU)) return quick_gated(v, v, kind);
    return plain_activation(v, kind);
}

// Sum of an element's products → result: scale, bias, activation, residual, activation, store. PRELU has `slopes` in place of a, or a2.
template <bool QUICK = false>
__device__ __forceinline__ void finish_value(float sum, int k, const float* scale, const float* bias, const float* slopes, int act, float a,
                                             float b, const void* residual, long long at_residual, int residual_kind, float residual_scale,
                                             int act2, float a2, float b2, void* y, long long at, int kind, float y_scale) {
    float v = scale ? __fmul_rn(sum, scale[k]) : sum;
    if (bias) v = __fadd_rn(v, bias[k]);
    v = activate<QUICK>(v, act, act == ACTIVATION_PRELU ? slopes[k] : a, b);
    if (residual) {
        v += load(residual, at_residual, residual_kind) * residual_scale;
        v = activate<QUICK>(v, act2, act2 == ACTIVATION_PRELU ? slopes[k] : a2, b2);
    }
    store(y, at, kind, v, y_scale);
}

template <typename T> struct Sum { typedef float type; };
template <> struct Sum<int8_t> { typedef int type; };

// A convolution, one thread for each value of y; weights [r][s][c / groups][kp]; slopes behind the biases. threads = pixels of
// y * kp, below 2^32.
template <typename T>
__global__ void direct(const T* x, const T* weights, const float* scale, const float* bias, const void* residual, void* y,
                       int n, int h, int w, int c, int x_pitch, int oh, int ow, int k, int kp, int y_pitch, int r, int s,
                       int stride_h, int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, int groups,
                       int act, float a, float b, int residual_pitch, int residual_kind, float residual_scale, int act2,
                       float a2, float b2, int kind, float y_scale) {
    unsigned const index = blockIdx.x * blockDim.x + threadIdx.x;
    int const filter = static_cast<int>(index % kp), pixel = static_cast<int>(index / kp);
    if (pixel >= n * oh * ow) return;
    int const column = pixel % ow, row = pixel / ow % oh, image = pixel / ow / oh;
    typename Sum<T>::type sum = 0;
    if (filter < k) {
        int const per_group = c / groups, first = filter / (k / groups) * per_group;
        for (int i = 0; i < r; ++i) {
            int const y_in = row * stride_h - pad_h + i * dilation_h;
            if (y_in < 0 || y_in >= h) continue;
            for (int j = 0; j < s; ++j) {
                int const x_in = column * stride_w - pad_w + j * dilation_w;
                if (x_in < 0 || x_in >= w) continue;
                const T* values = x + ((static_cast<long long>(image) * h + y_in) * w + x_in) * x_pitch + first;
                const T* factors = weights + (static_cast<long long>(i) * s + j) * per_group * kp + filter;
                for (int channel = 0; channel < per_group; ++channel) {
                    sum += number<typename Sum<T>::type>(values[channel]) *
                           number<typename Sum<T>::type>(factors[static_cast<long long>(channel) * kp]);
                }
            }
        }
    }
    long long const place = static_cast<long long>(pixel);
    if (filter < k) {
        finish_value(static_cast<float>(sum), filter, scale, bias, bias + k, act, a, b, residual, place * residual_pitch + filter,
                     residual_kind, residual_scale, act2, a2, b2, y, place * y_pitch + filter, kind, y_scale);
    } else {
        store(y, place * y_pitch + filter, kind, 0.0f, y_scale);
    }
}

// The epilogue alone, on sums that lie densely. threads = pixels * kp.
template <typename T>
__global__ void finish(const T* sums, int sums_pitch, const float* scale, const float* bias, const void* residual, void* y,
                       int pixels, int k, int kp, int y_pitch, int act, float a, float b, int residual_pitch,
                       int residual_kind, float residual_scale, int act2, float a2, float b2, int kind, float y_scale) {
    unsigned const index = blockIdx.x * blockDim.x + threadIdx.x;
    int const filter = static_cast<int>(index % kp), pixel = static_cast<int>(index / kp);
    if (pixel >= pixels) return;
    long long const place = static_cast<long long>(pixel);
    if (filter < k) {
        finish_value(static_cast<float>(sums[place * sums_pitch + filter]), filter, scale, bias, bias + k, act, a, b,
                     residual, place * residual_pitch + filter, residual_kind, residual_scale, act2, a2, b2, y,
                     place * y_pitch + filter, kind, y_scale);
    } else {
        store(y, place * y_pitch + filter, kind, 0.0f, y_scale);
    }
}

// The largest value, or the mean, of each window; `c` counts padding too. An image is one of the `d` frames of a volume, of which a
// window has t. threads = pixels of y * c.
template <typename T>
__global__ void pool(const T* x, T* y, int pixels, int d, int od, int h, int w, int c, int x_pitch, int oh, int ow, int y_pitch,
                     int t, int stride_d, int r, int s, int stride_h, int stride_w, int pad_d, int pad_h, int pad_w, bool mean,
                     bool count_padding, int end_d, int end_h, int end_w, bool fp8) {
    unsigned const index = blockIdx.x * blockDim.x + threadIdx.x;
    int const channel = static_cast<int>(index % c), pixel = static_cast<int>(index / c);
    if (pixel >= pixels) return;
    int const top = pixel / ow % oh * stride_h - pad_h, left = pixel % ow * stride_w - pad_w, image = pixel / ow / oh;
    int const front = image % od * stride_d - pad_d, volume = image / od;
    float sum = 0.0f, best = 0.0f;
    int inside = 0, counted = 0;
    for (int k = front; k < front + t; ++k) {
        for (int i = top; i < top + r; ++i) {
            for (int j = left; j < left + s; ++j) {
                counted += k < end_d && i < end_h && j < end_w;
                if (k < 0 || k >= d || i < 0 || i >= h || j < 0 || j >= w) continue;
                long long const at = (((static_cast<long long>(volume) * d + k) * h + i) * w + j) * x_pitch + channel;
                float const value = fp8 ? load(x, at, FP8) : static_cast<float>(x[at]);
                best = inside == 0 || value > best || value != value ? value : best;
                sum += value;
                ++inside;
            }
        }
    }
    float const result = mean ? sum / static_cast<float>(count_padding ? counted : inside) : best;
    long long const at = static_cast<long long>(pixel) * y_pitch + channel;
    if (fp8) {
        store(y, at, FP8, result, 1.0f);
    } else {
        y[at] = static_cast<T>(result);
    }
}

// Another type, another layout, another scale: y = x * x_scale / y_scale. Strides count values; y's innermost axis is the
// channel (`channels_last`), of which those from c to cp are padding, or the column. threads = values of y.
__global__ void reformat(const void* x, int x_kind, long long xn, long long xc, long long xh, long long xw, float x_scale,
                         void* y, int y_kind, long long yn, long long yc, long long yh, long long yw, float y_scale, int n,
                         int c, int cp, int h, int w, bool channels_last) {
    unsigned const index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= static_cast<unsigned>(n) * cp * h * w) return;
    int const inner = channels_last ? cp : w, middle = channels_last ? w : h, outer = channels_last ? h : cp;
    int const i = static_cast<int>(index % inner), m = static_cast<int>(index / inner % middle);
    int const o = static_cast<int>(index / inner / middle % outer);
    long long const image = static_cast<long long>(index / inner / middle / outer);
    int const channel = channels_last ? i : o, row = channels_last ? o : m, column = channels_last ? m : i;
    float const value = channel < c ? load(x, image * xn + channel * xc + row * xh + column * xw, x_kind) * x_scale : 0.0f;
    store(y, image * yn + channel * yc + row * yh + column * yw, y_kind, value, y_scale);
}

template <typename T> struct KindOfByte { static constexpr int kind = INT8; };
template <> struct KindOfByte<unsigned char> { static constexpr int kind = FP8; };

template <typename T> struct alignas(16) Vector { T values[16 / sizeof(T)]; };

// Windows of planes of float32 → pixels: a channel is a row, a column and a plane of a window. 16 bytes of channels a thread,
// neighbouring threads at neighbouring pixels; channels from `channels` on are zero. The first window begins `top` rows above the
// image and `left` columns beside it. threads = n * oh * ow * groups, the 16-byte groups of a pixel.
template <typename T>
__global__ void patches(const float* x, T* y, int n, int c, int h, int w, int channels, int groups, int oh, int ow, int pitch,
                        int columns, int stride_h, int stride_w, int top, int left, float y_scale) {
    unsigned const index = blockIdx.x * blockDim.x + threadIdx.x, area = static_cast<unsigned>(oh) * ow;
    if (index >= static_cast<unsigned>(n) * groups * area) return;
    constexpr int lanes = 16 / sizeof(T), kind = sizeof(T) == 4 ? FLOAT : sizeof(T) == 2 ? HALF : KindOfByte<T>::kind;
    int const pixel = static_cast<int>(index % area), first = static_cast<int>(index / area % groups) * lanes;
    long long const image = index / area / groups;
    int const above = pixel / ow * stride_h - top, before = pixel % ow * stride_w - left;
    int plane = first % c, column = first / c % columns, row = first / c / columns;
    Vector<T> found;
    for (int lane = 0; lane < lanes; ++lane) {
        int const i = above + row, j = before + column;
        bool const inside = first + lane < channels && i >= 0 && i < h && j >= 0 && j < w;
        store(found.values, lane, kind, inside ? x[((image * c + plane) * h + i) * w + j] : 0.0f, y_scale);
        if (++plane == c) {
            plane = 0;
            if (++column == columns) {
                column = 0;
                ++row;
            }
        }
    }
    store_whole(y + (image * area + pixel) * pitch + first, found);
}

// An activation of each value, 16 bytes of channels a thread; channels from c on become zero. threads = pixels * groups.
template <typename T>
__global__ void activation(const T* x, T* y, int pixels, int c, int groups, int x_pitch, int y_pitch, int kind) {
    unsigned const index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= static_cast<unsigned>(pixels) * groups) return;
    constexpr int lanes = 16 / sizeof(T);
    long long const pixel = index / groups;
    int const first = static_cast<int>(index % groups) * lanes;
    Vector<T> values = *reinterpret_cast<const Vector<T>*>(x + pixel * x_pitch + first);
    for (int lane = 0; lane < lanes; ++lane) {
        float const v = static_cast<float>(values.values[lane]);
        values.values[lane] = static_cast<T>(first + lane < c ? plain_activation(v, kind) : 0.0f);
    }
    store_whole(y + pixel * y_pitch + first, values);
}
