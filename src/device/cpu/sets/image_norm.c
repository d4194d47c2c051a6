/* Batch norm and group norm on channels-last memory. Sums are computed in one pass: relative to the first position's
 * values, in float over a few positions and in double beyond, so they are as exact as two passes. Threads split
 * channels where there are sums over positions, else positions. */
#include <math.h>
#include <string.h>

#include "device/cpu/parallel.h"
#include "device/cpu/sets/set.h"
#include "device/image.h"

#define INLINE static inline __attribute__((always_inline))
#define BLOCK 32 /* channels at a time: their sums stay in registers */
#define RUN 32   /* positions that are summed in float */

/* sums[0] += x - origin, sums[1] += (x - origin)^2 over [count] positions of [size] <= BLOCK channels */
INLINE void moments_run(const float *restrict x, const float *restrict origin, size_t count, size_t stride, size_t size,
                        double *restrict sums) {
    float first[BLOCK] = {0}, second[BLOCK] = {0};
    for (size_t i = 0; i < count; i++, x += stride)
        for (size_t c = 0; c < size; c++) {
            float d = x[c] - origin[c];
            first[c] += d;
            second[c] = fmaf(d, d, second[c]);
        }
    for (size_t c = 0; c < size; c++) {
        sums[c] += (double)first[c];
        sums[BLOCK + c] += (double)second[c];
    }
}

/* The sums of moments_run over all [count] positions, of [size] <= BLOCK channels. */
static void moments_block(const float *x, size_t count, size_t channels, size_t size, double *sums) {
    memset(sums, 0, 2 * BLOCK * sizeof *sums);
    for (size_t i = 0; i < count; i += RUN) {
        const float *run = x + i * channels;
        size_t length = count - i < RUN ? count - i : RUN;
        if (size == BLOCK)
            moments_run(run, x, length, channels, BLOCK, sums);
        else
            moments_run(run, x, length, channels, size, sums);
    }
}

struct moments {
    const float *x; /* (count, channels) */
    size_t count, channels;
    float *mean, *variance; /* (channels) */
};

/* For some blocks of channels. */
static void moments_part(void *context, size_t first, size_t last) {
    const struct moments *m = context;
    for (size_t c = first * BLOCK; c < last * BLOCK && c < m->channels; c += BLOCK) {
        size_t size = m->channels - c < BLOCK ? m->channels - c : BLOCK;
        double sums[2 * BLOCK], count = (double)m->count;
        moments_block(m->x + c, m->count, m->channels, size, sums);
        for (size_t j = 0; j < size; j++) {
            double shift = sums[j] / count, spread = sums[BLOCK + j] / count - shift * shift;
            m->mean[c + j] = (float)((double)m->x[c + j] + shift);
            m->variance[c + j] = (float)(spread > 0 ? spread : 0);
        }
    }
}

static size_t blocks_of(size_t channels) { return (channels + BLOCK - 1) / BLOCK; }

/* A batch norm's workspace. */
struct work {
    float *mean, *inverse, *scale, *shift, *from_x, *constant; /* (channels) */
    double *sums;                                              /* (2, channels) for all processes' */
    double *count;                                             /* number of positions of the statistics */
};

static struct work work_of(float *work, size_t channels) {
    double *sums = (double *)(void *)(work + 6 * channels);
    return (struct work){
        work, work + channels,    work + 2 * channels, work + 3 * channels, work + 4 * channels, work + 5 * channels,
        sums, sums + 2 * channels};
}

/* The moments over the positions of all processes: sums of x and x^2 in double. A process may have no positions. */
static void moments_of_all(const struct batch_norm *norm, const struct work *w, const float *x, size_t count,
                           float *variance) {
    size_t channels = norm->channels;
    for (size_t c = 0; c < channels; c += BLOCK) {
        size_t size = channels - c < BLOCK ? channels - c : BLOCK;
        double sums[2 * BLOCK] = {0};
        if (count) moments_block(x + c, count, channels, size, sums);
        for (size_t j = 0; j < size; j++) {
            double origin = count ? (double)x[c + j] : 0;
            w->sums[c + j] = sums[j] + (double)count * origin;
            w->sums[channels + c + j] = sums[BLOCK + j] + origin * (2 * sums[j] + (double)count * origin);
        }
    }
    *w->count = (double)count;
    norm->sync->sum(norm->sync->user, w->sums, 2 * channels + 1);
    for (size_t c = 0; c < channels; c++) {
        double mean = w->sums[c] / *w->count, spread = w->sums[channels + c] / *w->count - mean * mean;
        w->mean[c] = (float)mean;
        variance[c] = (float)(spread > 0 ? spread : 0);
    }
}

/* running = (1 - momentum) running + momentum new; a batch of one value has no unbiased variance and its biased
 * variance is used */
static void update_running(const struct batch_norm *norm, const struct work *w, const float *variance, double count,
                           float *running_mean, float *running_var) {
    double m = (double)norm->momentum, unbiased = count > 1 ? count / (count - 1) : 1;
    for (size_t c = 0; c < norm->channels; c++) {
        running_mean[c] = (float)((1 - m) * (double)running_mean[c] + m * (double)w->mean[c]);
        running_var[c] = (float)((1 - m) * (double)running_var[c] + m * unbiased * (double)variance[c]);
    }
}

INLINE void apply(const float *restrict x, float *restrict y, const float *restrict scale, const float *restrict shift,
                  size_t count, size_t channels, bool has_relu) {
    for (size_t i = 0; i < count; i++, x += channels, y += channels)
        for (size_t c = 0; c < channels; c++) {
            float v = fmaf(x[c], scale[c], shift[c]);
            y[c] = has_relu && v <= 0 ? 0 : v;
        }
}

/* Operands of the passes over positions. */
struct application {
    const struct batch_norm *norm;
    const struct work *w;
    const float *x, *dy;
    float *to;
};

static void apply_part(void *context, size_t first, size_t last) {
    const struct application *a = context;
    size_t channels = a->norm->channels, at = first * channels;
    if (a->norm->has_relu)
        apply(a->x + at, a->to + at, a->w->scale, a->w->shift, last - first, channels, true);
    else
        apply(a->x + at, a->to + at, a->w->scale, a->w->shift, last - first, channels, false);
}

void IN_SET(batch_norm_forward)(struct device *device, const struct batch_norm *norm, const float *x,
                                const float *weight, const float *bias, float *running_mean, float *running_var,
                                float *work, float *y, size_t count) {
    (void)device;
    struct work w = work_of(work, norm->channels);
    float *variance = w.constant; /* until backward */
    if (norm->uses_batch) {
        *w.count = (double)count;
        if (norm->sync)
            moments_of_all(norm, &w, x, count, variance);
        else
            parallel_for(blocks_of(norm->channels), parallel_items(BLOCK * count), moments_part,
                         &(struct moments){x, count, norm->channels, w.mean, variance});
        if (running_mean) update_running(norm, &w, variance, *w.count, running_mean, running_var);
    } else {
        memcpy(w.mean, running_mean, norm->channels * sizeof *w.mean);
        memcpy(variance, running_var, norm->channels * sizeof *variance);
    }
    for (size_t c = 0; c < norm->channels; c++) {
        w.inverse[c] = (float)(1 / sqrt((double)variance[c] + (double)norm->eps));
        w.scale[c] = weight ? weight[c] * w.inverse[c] : w.inverse[c];
        w.shift[c] = fmaf(-w.mean[c], w.scale[c], bias ? bias[c] : 0);
    }
    parallel_for(count, parallel_items(norm->channels), apply_part, &(struct application){norm, &w, x, NULL, y});
}

void IN_SET(batch_norm_recompute)(struct device *device, const struct batch_norm *norm, const float *x, float *work,
                                  float *y, size_t count) {
    (void)device;
    struct work w = work_of(work, norm->channels);
    parallel_for(count, parallel_items(norm->channels), apply_part, &(struct application){norm, &w, x, NULL, y});
}

/* sums[0] += g, sums[1] += g (x - mean); with a relu g is dy where y > 0 */
INLINE void gradients_run(const float *restrict x, const float *restrict dy, const struct work *w, size_t at,
                          size_t count, size_t stride, size_t size, bool has_relu, double *restrict sums) {
    float first[BLOCK] = {0}, second[BLOCK] = {0};
    const float *restrict mean = w->mean + at, *restrict scale = w->scale + at, *restrict shift = w->shift + at;
    for (size_t i = 0; i < count; i++, x += stride, dy += stride)
        for (size_t c = 0; c < size; c++) {
            float g = has_relu && fmaf(x[c], scale[c], shift[c]) <= 0 ? 0 : dy[c];
            first[c] += g;
            second[c] = fmaf(g, x[c] - mean[c], second[c]);
        }
    for (size_t c = 0; c < size; c++) {
        sums[c] += (double)first[c];
        sums[BLOCK + c] += (double)second[c];
    }
}

INLINE void gradients_block(const float *x, const float *dy, const struct work *w, size_t at, size_t count,
                            size_t stride, size_t size, bool has_relu, double *sums) {
    for (size_t i = 0; i < count; i += RUN)
        gradients_run(x + i * stride + at, dy + i * stride + at, w, at, count - i < RUN ? count - i : RUN, stride, size,
                      has_relu, sums);
}

/* dx = scale (g - mean(g) - (x - mean) inverse^2 mean(g (x - mean))) */
INLINE void apply_back(const float *restrict x, const float *restrict dy, const struct work *w, float *restrict dx,
                       size_t count, size_t channels, bool has_relu) {
    const float *restrict scale = w->scale, *restrict shift = w->shift, *restrict from_x = w->from_x;
    const float *restrict constant = w->constant, *restrict mean = w->mean;
    for (size_t i = 0; i < count; i++, x += channels, dy += channels, dx += channels)
        for (size_t c = 0; c < channels; c++) {
            float g = has_relu && fmaf(x[c], scale[c], shift[c]) <= 0 ? 0 : dy[c];
            dx[c] = fmaf(g, scale[c], fmaf(x[c] - mean[c], from_x[c], constant[c]));
        }
}

static void apply_back_part(void *context, size_t first, size_t last) {
    const struct application *a = context;
    size_t channels = a->norm->channels, at = first * channels;
    if (a->norm->has_relu)
        apply_back(a->x + at, a->dy + at, a->w, a->to + at, last - first, channels, true);
    else
        apply_back(a->x + at, a->dy + at, a->w, a->to + at, last - first, channels, false);
}

struct gradients {
    const struct batch_norm *norm;
    const struct work *w;
    const float *x, *dy; /* (count, channels) */
    size_t count;
};

/* The sums over positions, for some blocks of channels. */
static void gradients_part(void *context, size_t first, size_t last) {
    const struct gradients *g = context;
    size_t channels = g->norm->channels;
    for (size_t c = first * BLOCK; c < last * BLOCK && c < channels; c += BLOCK) {
        size_t size = channels - c < BLOCK ? channels - c : BLOCK;
        double sums[2 * BLOCK] = {0};
        if (size == BLOCK && g->norm->has_relu)
            gradients_block(g->x, g->dy, g->w, c, g->count, channels, BLOCK, true, sums);
        else if (size == BLOCK)
            gradients_block(g->x, g->dy, g->w, c, g->count, channels, BLOCK, false, sums);
        else
            gradients_block(g->x, g->dy, g->w, c, g->count, channels, size, g->norm->has_relu, sums);
        memcpy(g->w->sums + c, sums, size * sizeof *sums);
        memcpy(g->w->sums + channels + c, sums + BLOCK, size * sizeof *sums);
    }
}

void IN_SET(batch_norm_backward)(struct device *device, const struct batch_norm *norm, const float *x, const float *dy,
                                 float *work, float *dx, float *dweight, float *dbias, size_t count) {
    (void)device;
    size_t channels = norm->channels;
    struct work w = work_of(work, channels);
    parallel_for(blocks_of(channels), parallel_items(BLOCK * count), gradients_part,
                 &(struct gradients){norm, &w, x, dy, count});
    for (size_t c = 0; c < channels; c++) { /* of this process's rows, as all gradients */
        if (dweight) dweight[c] += (float)(w.sums[channels + c] * (double)w.inverse[c]);
        if (dbias) dbias[c] += (float)w.sums[c];
    }
    if (norm->sync) norm->sync->sum(norm->sync->user, w.sums, 2 * channels);
    if (!dx) return;
    for (size_t c = 0; c < channels; c++) {
        double inverse = (double)w.inverse[c], scale = (double)w.scale[c];
        w.from_x[c] = (float)(-scale * inverse * inverse * w.sums[channels + c] / *w.count);
        w.constant[c] = (float)(-scale * w.sums[c] / *w.count);
    }
    parallel_for(count, parallel_items(channels), apply_back_part, &(struct application){norm, &w, x, dy, dx});
}

/* Mean and variance of one group of one row. */
static void group_moments(const struct group_norm *norm, const float *x, double *mean, double *variance) {
    size_t size = norm->channels / norm->groups;
    double sum = 0, squares = 0, count = (double)(size * norm->positions), origin = (double)x[0];
    for (size_t i = 0; i < norm->positions; i++)
        for (size_t c = 0; c < size; c++) {
            double d = (double)x[i * norm->channels + c] - origin;
            sum += d;
            squares += d * d;
        }
    *mean = origin + sum / count;
    *variance = squares / count - sum / count * (sum / count);
    if (*variance < 0) *variance = 0;
}

void IN_SET(group_norm_forward)(struct device *device, const struct group_norm *norm, const float *x,
                                const float *weight, const float *bias, float *saved, float *y, size_t rows) {
    (void)device;
    size_t size = norm->channels / norm->groups, row = norm->channels * norm->positions;
    for (size_t r = 0; r < rows; r++)
        for (size_t g = 0; g < norm->groups; g++) {
            const float *from = x + r * row + g * size;
            float *to = y + r * row + g * size;
            double mean, variance;
            group_moments(norm, from, &mean, &variance);
            double inverse = 1 / sqrt(variance + (double)norm->eps);
            saved[2 * (r * norm->groups + g)] = (float)mean;
            saved[2 * (r * norm->groups + g) + 1] = (float)inverse;
            for (size_t i = 0; i < norm->positions; i++)
                for (size_t c = 0; c < size; c++) {
                    float v = (from[i * norm->channels + c] - (float)mean) * (float)inverse;
                    to[i * norm->channels + c] = weight ? fmaf(v, weight[g * size + c], bias[g * size + c]) : v;
                }
        }
}

/* v = (x - mean) inverse;  h = dy weight;  dx = inverse (h - mean(h) - v mean(h v)) */
void IN_SET(group_norm_backward)(struct device *device, const struct group_norm *norm, const float *x,
                                 const float *weight, const float *saved, const float *dy, float *dx, float *dweight,
                                 float *dbias, size_t rows) {
    (void)device;
    size_t size = norm->channels / norm->groups, row = norm->channels * norm->positions;
    for (size_t r = 0; r < rows; r++)
        for (size_t g = 0; g < norm->groups; g++) {
            size_t at = r * row + g * size;
            float mean = saved[2 * (r * norm->groups + g)], inverse = saved[2 * (r * norm->groups + g) + 1];
            double sum = 0, product = 0, count = (double)(size * norm->positions);
            for (size_t i = 0; i < norm->positions; i++)
                for (size_t c = 0; c < size; c++) {
                    size_t e = at + i * norm->channels + c;
                    float v = (x[e] - mean) * inverse, h = weight ? dy[e] * weight[g * size + c] : dy[e];
                    sum += (double)h;
                    product += (double)(h * v);
                    if (dweight) dweight[g * size + c] += dy[e] * v;
                    if (dbias) dbias[g * size + c] += dy[e];
                }
            float h_mean = (float)(sum / count), hv_mean = (float)(product / count);
            for (size_t i = 0; dx && i < norm->positions; i++)
                for (size_t c = 0; c < size; c++) {
                    size_t e = at + i * norm->channels + c;
                    float v = (x[e] - mean) * inverse, h = weight ? dy[e] * weight[g * size + c] : dy[e];
                    dx[e] = inverse * (h - h_mean - v * hv_mean);
                }
        }
}
