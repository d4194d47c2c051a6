/* Layer norm and RMS norm by rows, also of a sum that the same kernel computes. Backward computes dx and the gradients
 * of the parameters in one pass over x and dy if rows are aligned and not too long; else the parameter gradients need a
 * second pass, by columns (columns.cuh). Formulas are those of cpu/sets/norm.c; sums over a row are in float32. */
#include <cmath>

#include "device/cuda/columns.cuh"
#include "device/cuda/product.cuh"
#include "device/cuda/rows.cuh"

__device__ static float total_of(float4 v) { return (v.x + v.y) + (v.z + v.w); }

__device__ static float4 minus(float4 a, float b) { return {a.x - b, a.y - b, a.z - b, a.w - b}; }

__device__ static float4 times(float4 a, float b) { return {a.x * b, a.y * b, a.z * b, a.w * b}; }

__device__ static float4 product(float4 a, float4 b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }

__device__ static float4 sum_of(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

/* A row of parameters, [missing] if there is none. */
__device__ static float4 load_parameter(const float *row, size_t j, size_t size, bool is_aligned, float missing) {
    return row ? row_load(row, j, size, is_aligned, 0) : float4{missing, missing, missing, missing};
}

/* Input of a norm: x, or x = a + b. Only the thread that writes numbers of x reads them again. */
template <bool ADDS> struct norm_input {
    const float *x;
    struct gpu_numbers a, b; /* ADDS */
    float *sum;              /* ADDS: x */

    __device__ float4 first(size_t start, size_t j, size_t size, bool is_aligned) const {
        if constexpr (!ADDS) return row_load(x + start, j, size, is_aligned, 0);
        float4 v =
            sum_of(row_load(a.from(start), j, size, is_aligned, 0), row_load(b.from(start), j, size, is_aligned, 0));
        row_store(sum + start, j, size, is_aligned, v);
        return v;
    }
    bool is_aligned(size_t size) const {
        return rows_are_aligned(x, size) && (!ADDS || (rows_are_aligned(a, size) && rows_are_aligned(b, size)));
    }
};

template <bool ADDS> struct layer_norm_rows {
    struct norm_input<ADDS> input;
    const float *weight, *bias;
    float eps;
    struct gpu_result y;
    float *statistics;
    size_t size;
    bool is_aligned;

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        const float *from = input.x + i * size;
        float sum = 0, squares = 0;
        for (size_t j = first; j < size; j += 4 * THREADS) sum += total_of(input.first(i * size, j, size, is_aligned));
        float mean = row_sum<THREADS>(sum) / (float)size;
        for (size_t j = first; j < size; j += 4 * THREADS) {
            float4 d = minus(row_load(from, j, size, is_aligned, mean), mean);
            squares += total_of(product(d, d));
        }
        float scale = 1 / sqrtf(row_sum<THREADS>(squares) / (float)size + eps);
        if (first == 0) statistics[2 * i] = mean, statistics[2 * i + 1] = scale;
        for (size_t j = first; j < size; j += 4 * THREADS) {
            float4 v = times(minus(row_load(from, j, size, is_aligned, 0), mean), scale);
            float4 w = load_parameter(weight, j, size, is_aligned, 1), b = load_parameter(bias, j, size, is_aligned, 0);
            v = {fmaf(v.x, w.x, b.x), fmaf(v.y, w.y, b.y), fmaf(v.z, w.z, b.z), fmaf(v.w, w.w, b.w)};
            row_put(y, i * size, j, size, is_aligned, v);
        }
    }
};

static struct norm_input<false> input_of(operator_call *c, const float *x, size_t count) {
    return {c->in(x, count), {}, {}, nullptr};
}

static struct norm_input<true>
input_of(operator_call *c, const struct tensor *a, const struct tensor *b, float *x, size_t count) {
    struct gpu_numbers left = c->in(a, count), right = c->in(b, count);
    float *sum = c->out(x, count);
    return {sum, left, right, sum};
}

template <bool ADDS>
static void layer_norm(operator_call *c, struct norm_input<ADDS> input, const float *weight, const float *bias,
                       float eps, const struct tensor *y, float *statistics, size_t rows, size_t size) {
    struct layer_norm_rows<ADDS> f = {
        input, c->in(weight, size), c->in(bias, size), eps, c->out(y, rows *size), c->out(statistics, 2 * rows), size,
            false
    };
    f.is_aligned =
        input.is_aligned(size) && f.y.has_fours() && rows_are_aligned(f.weight, size) && rows_are_aligned(f.bias, size);
    gpu_add_half_output_rows(c, &f.y, size);
    rows_start(c, rows, size, f);
}

static void layer_norm_forward(struct device *device, const float *x, const float *weight, const float *bias, float eps,
                               const struct tensor *y, float *statistics, size_t rows, size_t size) {
    operator_call c(device, "layer_norm_forward");
    layer_norm(&c, input_of(&c, x, rows * size), weight, bias, eps, y, statistics, rows, size);
}

static void add_layer_norm_forward(struct device *device, const struct tensor *a, const struct tensor *b, float *x,
                                   const float *weight, const float *bias, float eps, const struct tensor *y,
                                   float *statistics, size_t rows, size_t size) {
    operator_call c(device, "add_layer_norm_forward");
    layer_norm(&c, input_of(&c, a, b, x, rows * size), weight, bias, eps, y, statistics, rows, size);
}

/* dx = scale (g - mean(g) - xhat mean(g xhat)) with g = dy weight, xhat = (x - mean) scale; RMS norm has no mean and
 * no mean(g). */
struct norm_input_rows {
    const float *x, *weight, *statistics;
    struct gpu_numbers dy;
    float *dx;
    struct gpu_half_output half_output; /* dx */
    bool adds, has_mean;
    size_t size;
    bool is_aligned;

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        const float *from = x + i * size;
        struct gpu_numbers slope = dy.from(i * size);
        float mean = has_mean ? statistics[2 * i] : 0, scale = statistics[has_mean ? 2 * i + 1 : i];
        float sum = 0, products = 0;
        for (size_t j = first; j < size; j += 4 * THREADS) {
            float4 g = product(row_load(slope, j, size, is_aligned, 0), load_parameter(weight, j, size, is_aligned, 1));
            float4 xhat = times(minus(row_load(from, j, size, is_aligned, 0), mean), scale);
            sum += total_of(g);
            products += total_of(product(g, xhat));
        }
        float mean_g = has_mean ? row_sum<THREADS>(sum) / (float)size : 0;
        float mean_gx = row_sum<THREADS>(products) / (float)size;
        for (size_t j = first; j < size; j += 4 * THREADS) {
            float4 g = product(row_load(slope, j, size, is_aligned, 0), load_parameter(weight, j, size, is_aligned, 1));
            float4 xhat = times(minus(row_load(from, j, size, is_aligned, 0), mean), scale);
            float4 d = times(sum_of(minus(g, mean_g), times(xhat, -mean_gx)), scale);
            if (adds) d = sum_of(row_load(dx + i * size, j, size, is_aligned, 0), d);
            row_put({dx, half_output}, i * size, j, size, is_aligned, d);
        }
    }
};

static void start_input(operator_call *c, struct norm_input_rows f, size_t rows) {
    f.is_aligned = rows_are_aligned(f.x, f.size) && rows_are_aligned(f.weight, f.size) &&
                   rows_are_aligned(f.dy, f.size) && rows_are_aligned(f.dx, f.size);
    rows_start(c, rows, f.size, f);
}

#define BACK_ROWS 32    /* rows that a warp or a block sums in float */
#define BACK_BLOCKS 264 /* for fewer rows: about as many as a GPU runs at once */

/* dx as in norm_input_rows, unless that is NULL, and parts (blocks, 2, size): sums over a block's rows of dy xhat and
 * dy. A row's threads have FOURS fours of it in registers, and its share of the sums. */
template <unsigned THREADS, int FOURS>
__global__ void __launch_bounds__(GPU_THREADS) norm_back_kernel(struct norm_input_rows f, size_t rows, double *parts) {
    const unsigned teams = GPU_THREADS / THREADS; /* of a block, one per row */
    unsigned team = threadIdx.x / THREADS;
    size_t first = threadIdx.x % THREADS * 4, size = f.size;
    float4 slopes[FOURS] = {}, shifts[FOURS] = {};
    for (size_t i = (size_t)blockIdx.x * teams + team; i < rows; i += (size_t)gridDim.x * teams) {
        float mean = f.has_mean ? f.statistics[2 * i] : 0, scale = f.statistics[f.has_mean ? 2 * i + 1 : i];
        float4 xhat[FOURS] = {}, dy[FOURS] = {};
        uint4 fetched[FOURS] = {};
        float sum = 0, products = 0;
#pragma unroll
        for (int k = 0; k < FOURS; k++) {
            size_t j = first + 4 * THREADS * k;
            if (j < size) xhat[k] = *(const float4 *)(f.x + i * size + j), fetched[k] = f.dy.fetch(i * size + j);
        }
#pragma unroll
        for (int k = 0; k < FOURS; k++) {
            size_t j = first + 4 * THREADS * k;
            if (j >= size) continue;
            dy[k] = f.dy.widen(fetched[k]);
            float4 g = product(dy[k], load_parameter(f.weight, j, size, true, 1));
            xhat[k] = times(minus(xhat[k], mean), scale);
            sum += total_of(g);
            products += total_of(product(g, xhat[k]));
            slopes[k] = sum_of(slopes[k], product(dy[k], xhat[k]));
            shifts[k] = sum_of(shifts[k], dy[k]);
        }
        if (!f.dx) continue;
        float mean_g = f.has_mean ? row_sum<THREADS>(sum) / (float)size : 0;
        float mean_gx = row_sum<THREADS>(products) / (float)size;
#pragma unroll
        for (int k = 0; k < FOURS; k++) {
            size_t j = first + 4 * THREADS * k;
            if (j >= size) continue;
            float4 g = product(dy[k], load_parameter(f.weight, j, size, true, 1));
            dy[k] = times(sum_of(minus(g, mean_g), times(xhat[k], -mean_gx)), scale);
        }
        float *to = f.dx + i * size;
#pragma unroll
        for (int k = 0; k < FOURS; k++) {
            size_t j = first + 4 * THREADS * k;
            if (f.adds && j < size) xhat[k] = *(const float4 *)(to + j);
        }
#pragma unroll
        for (int k = 0; k < FOURS; k++) {
            size_t j = first + 4 * THREADS * k;
            if (j >= size) continue;
            float4 d = f.adds ? sum_of(xhat[k], dy[k]) : dy[k];
            *(float4 *)(to + j) = d;
            f.half_output.put(i * size + j, d);
        }
    }
    float *sums = gpu_shared<float>(); /* (2, size) */
    for (unsigned t = 0; t < teams; t++) {
        for (int k = 0; k < FOURS && t == team; k++) {
            size_t j = first + 4 * THREADS * k;
            float4 *slope = (float4 *)(sums + j), *shift = (float4 *)(sums + size + j);
            if (j >= size) continue;
            *slope = t == 0 ? slopes[k] : sum_of(*slope, slopes[k]);
            *shift = t == 0 ? shifts[k] : sum_of(*shift, shifts[k]);
        }
        __syncthreads();
    }
    for (size_t j = threadIdx.x; j < 2 * size; j += GPU_THREADS) parts[blockIdx.x * 2 * size + j] = (double)sums[j];
}

template <unsigned THREADS, int FOURS>
static void start_back(operator_call *c, const struct norm_input_rows &f, size_t rows, unsigned blocks, double *parts) {
    c->launch(norm_back_kernel<THREADS, FOURS>, blocks, GPU_THREADS, 2 * f.size * sizeof(float), f, rows, parts);
}

/* dx, unless NULL, and dw and db (size), unless NULL, += the sums of dy xhat and dy; false: these rows are not
 * supported. */
static bool all_back(operator_call *c, const struct norm_input_rows &f, size_t rows, float *dw, float *db) {
    size_t size = f.size, limit = 4 * (4 * GPU_THREADS), teams = size > ROWS_LONG ? 1 : GPU_THREADS / 32;
    if (size > limit || !rows_are_aligned(f.x, size) || !rows_are_aligned(f.weight, size) ||
        !rows_are_aligned(f.dy, size) || !rows_are_aligned(f.dx, size))
        return false;
    size_t blocks = (rows + teams * BACK_ROWS - 1) / (teams * BACK_ROWS), each = (rows + teams - 1) / teams;
    if (blocks < BACK_BLOCKS) blocks = each < BACK_BLOCKS ? each : BACK_BLOCKS;
    double *parts = c->scratch<double>(blocks * 2 * size);
    unsigned n = (unsigned)blocks;
    if (rows == 0 || size == 0) return true;
    if (size <= 128)
        start_back<32, 1>(c, f, rows, n, parts);
    else if (size <= 256)
        start_back<32, 2>(c, f, rows, n, parts);
    else if (size <= 512)
        start_back<32, 4>(c, f, rows, n, parts);
    else if (size <= 768)
        start_back<32, 6>(c, f, rows, n, parts);
    else if (size <= 1024)
        start_back<32, 8>(c, f, rows, n, parts);
    else if (size <= 2048)
        start_back<GPU_THREADS, 2>(c, f, rows, n, parts);
    else
        start_back<GPU_THREADS, 4>(c, f, rows, n, parts);
    column_add<2>(c, n, size, parts, [=] __device__(size_t j, const double *sums) {
        if (dw) dw[j] += (float)sums[0];
        if (db) db[j] += (float)sums[1];
    });
    return true;
}

static void layer_norm_backward(struct device *device, const float *x, const float *weight, const float *statistics,
                                const struct tensor *dy, const struct tensor *dx, bool adds, float *dweight,
                                float *dbias, size_t rows, size_t size) {
    operator_call c(device, "layer_norm_backward");
    const float *input = c.in(x, rows * size), *w = c.in(weight, size), *saved = c.in(statistics, 2 * rows);
    struct gpu_numbers from = c.in(dy, rows * size);
    struct gpu_result to = adds ? c.inout(dx, rows * size) : c.out(dx, rows * size);
    float *dw = c.inout(dweight, size), *db = c.inout(dbias, size);
    c.reject_half(to.is_half());
    gpu_add_half_output_rows(&c, &to, size);
    struct norm_input_rows f = {input, w, saved, from, to.to, to.half_output, adds, true, size, false};
    if ((dw || db) && all_back(&c, f, rows, dw, db)) return;
    if (dw || db)
        column_sums<2>(
            &c, rows, size,
            [=] __device__(size_t i, size_t j, float *sums) {
                float g = from.one(i * size + j);
                sums[0] += g * ((input[i * size + j] - saved[2 * i]) * saved[2 * i + 1]);
                sums[1] += g;
            },
            [=] __device__(size_t j, const double *sums) {
                if (dw) dw[j] += (float)sums[0];
                if (db) db[j] += (float)sums[1];
            });
    if (to.to) start_input(&c, f, rows);
}

template <bool ADDS> struct rms_norm_rows {
    struct norm_input<ADDS> input;
    const float *weight;
    float eps;
    struct gpu_result y;
    float *statistics;
    size_t size;
    bool is_aligned;

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        const float *from = input.x + i * size;
        float squares = 0;
        for (size_t j = first; j < size; j += 4 * THREADS) {
            float4 v = input.first(i * size, j, size, is_aligned);
            squares += total_of(product(v, v));
        }
        float scale = 1 / sqrtf(row_sum<THREADS>(squares) / (float)size + eps);
        if (first == 0) statistics[i] = scale;
        for (size_t j = first; j < size; j += 4 * THREADS) {
            float4 v = times(row_load(from, j, size, is_aligned, 0), scale);
            v = product(v, load_parameter(weight, j, size, is_aligned, 1));
            row_put(y, i * size, j, size, is_aligned, v);
        }
    }
};

template <bool ADDS>
static void rms_norm(operator_call *c, struct norm_input<ADDS> input, const float *weight, float eps,
                     const struct tensor *y, float *statistics, size_t rows, size_t size) {
    struct rms_norm_rows<ADDS> f = {
        input, c->in(weight, size), eps, c->out(y, rows *size), c->out(statistics, rows), size, false
    };
    f.is_aligned = input.is_aligned(size) && rows_are_aligned(f.weight, size) && f.y.has_fours();
    gpu_add_half_output_rows(c, &f.y, size);
    rows_start(c, rows, size, f);
}

static void rms_norm_forward(struct device *device, const float *x, const float *weight, float eps,
                             const struct tensor *y, float *statistics, size_t rows, size_t size) {
    operator_call c(device, "rms_norm_forward");
    rms_norm(&c, input_of(&c, x, rows * size), weight, eps, y, statistics, rows, size);
}

static void add_rms_norm_forward(struct device *device, const struct tensor *a, const struct tensor *b, float *x,
                                 const float *weight, float eps, const struct tensor *y, float *statistics, size_t rows,
                                 size_t size) {
    operator_call c(device, "add_rms_norm_forward");
    rms_norm(&c, input_of(&c, a, b, x, rows * size), weight, eps, y, statistics, rows, size);
}

static void rms_norm_backward(struct device *device, const float *x, const float *weight, const float *statistics,
                              const struct tensor *dy, const struct tensor *dx, bool adds, float *dweight, size_t rows,
                              size_t size) {
    operator_call c(device, "rms_norm_backward");
    const float *input = c.in(x, rows * size), *w = c.in(weight, size), *saved = c.in(statistics, rows);
    struct gpu_numbers from = c.in(dy, rows * size);
    struct gpu_result to = adds ? c.inout(dx, rows * size) : c.out(dx, rows * size);
    float *dw = c.inout(dweight, size);
    c.reject_half(to.is_half());
    gpu_add_half_output_rows(&c, &to, size);
    struct norm_input_rows f = {input, w, saved, from, to.to, to.half_output, adds, false, size, false};
    if (dw && all_back(&c, f, rows, dw, nullptr)) return;
    if (dw)
        column_sums<1>(
            &c, rows, size,
            [=] __device__(size_t i, size_t j, float *sum) {
                *sum += from.one(i * size + j) * (input[i * size + j] * saved[i]);
            },
            [=] __device__(size_t j, const double *sum) { dw[j] += (float)*sum; });
    if (to.to) start_input(&c, f, rows);
}

const struct norm_ops gpu_norms = {.layer_norm_forward = layer_norm_forward,
                                   .layer_norm_backward = layer_norm_backward,
                                   .rms_norm_forward = rms_norm_forward,
                                   .rms_norm_backward = rms_norm_backward,
                                   .add_layer_norm_forward = add_layer_norm_forward,
                                   .add_rms_norm_forward = add_rms_norm_forward};
