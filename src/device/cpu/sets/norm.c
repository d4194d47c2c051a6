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
                               const struct tensor *y, float *statistics, size_t rows, size_t size) {
    (void)device;
    struct layer_norm n = {x, weight, bias, eps, floats(y), statistics, size};
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

/* For the columns [first, last), one row after the other. [dweight], [dbias]: of the columns. */
static void add_parameters(const void *norm, size_t row, size_t first, size_t last, float *restrict dweight,
                           float *restrict dbias) {
    const struct layer_norm_gradients *n = norm;
    const float *restrict x = n->x + row * n->size + first, *restrict g = n->dy + row * n->size + first;
    float mean = n->statistics[2 * row], scale = n->statistics[2 * row + 1];
    if (dweight)
        for (size_t j = 0; j < last - first; j++) dweight[j] = fmaf(g[j], (x[j] - mean) * scale, dweight[j]);
    if (dbias)
        for (size_t j = 0; j < last - first; j++) dbias[j] += g[j];
}

static void set_input(const void *norm, size_t i) {
    const struct layer_norm_gradients *n = norm;
    layer_norm_input(n->x + i * n->size, n->weight, n->statistics[2 * i], n->statistics[2 * i + 1], n->dy + i * n->size,
                     n->dx + i * n->size, n->adds, n->size);
}

#define RUN 256      /* rows of a long sum that have a sum of their own */
#define COLUMNS 2048 /* whose sums of a run stay in the cache */

static float *at_column(float *gradient, size_t column) { return gradient ? gradient + column : NULL; }

static void add_to(float *restrict to, const float *restrict sums, size_t count) {
    for (size_t j = 0; to && j < count; j++) to[j] += sums[j];
}

typedef void add_row_parameters(const void *norm, size_t row, size_t first, size_t last, float *dweight, float *dbias);
typedef void set_row_input(const void *norm, size_t row);

/* The same for the run of rows [begin, end) of a long sum: [add] adds a row to its sums. [set], unless NULL, is called
 * for each row with its last columns, while they are in the cache. */
static void add_run(add_row_parameters *add, set_row_input *set, const void *norm, size_t begin, size_t end,
                    size_t first, size_t last, float *dweight, float *dbias) {
    for (size_t j = first, until; j < last; j = until) {
        float weight[COLUMNS] = {0}, bias[COLUMNS] = {0};
        until = last - j < COLUMNS ? last : j + COLUMNS;
        for (size_t i = begin; i < end; i++) {
            add(norm, i, j, until, dweight ? weight : NULL, dbias ? bias : NULL);
            if (set && until == last) set(norm, i);
        }
        add_to(at_column(dweight, j), weight, until - j);
        add_to(at_column(dbias, j), bias, until - j);
    }
}

static size_t end_of_run(size_t begin, size_t rows) { return rows - begin < RUN ? rows : begin + RUN; }

/* All rows, for the columns [first, last); with [sets_input] also dx, if these are all columns. */
static void add_all_rows(const struct layer_norm_gradients *n, size_t first, size_t last, bool sets_input) {
    float *dweight = at_column(n->dweight, first), *dbias = at_column(n->dbias, first);
    for (size_t i = 0; i < n->rows && n->rows <= LONG_SUM; i++) {
        add_parameters(n, i, first, last, dweight, dbias);
        if (sets_input) set_input(n, i);
    }
    for (size_t i = 0; i < n->rows && n->rows > LONG_SUM; i += RUN)
        add_run(add_parameters, sets_input ? set_input : NULL, n, i, end_of_run(i, n->rows), first, last, n->dweight,
                n->dbias);
}

static void parameter_columns(void *context, size_t first, size_t last) {
    const struct layer_norm_gradients *n = context;
    size_t until = last * SUMS < n->size ? last * SUMS : n->size;
    add_all_rows(n, first * SUMS, until, false);
}

static void input_rows(void *context, size_t first, size_t last) {
    for (size_t i = first; i < last; i++) set_input(context, i);
}

/* One thread makes one pass over memory; several split the columns of one sum, then the rows of the other result. */
static void layer_norm_backward(struct device *device, const float *x, const float *weight, const float *statistics,
                                const struct tensor *dy, const struct tensor *tdx, bool adds, float *dweight,
                                float *dbias, size_t rows, size_t size) {
    float *dx = floats(tdx);
    (void)device;
    struct layer_norm_gradients n = {x, weight, statistics, floats(dy), dx, adds, dweight, dbias, rows, size};
    if (rows * size < 4 * PARALLEL_FLOATS || parallel_threads() == 1) {
        add_all_rows(&n, 0, size, dx != NULL);
        return;
    }
    if (dweight || dbias) parallel_for((size + SUMS - 1) / SUMS, 1, parameter_columns, &n);
    if (dx) parallel_for(rows, parallel_items(2 * size), input_rows, &n);
}

static void rms_norm_forward(struct device *device, const float *restrict x, const float *restrict weight, float eps,
                             const struct tensor *ty, float *restrict statistics, size_t rows, size_t size) {
    float *restrict y = floats(ty);
    (void)device;
    for (size_t i = 0; i < rows; i++, x += size, y += size) {
        float squares[SUMS] = {0};
        SUM_INTO(squares, size, j, x[j] * x[j]);
        float scale = 1 / sqrtf(sums_total(squares) / (float)size + eps);
        statistics[i] = scale;
        for (size_t j = 0; j < size; j++) y[j] = weight ? x[j] * scale * weight[j] : x[j] * scale;
    }
}

struct rms_norm_gradients {
    const float *x, *weight, *statistics, *dy;
    float *dx;
    bool adds;
    size_t size;
};

static void add_rms_parameters(const void *norm, size_t row, size_t first, size_t last, float *restrict dweight,
                               float *restrict dbias) {
    const struct rms_norm_gradients *n = norm;
    const float *restrict x = n->x + row * n->size + first, *restrict g = n->dy + row * n->size + first;
    float scale = n->statistics[row];
    (void)dbias;
    for (size_t j = 0; j < last - first; j++) dweight[j] = fmaf(g[j], x[j] * scale, dweight[j]);
}

/* dx = scale (g - xhat mean(g xhat)) with g = dy weight, xhat = x scale */
static void rms_norm_input(const float *restrict x, const float *restrict weight, float scale, const float *restrict g,
                           float *restrict dx, bool adds, size_t size) {
    float products[SUMS] = {0};
    SUM_INTO(products, size, j, (weight ? g[j] * weight[j] : g[j]) * (x[j] * scale));
    float mean = sums_total(products) / (float)size;
    for (size_t j = 0; j < size; j++) {
        float slope = scale * ((weight ? g[j] * weight[j] : g[j]) - x[j] * scale * mean);
        dx[j] = adds ? dx[j] + slope : slope;
    }
}

static void set_rms_input(const void *norm, size_t i) {
    const struct rms_norm_gradients *n = norm;
    rms_norm_input(n->x + i * n->size, n->weight, n->statistics[i], n->dy + i * n->size, n->dx + i * n->size, n->adds,
                   n->size);
}

static void rms_norm_backward(struct device *device, const float *restrict x, const float *restrict weight,
                              const float *restrict statistics, const struct tensor *dy, const struct tensor *tdx,
                              bool adds, float *restrict dweight, size_t rows, size_t size) {
    float *restrict dx = floats(tdx);
    struct rms_norm_gradients n = {x, weight, statistics, floats(dy), dx, adds, size};
    bool is_long = dweight && rows > LONG_SUM;
    (void)device;
    for (size_t i = 0; i < rows && !is_long; i++) {
        if (dweight) add_rms_parameters(&n, i, 0, size, dweight, NULL);
        if (dx) set_rms_input(&n, i);
    }
    for (size_t i = 0; i < rows && is_long; i += RUN)
        add_run(add_rms_parameters, dx ? set_rms_input : NULL, &n, i, end_of_run(i, rows), 0, size, dweight, NULL);
}

const struct norm_ops IN_SET(norm_layers) = {
    .layer_norm_forward = layer_norm_forward,
    .layer_norm_backward = layer_norm_backward,
    .rms_norm_forward = rms_norm_forward,
    .rms_norm_backward = rms_norm_backward,
};
