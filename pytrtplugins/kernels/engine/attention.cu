// Scaled dot-product attention in one pass: y = softmax(scale * q k^T + bias) v. Scores live in shared memory only, a tile of
// keys at a time; a row's largest score so far and its sum are kept, and what is summed up is made smaller where a larger score
// comes. Products and sums are float32, whatever the tensors are.
//
// Constants: DEPTH, values of a head that a block has in shared memory, a multiple of 16. A head of more is multiplied in
// several parts, and written by several blocks.

constexpr int THREADS = 128, LANES = 16, ROWS = 16;             // 8 pairs of rows by 16 lanes
constexpr int KEYS = DEPTH <= 64 ? 64 : DEPTH <= 128 ? 32 : 16;  // of a tile
constexpr int KEYS_EACH = KEYS / LANES, COLUMNS = DEPTH / LANES, PIECES = DEPTH / 4, PITCH = PIECES + 1;

template <typename T> struct alignas(4 * sizeof(T)) Four { T values[4]; };

__device__ __forceinline__ float4 plus(float4 sum, float factor, float4 x) {
    return make_float4(sum.x + factor * x.x, sum.y + factor * x.y, sum.z + factor * x.z, sum.w + factor * x.w);
}

__device__ __forceinline__ float dot(float sum, float4 a, float4 b) {
    return sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

// Some rows of a matrix → shared memory, DEPTH values of each; zeros behind the last row and value. `vector`: four values lie
// side by side at a multiple of their size.
template <typename T>
__device__ __forceinline__ void load_rows(float4 (*to)[PITCH], int count, const T* from, long long row_stride, long long stride,
                                          int rows, int values, bool vector, float scale) {
    bool const down = row_stride == 1;  // neighbouring threads read what lies side by side
    for (int index = threadIdx.x; index < count * PIECES; index += THREADS) {
        int const row = down ? index % count : index / PIECES, piece = down ? index / count : index % PIECES;
        float found[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (row < rows) {
            const T* const x = from + row * row_stride + piece * 4 * stride;
            if (vector) {
                if (piece * 4 < values) {
                    Four<T> const four = *reinterpret_cast<const Four<T>*>(x);
                    for (int i = 0; i < 4; ++i) found[i] = static_cast<float>(four.values[i]) * scale;
                }
            } else {
                for (int i = 0; i < 4; ++i) {
                    if (piece * 4 + i < values) found[i] = static_cast<float>(x[i * stride]) * scale;
                }
            }
        }
        to[row][piece] = make_float4(found[0], found[1], found[2], found[3]);
    }
}

__device__ __forceinline__ float bias_at(const void* bias, bool half, long long place) {
    return half ? static_cast<float>(static_cast<const __half*>(bias)[place]) : static_cast<const float*>(bias)[place];
}

// Strides count values; those of a bias are along its matrices, of which `period` are repeated along the batch, heads, rows and
// keys. `zero`: rows of which nothing is left give zeros, not NaN. A block does ROWS rows of one head, DEPTH values of y.
template <typename T>
__global__ void __launch_bounds__(128)
attention(const T* q, const T* k, const T* v, const void* bias, T* y, int heads, int rows, int keys, int head, int values,
          long long qb, long long qh, long long qr, long long qd, long long kb, long long kh, long long kr, long long kd,
          long long vb, long long vh, long long vr, long long vd, long long yb, long long yh, long long yr, long long yd,
          long long bb, long long bh, long long br, long long bk, int period, bool half_bias, float scale, bool zero,
          bool q_vector, bool k_vector, bool v_vector) {
    __shared__ float4 queries[ROWS][PITCH];
    __shared__ float4 tile[KEYS][PITCH];           // of k, then of v
    __shared__ float4 weights[ROWS][KEYS / 4 + 1];
    __shared__ float4 partial[ROWS][LANES / 4];
    int const row_tiles = (rows + ROWS - 1) / ROWS, parts = (values + DEPTH - 1) / DEPTH;
    int const lane = threadIdx.x % LANES, own = threadIdx.x / LANES * 2;  // the first of the two rows of a thread
    long long place = blockIdx.x;
    int const part = static_cast<int>(place % parts) * DEPTH;
    place /= parts;
    int const first_row = static_cast<int>(place % row_tiles) * ROWS;
    place /= row_tiles;
    long long const number = place % heads, batch = place / heads;
    q += batch * qb + number * qh + first_row * qr;
    k += batch * kb + number * kh;
    v += batch * vb + number * vh + part * vd;
    y += batch * yb + number * yh + first_row * yr + part * yd;
    long long const bias_begin = batch % period * bb + number * bh + (first_row + own) * br;
    float const none = __int_as_float(static_cast<int>(0xFF800000u));

    float best[2] = {none, none}, total[2] = {0.0f, 0.0f}, sums[2][COLUMNS];
#pragma unroll
    for (int i = 0; i < 2 * COLUMNS; ++i) sums[i / COLUMNS][i % COLUMNS] = 0.0f;
    for (int first = 0; first < keys; first += KEYS) {
        float scores[2][KEYS_EACH];
#pragma unroll
        for (int i = 0; i < 2 * KEYS_EACH; ++i) scores[i / KEYS_EACH][i % KEYS_EACH] = 0.0f;
        for (int from = 0; from < head; from += DEPTH) {
            __syncthreads();  // nobody reads the tile any more
            if (first == 0 || head > DEPTH) load_rows(queries, ROWS, q + from * qd, qr, qd, rows - first_row, head - from, q_vector, scale);
            load_rows(tile, KEYS, k + first * kr + from * kd, kr, kd, keys - first, head - from, k_vector, 1.0f);
            __syncthreads();
#pragma unroll 4
            for (int piece = 0; piece < PIECES; ++piece) {
                float4 const upper = queries[own][piece], lower = queries[own + 1][piece];
#pragma unroll
                for (int j = 0; j < KEYS_EACH; ++j) {
                    float4 const key = tile[lane + j * LANES][piece];
                    scores[0][j] = dot(scores[0][j], upper, key);
                    scores[1][j] = dot(scores[1][j], lower, key);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float largest = none;
#pragma unroll
            for (int j = 0; j < KEYS_EACH; ++j) {
                int const key = first + lane + j * LANES;
                if (key >= keys) scores[i][j] = none;
                else if (bias && first_row + own + i < rows) scores[i][j] += bias_at(bias, half_bias, bias_begin + i * br + key * bk);
                largest = fmaxf(largest, scores[i][j]);
            }
            reinterpret_cast<float*>(partial[own + i])[lane] = largest;
        }
        __syncthreads();  // all have read the tile of k
        load_rows(tile, KEYS, v + first * vr, vr, vd, keys - first, values - part, v_vector, 1.0f);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float const before = best[i];
#pragma unroll
            for (int j = 0; j < LANES / 4; ++j) {
                float4 const four = partial[own + i][j];
                best[i] = fmaxf(fmaxf(fmaxf(best[i], four.x), fmaxf(four.y, four.z)), four.w);
            }
            float const top = best[i] == none ? 0.0f : best[i], smaller = expf(before - top);
            total[i] *= smaller;
#pragma unroll
            for (int j = 0; j < KEYS_EACH; ++j) {
                float const weight = expf(scores[i][j] - top);
                total[i] += weight;
                reinterpret_cast<float*>(weights[own + i])[lane + j * LANES] = weight;
            }
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) sums[i][j] *= smaller;
        }
        __syncthreads();
#pragma unroll 2
        for (int four = 0; four < KEYS / 4; ++four) {
            float4 const upper = weights[own][four], lower = weights[own + 1][four];
            float const above[4] = {upper.x, upper.y, upper.z, upper.w}, below[4] = {lower.x, lower.y, lower.z, lower.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float4* const row = tile[four * 4 + j];
#pragma unroll
                for (int c = 0; c < COLUMNS; c += COLUMNS % 4 ? 1 : 4) {
                    if (COLUMNS % 4) {
                        float const x = reinterpret_cast<const float*>(row)[c * LANES + lane];
                        sums[0][c] += above[j] * x;
                        sums[1][c] += below[j] * x;
                    } else {
                        float4 const x = row[c / 4 * LANES + lane];
                        float4 const a = plus(make_float4(sums[0][c], sums[0][c + 1], sums[0][c + 2], sums[0][c + 3]), above[j], x);
                        float4 const b = plus(make_float4(sums[1][c], sums[1][c + 1], sums[1][c + 2], sums[1][c + 3]), below[j], x);
                        sums[0][c] = a.x, sums[0][c + 1] = a.y, sums[0][c + 2] = a.z, sums[0][c + 3] = a.w;
                        sums[1][c] = b.x, sums[1][c + 1] = b.y, sums[1][c + 2] = b.z, sums[1][c + 3] = b.w;
                    }
                }
            }
        }
    }
    for (int i = 0; i < 2; ++i) reinterpret_cast<float*>(partial[own + i])[lane] = total[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (first_row + own + i >= rows) continue;
        float sum = 0.0f;
        for (int j = 0; j < LANES; ++j) sum += reinterpret_cast<const float*>(partial[own + i])[j];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            int const column = COLUMNS % 4 ? c * LANES + lane : (c / 4 * LANES + lane) * 4 + c % 4;
            float const result = zero && !(sum > 0.0f) ? 0.0f : sums[i][c] / sum;
            if (part + column < values) y[(own + i) * yr + column * yd] = static_cast<T>(result);
        }
    }
}
