/* Layer norm and RMS norm: a row is read again while it is in the cache, sums are 16 wide (norm.h). */
#include "device/norm.h"

#include <math.h>

#include "device/cpu/parallel.h"
#include "device/cpu/sets/set.h"
#include "device/cpu/sets/sums.h"

struct layer_norm {
    const float *x, *weight, *bias;
    float eps, *y, *statistics;
    size_t size;
};

static void forward_rows(void *context, size_t first, size_t last) {
    const struct layer_norm *n = context;
    const float *restrict weight = n->weight, *restrict bias = n->bias;
    size_t size = n->size;
    for (size_t i = first; i < last; i++) {
        const float *restrict x = n->x + i * size;
        float *restrict y = n->y + i * size;
        float sums[SUMS] = {0}, squares[SUMS] = {0};
        SUM_INTO(sums, size, j, x[j]);
        float mean = sums_total(sums) / (float)size;
        SUM_INTO(squares, size, j, (x[j] - mean) * (x[j] - mean));
        float scale = 1 / sqrtf(sums_total(squares) / (float)size + n->eps);
        n->statistics[2 * i] = mean;
        n->statistics[2 * i + 1] = scale;
        if (weight && bias)
            for (size_t j = 0; j < size; j++) y[j] = fmaf((x[j] - mean) * scale, weight[j], bias[j]);
        else if (weight)
            for (size_t j = 0; j < size; j++) y[j] = (x[j] - mean) * scale * weight[j];
        else
            for (size_t j = 0; j < size; j++) y[j] = (x[j] - mean) * scale;
    }
}

static void layer_norm_forward(struct device *device, const float *x, const float *weight, const float *bias, float eps,
                               float *y, float *statistics, size_t rows, size_t size) {
    (void)device;
    struct layer_norm n = {x, weight, bias, eps, y, statistics, size};
    parallel_for(rows, parallel_items(2 * size), forward_rows, &n);
}

/* dx = scale (g - mean(g) - xhat mean(g xhat)) with g = dy weight, xhat = (x - mean) scale */
static inline void layer_norm_input(const float *restrict x, const float *restrict weight, float mean, float scale,
                                    const float *restrict dy, float *restrict dx, bool adds, size_t size) {
    float sums[SUMS] = {0}, products[SUMS] = {0};
    if (weight) {
        SUM_INTO(sums, size, j, dy[j] * weight[j]);
        SUM_INTO(products, size, j, dy[j] * weight[j] * ((x[j] - mean) * scale));
    } else {
        SUM_INTO(sums, size, j, dy[j]);
        SUM_INTO(products, size, j, dy[j] * ((x[j] - mean) * scale));
    }
    float mean_g = sums_total(sums) / (float)size, mean_gx = sums_total(products) / (float)size;
    if (weight && adds)
        for (size_t j = 0; j < size; j++)
            dx[j] += scale * (dy[j] * weight[j] - mean_g - (x[j] - mean) * scale * mean_gx);
    else if (weight)
        for (size_t j = 0; j < size; j++)
            dx[j] = scale * (dy[j] * weight[j] - mean_g - (x[j] - mean) * scale * mean_gx);
    else
        for (size_t j = 0; j < size; j++)
            dx[j] = scale * (dy[j] - mean_g - (x[j] - mean) * scale * mean_gx) + (adds ? dx[j] : 0);
}

struct layer_norm_gradients {
    const float *x, *weight, *statistics, *dy;
    float *dx;
    bool adds;
    float *dweight, *dbias;
    size_t rows, size;
};

/* For the columns [first, last), one row after the other. */
static void add_parameters(const struct layer_norm_gradients *n, size_t row, size_t first, size_t last) {
    const float *restrict x = n->x + row * n->size, *restrict g = n->dy + row * n->size;
    float mean = n->statistics[2 * row], scale = n->statistics[2 * row + 1];
    float *restrict dweight = n->dweight, *restrict dbias = n->dbias;
    if (dweight)
        for (size_t j = first; j < last; j++) dweight[j] = fmaf(g[j], (x[j] - mean) * scale, dweight[j]);
    if (dbias)
        for (size_t j = first; j < last; j++) dbias[j] += g[j];
}

static void set_input(const struct layer_norm_gradients *n, size_t i) {
    layer_norm_input(n->x + i * n->size, n->weight, n->statistics[2 * i], n->statistics[2 * i + 1], n->dy + i * n->size,
                     n->dx + i * n->size, n->adds, n->size);
}

static void parameter_columns(void *context, size_t first, size_t last) {
    const struct layer_norm_gradients *n = context;
    size_t until = last * SUMS < n->size ? last * SUMS : n->size;
    for (size_t i = 0; i < n->rows; i++) add_parameters(n, i, first * SUMS, until);
}

static void input_rows(void *context, size_t first, size_t last) {
    for (size_t i = first; i < last; i++) set_input(context, i);
}

/* One thread makes one pass over memory; several split the columns of one sum, then the rows of the other result. */
static void layer_norm_backward(struct device *device, const float *x, const float *weight, const float *statistics,
                                const float *dy, float *dx, bool adds, float *dweight, float *dbias, size_t rows,
                                size_t size) {
    (void)device;
    struct layer_norm_gradients n = {x, weight, statistics, dy, dx, adds, dweight, dbias, rows, size};
    if (rows * size < 4 * PARALLEL_FLOATS || parallel_threads() == 1) {
        for (size_t i = 0; i < rows; i++) {
            add_parameters(&n, i, 0, size);
            if (dx) set_input(&n, i);
        }
        return;
    }
    if (dweight || dbias) parallel_for((size + SUMS - 1) / SUMS, 1, parameter_columns, &n);
    if (dx) parallel_for(rows, parallel_items(2 * size), input_rows, &n);
}

static void rms_norm_forward(struct device *device, const float *restrict x, const float *restrict weight, float eps,
                             float *restrict y, float *restrict statistics, size_t rows, size_t size) {
    (void)device;
    for (size_t i = 0; i < rows; i++, x += size, y += size) {
        float squares[SUMS] = {0};
        SUM_INTO(squares, size, j, x[j] * x[j]);
        float scale = 1 / sqrtf(sums_total(squares) / (float)size + eps);
        statistics[i] = scale;
        for (size_t j = 0; j < size; j++) y[j] = weight ? x[j] * scale * weight[j] : x[j] * scale;
    }
}

/* dx = scale (g - xhat mean(g xhat)) with g = dy weight, xhat = x scale */
static void rms_norm_backward(struct device *device, const float *restrict x, const float *restrict weight,
                              const float *restrict statistics, const float *restrict dy, float *restrict dx, bool adds,
                              float *restrict dweight, size_t rows, size_t size) {
    (void)device;
    for (size_t i = 0; i < rows; i++) {
        const float *row = x + i * size, *g = dy + i * size;
        float scale = statistics[i], products[SUMS] = {0};
        if (dweight)
            for (size_t j = 0; j < size; j++) dweight[j] = fmaf(g[j], row[j] * scale, dweight[j]);
        if (!dx) continue;
        float *to = dx + i * size;
        SUM_INTO(products, size, j, (weight ? g[j] * weight[j] : g[j]) * (row[j] * scale));
        float mean = sums_total(products) / (float)size;
        for (size_t j = 0; j < size; j++) {
            float slope = scale * ((weight ? g[j] * weight[j] : g[j]) - row[j] * scale * mean);
            to[j] = adds ? to[j] + slope : slope;
        }
    }
}

const struct norm_ops IN_SET(norm_ops) = {
    .layer_norm_forward = layer_norm_forward,
    .layer_norm_backward = layer_norm_backward,
    .rms_norm_forward = rms_norm_forward,
    .rms_norm_backward = rms_norm_backward,
};
