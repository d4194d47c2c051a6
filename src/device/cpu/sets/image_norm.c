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
#define LINE 16  /* floats of a line of the cache */

/* Calls function(..., channel, size) for the channels from [first] to [last], [size] of them at a time: a constant, so
 * that their sums stay in registers, but for the last few. */
#define FOR_CHANNELS(first, last, function, ...)                                                                       \
    do {                                                                                                               \
        size_t c_ = first;                                                                                             \
        for (; last - c_ >= BLOCK; c_ += BLOCK) function(__VA_ARGS__, c_, BLOCK);                                      \
        if (last - c_ >= 16) function(__VA_ARGS__, c_, 16), c_ += 16;                                                  \
        if (last - c_ >= 8) function(__VA_ARGS__, c_, 8), c_ += 8;                                                     \
        if (last - c_ >= 4) function(__VA_ARGS__, c_, 4), c_ += 4;                                                     \
        if (last > c_) function(__VA_ARGS__, c_, last - c_);                                                           \
    } while (0)

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

/* What sums over positions are made of. */
struct positions {
    const struct batch_norm *norm;
    const struct work *w;
    const float *x, *dy; /* (count, channels) */
    size_t count;
};

static void clear_sums(const struct positions *p, size_t first, size_t last) {
    memset(p->w->sums + first, 0, (last - first) * sizeof *p->w->sums);
    memset(p->w->sums + p->norm->channels + first, 0, (last - first) * sizeof *p->w->sums);
}

static void add_sums(const struct positions *p, size_t channel, size_t size, const float *first, const float *second) {
    double *sums = p->w->sums + channel;
    for (size_t c = 0; c < size; c++) {
        sums[c] += (double)first[c];
        sums[p->norm->channels + c] += (double)second[c];
    }
}

static size_t run_at(const struct positions *p, size_t position) {
    return p->count - position < RUN ? p->count - position : RUN;
}

/* Prefetches the [size] channels at [x] of the position a run later: positions are far apart, which the processor does
 * not expect. Rests of channels are in the lines of others. */
INLINE void prefetch_run(const float *x, size_t channels, size_t size) {
    for (size_t c = 0; size >= LINE && c < size; c += LINE) __builtin_prefetch(x + RUN * channels + c);
}

/* sums[0] += x - origin, sums[1] += (x - origin)^2 over a run of positions, of [size] <= BLOCK channels; origin: the
 * first position's values */
INLINE void moments_run(const struct positions *p, size_t position, size_t channel, size_t size) {
    float first[BLOCK] = {0}, second[BLOCK] = {0};
    size_t channels = p->norm->channels, count = run_at(p, position);
    const float *restrict x = p->x + position * channels + channel, *restrict origin = p->x + channel;
    for (size_t i = 0; i < count; i++, x += channels) {
        prefetch_run(x, channels, size);
        for (size_t c = 0; c < size; c++) {
            float d = x[c] - origin[c];
            first[c] += d;
            second[c] = fmaf(d, d, second[c]);
        }
    }
    add_sums(p, channel, size, first, second);
}

/* Writes the sums of moments_run over all positions to w->sums, for some blocks of channels: position after position,
 * as they are in memory. */
static void moments_part(void *context, size_t first, size_t last) {
    const struct positions *p = context;
    size_t begin = first * BLOCK, end = last * BLOCK < p->norm->channels ? last * BLOCK : p->norm->channels;
    clear_sums(p, begin, end);
    for (size_t i = 0; i < p->count; i += RUN) FOR_CHANNELS(begin, end, moments_run, p, i);
}

static size_t blocks_of(size_t channels) { return (channels + BLOCK - 1) / BLOCK; }

static void sum_positions(void (*part)(void *, size_t, size_t), struct positions *p) {
    parallel_for(blocks_of(p->norm->channels), parallel_items(BLOCK * p->count), part, p);
}

/* Mean and variance over this process's positions. */
static void own_moments(const struct batch_norm *norm, const struct work *w, const float *x, size_t count,
                        float *variance) {
    size_t channels = norm->channels;
    sum_positions(moments_part, &(struct positions){norm, w, x, NULL, count});
    for (size_t c = 0; c < channels; c++) {
        double shift = w->sums[c] / (double)count;
        double spread = w->sums[channels + c] / (double)count - shift * shift;
        w->mean[c] = (float)((double)x[c] + shift);
        variance[c] = (float)(spread > 0 ? spread : 0);
    }
}

/* The moments over the positions of all processes: sums of x and x^2 in double. A process may have no positions. */
static void moments_of_all(const struct batch_norm *norm, const struct work *w, const float *x, size_t count,
                           float *variance) {
    size_t channels = norm->channels;
    sum_positions(moments_part, &(struct positions){norm, w, x, NULL, count});
    for (size_t c = 0; c < channels; c++) {
        double origin = count ? (double)x[c] : 0, sum = w->sums[c];
        w->sums[c] = sum + (double)count * origin;
        w->sums[channels + c] += origin * (2 * sum + (double)count * origin);
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
            own_moments(norm, &w, x, count, variance);
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

/* sums[0] += g, sums[1] += g (x - mean) over a run of positions; with a relu g is dy where y > 0 */
INLINE void gradients_run(const struct positions *p, size_t position, bool has_relu, size_t channel, size_t size) {
    float first[BLOCK] = {0}, second[BLOCK] = {0};
    size_t channels = p->norm->channels, at = position * channels + channel, count = run_at(p, position);
    const float *restrict x = p->x + at, *restrict dy = p->dy + at, *restrict mean = p->w->mean + channel;
    const float *restrict scale = p->w->scale + channel, *restrict shift = p->w->shift + channel;
    for (size_t i = 0; i < count; i++, x += channels, dy += channels) {
        prefetch_run(x, channels, size);
        prefetch_run(dy, channels, size);
        for (size_t c = 0; c < size; c++) {
            float g = has_relu && fmaf(x[c], scale[c], shift[c]) <= 0 ? 0 : dy[c];
            first[c] += g;
            second[c] = fmaf(g, x[c] - mean[c], second[c]);
        }
    }
    add_sums(p, channel, size, first, second);
}

/* As moments_part. */
static void gradients_part(void *context, size_t first, size_t last) {
    const struct positions *p = context;
    size_t begin = first * BLOCK, end = last * BLOCK < p->norm->channels ? last * BLOCK : p->norm->channels;
    clear_sums(p, begin, end);
    for (size_t i = 0; i < p->count; i += RUN)
        if (p->norm->has_relu)
            FOR_CHANNELS(begin, end, gradients_run, p, i, true);
        else
            FOR_CHANNELS(begin, end, gradients_run, p, i, false);
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

void IN_SET(batch_norm_backward)(struct device *device, const struct batch_norm *norm, const float *x, const float *dy,
                                 float *work, float *dx, float *dweight, float *dbias, size_t count) {
    (void)device;
    size_t channels = norm->channels;
    struct work w = work_of(work, channels);
    sum_positions(gradients_part, &(struct positions){norm, &w, x, dy, count});
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

/* dweight += sums of dy v, dbias += sums of dy over the positions of all rows, of [size] <= BLOCK channels of a group
 */
static void add_group_sums(const struct group_norm *norm, const float *x, const float *saved, const float *dy,
                           size_t rows, size_t channel, size_t size, float *dweight, float *dbias) {
    double weights[BLOCK] = {0}, biases[BLOCK] = {0};
    size_t channels = norm->channels, group = channel / (channels / norm->groups);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0, end; i < norm->positions; i = end) {
            const float *statistics = saved + 2 * (r * norm->groups + group);
            float mean = statistics[0], inverse = statistics[1], first[BLOCK] = {0}, second[BLOCK] = {0};
            end = norm->positions - i < RUN ? norm->positions : i + RUN;
            for (size_t e = (r * norm->positions + i) * channels + channel; i < end; i++, e += channels)
                for (size_t c = 0; c < size; c++) {
                    first[c] += dy[e + c] * ((x[e + c] - mean) * inverse);
                    second[c] += dy[e + c];
                }
            for (size_t c = 0; c < size; c++) weights[c] += (double)first[c], biases[c] += (double)second[c];
        }
    for (size_t c = 0; c < size; c++) {
        if (dweight) dweight[channel + c] += (float)weights[c];
        if (dbias) dbias[channel + c] += (float)biases[c];
    }
}

/* v = (x - mean) inverse;  h = dy weight;  dx = inverse (h - mean(h) - v mean(h v)) */
void IN_SET(group_norm_backward)(struct device *device, const struct group_norm *norm, const float *x,
                                 const float *weight, const float *saved, const float *dy, float *dx, float *dweight,
                                 float *dbias, size_t rows) {
    (void)device;
    size_t size = norm->channels / norm->groups, row = norm->channels * norm->positions;
    if (rows * norm->positions > LONG_SUM && (dweight || dbias)) {
        for (size_t c = 0; c < norm->channels; c += size)
            for (size_t j = 0; j < size; j += BLOCK)
                add_group_sums(norm, x, saved, dy, rows, c + j, size - j < BLOCK ? size - j : BLOCK, dweight, dbias);
        dweight = dbias = NULL;
    }
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
