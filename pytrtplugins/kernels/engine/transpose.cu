// Another layout: planes of channels become pixels, or pixels planes, with another type and scale as in `reformat`; or the same layout
// with another type, scale or pitch. Behind nhwc.cu, early.cu, and what reformat.py writes: X_KIND, Y_KIND, SCALED,
// whether values change although their types are equal, and a macro for the kernel that is wanted.

template <int KIND> struct ElementOf { typedef unsigned char type; };
template <> struct ElementOf<FLOAT> { typedef float type; };
template <> struct ElementOf<HALF> { typedef __half type; };
template <> struct ElementOf<INT8> { typedef int8_t type; };
typedef ElementOf<X_KIND>::type X;
typedef ElementOf<Y_KIND>::type Y;

constexpr int X_LANES = 16 / sizeof(X), Y_LANES = 16 / sizeof(Y);

__device__ __forceinline__ Y converted(X value, float x_scale, float y_scale) {
    union {
        X before;
        Y after;
    } same;
    same.before = value;
    if (X_KIND == Y_KIND && !SCALED) return same.after;
    Y result;
    store(&result, 0, Y_KIND, load(&value, 0, X_KIND) * x_scale, y_scale);
    return result;
}

// Values that one access moves.
template <typename T, int BYTES> struct alignas(BYTES) Run { T values[BYTES / sizeof(T)]; };

#ifdef KERNEL_TRANSPOSE
// 16 bytes of a row, in accesses of BYTES, of which those from `count` values on are left out: zeros.
template <int BYTES> __device__ __forceinline__ void load_row(X (&values)[X_LANES], const X* from, int count) {
    constexpr int side = BYTES / sizeof(X);
#pragma unroll
    for (int first = 0; first < X_LANES; first += side) {
        if (first >= count) continue;
        Run<X, BYTES> const run = *reinterpret_cast<const Run<X, BYTES>*>(from + first);
#pragma unroll
        for (int i = 0; i < side; ++i) values[first + i] = run.values[i];
    }
}

// A tile in shared memory: for each of its columns 128 bytes of the rows of y, whose 16-byte groups change places so that neither
// the words of neighbouring pieces of a row of x nor those of a row of y share a bank.
constexpr int PACKED = 4 / sizeof(Y), ROWS = 32 * PACKED, COLUMNS = 8 * X_LANES;

__device__ __forceinline__ int place_of(int column, int row) {
    return column * ROWS + ((row / Y_LANES) ^ (column / X_LANES)) * Y_LANES + row % Y_LANES;
}

// The tile to memory, in accesses of BYTES; neighbouring threads have neighbouring places.
template <int BYTES>
__device__ __forceinline__ void store_tile(const Y* tile, Y* y, int rows, int columns, int y_pitch) {
    constexpr int side = BYTES / sizeof(Y), pieces = ROWS / side, turns = COLUMNS * pieces / 256;
#pragma unroll(turns < 4 ? turns : 4)
    for (int turn = 0; turn < turns; ++turn) {
        int const index = turn * 256 + static_cast<int>(threadIdx.x), column = index / pieces, row = index % pieces * side;
        if (column >= columns || row >= rows) continue;
        *reinterpret_cast<Run<Y, BYTES>*>(y + static_cast<long long>(column) * y_pitch + row) =
            *reinterpret_cast<const Run<Y, BYTES>*>(tile + place_of(column, row));
    }
}

// x is [image][row][column], y is [image][column][row], whose rows from `rows` to `padded` are zero. Values lie `x_pitch` and
// `y_pitch` apart from one row of x, and one column of y, to the next. `x_bytes` and `y_bytes`, up to 16, divide both pitches and
// addresses, and `y_bytes` divides the padded rows. Grid: tiles of columns, tiles of rows, images.
extern "C" __global__ void __launch_bounds__(256) transpose(const void* x, void* y, int rows, int columns, int padded, int x_pitch,
                                                            int y_pitch, int x_bytes, int y_bytes, float x_scale, float y_scale) {
    __shared__ Run<Y, 16> memory[COLUMNS * 8];
    Y* const tile = memory[0].values;
    int const piece = threadIdx.x % 8, row = blockIdx.y * ROWS + threadIdx.x / 8 * PACKED;
    int const left = blockIdx.x * COLUMNS, top = blockIdx.y * ROWS, column = left + piece * X_LANES;
    const X* const from = static_cast<const X*>(x) + (static_cast<long long>(blockIdx.z) * rows + row) * x_pitch + column;
    X values[PACKED][X_LANES];
    begin_kernel();
#pragma unroll
    for (int i = 0; i < PACKED; ++i) {
        int const count = row + i < rows ? columns - column : 0;
        const X* const at = from + static_cast<long long>(i) * x_pitch;
#pragma unroll
        for (int lane = 0; lane < X_LANES; ++lane) values[i][lane] = X();
        if (x_bytes == 16) {
            load_row<16>(values[i], at, count);
        } else if (x_bytes == 8) {
            load_row<8>(values[i], at, count);
        } else if (x_bytes == 4) {
            load_row<4>(values[i], at, count);
        } else {
            load_row<sizeof(X)>(values[i], at, count);
        }
    }
#pragma unroll
    for (int lane = 0; lane < X_LANES; ++lane) {
        Run<Y, 4> word;
#pragma unroll
        for (int i = 0; i < PACKED; ++i) word.values[i] = converted(values[i][lane], x_scale, y_scale);
        *reinterpret_cast<Run<Y, 4>*>(tile + place_of(piece * X_LANES + lane, threadIdx.x / 8 * PACKED)) = word;
    }
    __syncthreads();
    Y* const to = static_cast<Y*>(y) + (static_cast<long long>(blockIdx.z) * columns + left) * y_pitch + top;
    if (y_bytes == 16) {
        store_tile<16>(tile, to, padded - top, columns - left, y_pitch);
    } else if (y_bytes >= 4) {
        store_tile<4>(tile, to, padded - top, columns - left, y_pitch);
    } else {
        store_tile<sizeof(Y)>(tile, to, padded - top, columns - left, y_pitch);
    }
}
#endif

#ifdef KERNEL_PIXELS
// Planes → pixels of 16 bytes of channels, of which those from c on are zero. Grid: pixels, images.
extern "C" __global__ void __launch_bounds__(256) pixels(const void* x, void* y, int c, int area, int pitch, float x_scale, float y_scale) {
    int const pixel = blockIdx.x * 256 + threadIdx.x;
    long long const image = blockIdx.y;
    begin_kernel();
    if (pixel >= area) return;
    const X* const planes = static_cast<const X*>(x) + image * c * area + pixel;
    Run<Y, 16> found;
#pragma unroll
    for (int lane = 0; lane < Y_LANES; ++lane) {
        found.values[lane] = lane < c ? converted(planes[static_cast<long long>(lane) * area], x_scale, y_scale) : Y();
    }
    store_whole(static_cast<Y*>(y) + (image * area + pixel) * pitch, found);
}
#endif

#ifdef KERNEL_PLANES
// Pixels, whose c channels lie within 16 bytes → planes, likewise.
extern "C" __global__ void __launch_bounds__(256) planes(const void* x, void* y, int c, int area, int pitch, float x_scale, float y_scale) {
    int const pixel = blockIdx.x * 256 + threadIdx.x;
    long long const image = blockIdx.y;
    begin_kernel();
    if (pixel >= area) return;
    Run<X, 16> const found = *reinterpret_cast<const Run<X, 16>*>(static_cast<const X*>(x) + (image * area + pixel) * pitch);
    Y* const values = static_cast<Y*>(y) + image * c * area + pixel;
#pragma unroll
    for (int lane = 0; lane < X_LANES; ++lane) {
        if (lane < c) values[static_cast<long long>(lane) * area] = converted(found.values[lane], x_scale, y_scale);
    }
}
#endif

#ifdef KERNEL_CONVERT
// SIDE values of a row, from `first` on → as many of another type; those from `columns` to `padded` are zero.
template <int SIDE>
__device__ __forceinline__ void convert_run(const X* x, Y* y, int first, int columns, int padded, float x_scale, float y_scale) {
    Run<X, SIDE * sizeof(X)> given;
    if (first + SIDE <= columns) {
        given = *reinterpret_cast<const Run<X, SIDE * sizeof(X)>*>(x + first);
    } else {
#pragma unroll
        for (int lane = 0; lane < SIDE; ++lane) given.values[lane] = first + lane < columns ? x[first + lane] : X();
    }
    Run<Y, SIDE * sizeof(Y)> found;
#pragma unroll
    for (int lane = 0; lane < SIDE; ++lane) found.values[lane] = converted(given.values[lane], x_scale, y_scale);
    if (first + SIDE <= padded) {
        store_whole(y + first, found);
        return;
    }
#pragma unroll
    for (int lane = 0; lane < SIDE; ++lane) {
        if (first + lane < padded) y[first + lane] = found.values[lane];
    }
}

// Rows of values → rows of another type. A thread has `lanes` of them: as many as have 16 bytes in the wider type, whose rows begin at
// multiples of their bytes, or one. items = rows * groups, the runs of a row.
extern "C" __global__ void __launch_bounds__(256) convert(const void* x, void* y, unsigned items, unsigned groups, int lanes, int columns,
                                                          int padded, int x_pitch, int y_pitch, float x_scale, float y_scale) {
    constexpr int most = X_LANES < Y_LANES ? X_LANES : Y_LANES;
    unsigned const index = blockIdx.x * 256u + threadIdx.x, row = index / groups;
    int const first = static_cast<int>(index - row * groups) * lanes;
    const X* const from = static_cast<const X*>(x) + static_cast<long long>(row) * x_pitch;
    Y* const to = static_cast<Y*>(y) + static_cast<long long>(row) * y_pitch;
    begin_kernel();
    if (index >= items) return;
    if (lanes == most) {
        convert_run<most>(from, to, first, columns, padded, x_scale, y_scale);
    } else {
        convert_run<1>(from, to, first, columns, padded, x_scale, y_scale);
    }
}
#endif
