/* Layer norm and RMS norm by rows, the gradients of their parameters by columns (columns.cuh). Formulas are those
 * of cpu/sets/norm.c; sums over a row are in float32. */
#include <cmath>

#include "device/cuda/columns.cuh"
#include "device/cuda/product.cuh"
#include "device/cuda/rows.cuh"

__device__ static float total_of(float4 v) { return (v.x + v.y) + (v.z + v.w); }

__device__ static float4 minus(float4 a, float b) { return {a.x - b, a.y - b, a.z - b, a.w - b}; }

__device__ static float4 times(float4 a, float b) { return {a.x * b, a.y * b, a.z * b, a.w * b}; }

__device__ static float4 product(float4 a, float4 b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }

__device__ static float4 sum_of(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

/* A row of parameters, [missing] where there is none. */
__device__ static float4 load_parameter(const float *row, size_t j, size_t size, bool is_aligned, float missing) {
    return row ? row_load(row, j, size, is_aligned, 0) : float4{missing, missing, missing, missing};
}

struct layer_norm_rows {
    const float *x, *weight, *bias;
    float eps, *y, *statistics;
    size_t size;
    bool is_aligned;
    struct gpu_also also;

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        const float *from = x + i * size;
        float sum = 0, squares = 0;
        for (size_t j = first; j < size; j += 4 * THREADS) sum += total_of(row_load(from, j, size, is_aligned, 0));
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
            row_store(y + i * size, j, size, is_aligned, v);
            also.put(i * size + j, v);
        }
    }
};

static void layer_norm_forward(struct device *device, const float *x, const float *weight, const float *bias, float eps,
                               float *y, float *statistics, size_t rows, size_t size) {
    call c(device, "layer_norm_forward");
    struct layer_norm_rows f = {c.in(x, rows * size),
                                c.in(weight, size),
                                c.in(bias, size),
                                eps,
                                c.out(y, rows * size),
                                c.out(statistics, 2 * rows),
                                size,
                                false,
                                {}};
    f.is_aligned = rows_are_aligned(f.x, size) && rows_are_aligned(f.y, size) && rows_are_aligned(f.weight, size) &&
                   rows_are_aligned(f.bias, size);
    f.also = gpu_also_rows(&c, y, f.y, rows, size);
    rows_start(&c, rows, size, f);
}

/* dx = scale (g - mean(g) - xhat mean(g xhat)) with g = dy weight, xhat = (x - mean) scale; RMS norm has not mean and
 * mean(g). */
struct norm_input_rows {
    const float *x, *weight, *statistics, *dy;
    float *dx;
    bool adds, has_mean;
    size_t size;
    bool is_aligned;

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        const float *from = x + i * size, *slope = dy + i * size;
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
            row_store(dx + i * size, j, size, is_aligned, d);
        }
    }
};

static void start_input(call *c, struct norm_input_rows f, size_t rows) {
    f.is_aligned = rows_are_aligned(f.x, f.size) && rows_are_aligned(f.weight, f.size) &&
                   rows_are_aligned(f.dy, f.size) && rows_are_aligned(f.dx, f.size);
    rows_start(c, rows, f.size, f);
}

static void layer_norm_backward(struct device *device, const float *x, const float *weight, const float *statistics,
                                const float *dy, float *dx, bool adds, float *dweight, float *dbias, size_t rows,
                                size_t size) {
    call c(device, "layer_norm_backward");
    const float *input = c.in(x, rows * size), *w = c.in(weight, size), *saved = c.in(statistics, 2 * rows);
    const float *from = c.in(dy, rows * size);
    float *to = adds ? c.inout(dx, rows * size) : c.out(dx, rows * size);
    float *dw = c.inout(dweight, size), *db = c.inout(dbias, size);
    if (dw || db)
        column_sums<2>(
            &c, rows, size,
            [=] __device__(size_t i, size_t j, float *sums) {
                float g = from[i * size + j];
                sums[0] += g * ((input[i * size + j] - saved[2 * i]) * saved[2 * i + 1]);
                sums[1] += g;
            },
            [=] __device__(size_t j, const double *sums) {
                if (dw) dw[j] += (float)sums[0];
                if (db) db[j] += (float)sums[1];
            });
    if (to) start_input(&c, {input, w, saved, from, to, adds, true, size, false}, rows);
}

struct rms_norm_rows {
    const float *x, *weight;
    float eps, *y, *statistics;
    size_t size;
    bool is_aligned;
    struct gpu_also also;

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        const float *from = x + i * size;
        float squares = 0;
        for (size_t j = first; j < size; j += 4 * THREADS) {
            float4 v = row_load(from, j, size, is_aligned, 0);
            squares += total_of(product(v, v));
        }
        float scale = 1 / sqrtf(row_sum<THREADS>(squares) / (float)size + eps);
        if (first == 0) statistics[i] = scale;
        for (size_t j = first; j < size; j += 4 * THREADS) {
            float4 v = times(row_load(from, j, size, is_aligned, 0), scale);
            v = product(v, load_parameter(weight, j, size, is_aligned, 1));
            row_store(y + i * size, j, size, is_aligned, v);
            also.put(i * size + j, v);
        }
    }
};

static void rms_norm_forward(struct device *device, const float *x, const float *weight, float eps, float *y,
                             float *statistics, size_t rows, size_t size) {
    call c(device, "rms_norm_forward");
    struct rms_norm_rows f = {
        c.in(x, rows * size), c.in(weight, size), eps, c.out(y, rows * size), c.out(statistics, rows), size, false, {}};
    f.is_aligned = rows_are_aligned(f.x, size) && rows_are_aligned(f.weight, size) && rows_are_aligned(f.y, size);
    f.also = gpu_also_rows(&c, y, f.y, rows, size);
    rows_start(&c, rows, size, f);
}

static void rms_norm_backward(struct device *device, const float *x, const float *weight, const float *statistics,
                              const float *dy, float *dx, bool adds, float *dweight, size_t rows, size_t size) {
    call c(device, "rms_norm_backward");
    const float *input = c.in(x, rows * size), *w = c.in(weight, size), *saved = c.in(statistics, rows);
    const float *from = c.in(dy, rows * size);
    float *to = adds ? c.inout(dx, rows * size) : c.out(dx, rows * size), *dw = c.inout(dweight, size);
    if (dw)
        column_sums<1>(
            &c, rows, size,
            [=] __device__(size_t i, size_t j, float *sum) {
                *sum += from[i * size + j] * (input[i * size + j] * saved[i]);
            },
            [=] __device__(size_t j, const double *sum) { dw[j] += (float)*sum; });
    if (to) start_input(&c, {input, w, saved, from, to, adds, false, size, false}, rows);
}

const struct norm_ops gpu_norms = {.layer_norm_forward = layer_norm_forward,
                                   .layer_norm_backward = layer_norm_backward,
                                   .rms_norm_forward = rms_norm_forward,
                                   .rms_norm_backward = rms_norm_backward};
