/* Each operator fills a struct with its arguments; the function next to it computes a range of elements. */
#include "device/cpu/elementwise.h"

#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"

/* Activations cost more per element than a pass over memory. */
#define ACTIVATION_FLOATS (PARALLEL_FLOATS / 4)

struct job {
    const struct cpu_kernels *kernels;
    const float *a, *b, *c;
    float *to;
    enum activation f;
    float slope;
};

static void add_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    j->kernels->add(j->a + first, j->b + first, j->to + first, last - first);
}

void elementwise_add(struct device *device, const float *a, const float *b, float *y, size_t count) {
    struct job job = {.kernels = cpu_kernels_of(device), .a = a, .b = b, .to = y};
    parallel_for(count, PARALLEL_FLOATS, add_part, &job);
}

static void copy_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    memcpy(j->to + first, j->a + first, (last - first) * sizeof *j->to);
}

void elementwise_copy(struct device *device, const float *x, float *y, size_t count) {
    (void)device;
    parallel_for(count, PARALLEL_FLOATS, copy_part, &(struct job){.a = x, .to = y});
}

static void multiply_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    for (size_t i = first; i < last; i++) j->to[i] = j->a[i] * j->b[i];
}

void elementwise_multiply(struct device *device, const float *a, const float *b, float *y, size_t count) {
    (void)device;
    parallel_for(count, PARALLEL_FLOATS, multiply_part, &(struct job){.a = a, .b = b, .to = y});
}

struct columns {
    const float *x;
    float *y;
    size_t x_stride, y_stride, count;
};

static void copy_columns_part(void *context, size_t first, size_t last) {
    const struct columns *c = context;
    for (size_t r = first; r < last; r++)
        memcpy(c->y + r * c->y_stride, c->x + r * c->x_stride, c->count * sizeof *c->y);
}

void elementwise_copy_columns(struct device *device, const float *x, size_t x_stride, float *y, size_t y_stride,
                              size_t rows, size_t count) {
    struct columns columns = {x, y, x_stride, y_stride, count};
    (void)device;
    parallel_for(rows, parallel_items(count), copy_columns_part, &columns);
}

static size_t elements_of_thread(enum activation f) {
    return activation_has(f, ACTIVATION_IS_CHEAP) ? PARALLEL_FLOATS : ACTIVATION_FLOATS;
}

static void activation_forward_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    j->kernels->activation_forward(j->f, j->a + first, j->to + first, last - first);
}

void elementwise_activation_forward(struct device *device, enum activation f, const float *x, float *y, size_t count) {
    struct job job = {.kernels = cpu_kernels_of(device), .a = x, .to = y, .f = f};
    parallel_for(count, elements_of_thread(f), activation_forward_part, &job);
}

static void activation_backward_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    j->kernels->activation_backward(j->f, j->a + first, j->b + first, j->c + first, j->to + first, last - first);
}

void elementwise_activation_backward(struct device *device, enum activation f, const float *x, const float *y,
                                     const float *dy, float *dx, size_t count) {
    struct job job = {.kernels = cpu_kernels_of(device), .a = x, .b = y, .c = dy, .to = dx, .f = f};
    parallel_for(count, elements_of_thread(f), activation_backward_part, &job);
}

static void leaky_relu_forward_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    j->kernels->leaky_relu_forward(j->slope, j->a + first, j->to + first, last - first);
}

void elementwise_leaky_relu_forward(struct device *device, float slope, const float *x, float *y, size_t count) {
    struct job job = {.kernels = cpu_kernels_of(device), .a = x, .to = y, .slope = slope};
    parallel_for(count, PARALLEL_FLOATS, leaky_relu_forward_part, &job);
}

static void leaky_relu_backward_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    j->kernels->leaky_relu_backward(j->slope, j->a + first, j->b + first, j->to + first, last - first);
}

void elementwise_leaky_relu_backward(struct device *device, float slope, const float *x, const float *dy, float *dx,
                                     size_t count) {
    struct job job = {.kernels = cpu_kernels_of(device), .a = x, .b = dy, .to = dx, .slope = slope};
    parallel_for(count, PARALLEL_FLOATS, leaky_relu_backward_part, &job);
}

/* ---- prelu: rows of channels, each with its slope ---- */

struct slopes {
    const float *x, *a, *dy; /* dy NULL: forward */
    float *to, *sums;        /* sums: (channels) of the slopes' gradients */
    size_t channels, count;
};

static void prelu_part(void *context, size_t first, size_t last) {
    const struct slopes *s = context;
    for (size_t r = first; r < last; r++)
        for (size_t j = 0, i = r * s->channels; j < s->channels; j++, i++) {
            float v = s->dy ? s->dy[i] : s->x[i];
            s->to[i] = s->x[i] > 0 ? v : s->a[j] * v;
        }
}

void elementwise_prelu_forward(struct device *device, const float *x, const float *slopes, size_t channels, float *y,
                               size_t count) {
    (void)device;
    parallel_for(count / channels, parallel_items(channels), prelu_part,
                 &(struct slopes){.x = x, .a = slopes, .to = y, .channels = channels});
}

/* The sums of some channels over all rows, in double. */
static void prelu_sums_part(void *context, size_t first, size_t last) {
    const struct slopes *s = context;
    for (size_t j = first; j < last; j++) {
        double sum = 0;
        for (size_t i = j; i < s->count; i += s->channels)
            if (!(s->x[i] > 0)) sum += (double)(s->x[i] * s->dy[i]);
        s->sums[j] += (float)sum;
    }
}

void elementwise_prelu_backward(struct device *device, const float *x, const float *slopes, size_t channels,
                                const float *dy, float *dx, float *dslopes, size_t count) {
    struct slopes s = {x, slopes, dy, dx, dslopes, channels, count};
    (void)device;
    parallel_for(channels, parallel_items(count / channels), prelu_sums_part, &s);
    if (dx) parallel_for(count / channels, parallel_items(channels), prelu_part, &s);
}

/* ---- scale: rows of channels, each with its factor ---- */

static void scale_part(void *context, size_t first, size_t last) {
    const struct slopes *s = context;
    for (size_t r = first; r < last; r++) {
        const float *restrict from = s->x + r * s->channels, *restrict a = s->a;
        float *restrict to = s->to + r * s->channels;
        for (size_t j = 0; j < s->channels; j++) to[j] = from[j] * a[j];
    }
}

void elementwise_scale_forward(struct device *device, const float *x, const float *scales, size_t channels, float *y,
                               size_t count) {
    (void)device;
    parallel_for(count / channels, parallel_items(channels), scale_part,
                 &(struct slopes){.x = x, .a = scales, .to = y, .channels = channels});
}

#define SCALE_BLOCK 64 /* channels whose sums are added together */

/* The sums of some blocks of channels over all rows, in double. */
static void scale_sums_part(void *context, size_t first, size_t last) {
    const struct slopes *s = context;
    for (size_t block = first * SCALE_BLOCK; block < last * SCALE_BLOCK && block < s->channels; block += SCALE_BLOCK) {
        size_t size = s->channels - block < SCALE_BLOCK ? s->channels - block : SCALE_BLOCK;
        double sums[SCALE_BLOCK] = {0};
        for (size_t i = block; i < s->count; i += s->channels)
            for (size_t j = 0; j < size; j++) sums[j] += (double)(s->x[i + j] * s->dy[i + j]);
        for (size_t j = 0; j < size; j++) s->sums[block + j] += (float)sums[j];
    }
}

void elementwise_scale_backward(struct device *device, const float *x, const float *scales, size_t channels,
                                const float *dy, float *dx, float *dscales, size_t count) {
    struct slopes s = {.x = x, .dy = dy, .sums = dscales, .channels = channels, .count = count};
    parallel_for((channels + SCALE_BLOCK - 1) / SCALE_BLOCK, parallel_items(count / channels * SCALE_BLOCK),
                 scale_sums_part, &s);
    if (dx) elementwise_scale_forward(device, dy, scales, channels, dx, count);
}

/* ---- optimizers ---- */

/* A run of an update, or an average or a clamp of [values]. */
struct change {
    update_kernel *kernel;
    const struct optimizer_kernels *kernels;
    const union optimizer_constants *constants;
    float factor; /* clip, or the weight of an average, or the limit of a clamp */
    float *values, *gradients, *states[OPTIMIZER_STATES];
    const float *from; /* of an average */
};

#define LINE 16   /* floats of a line of the cache */
#define CHUNK 512 /* of each array of an update: with the next ones a part of a first-level cache */

/* The address of element [first] of [p]; NULL for NULL. */
static float *offset(float *p, size_t first) { return p ? p + first : NULL; }

static void prefetch(const float *p, size_t count) {
    for (size_t i = 0; p && i < count; i += LINE) __builtin_prefetch(p + i, 1);
}

/* A chunk at a time: gradients are zeroed while they are in the cache, and the next values and states are fetched. */
static void update_part(void *context, size_t first, size_t last) {
    const struct change *c = context;
    for (size_t end; first < last; first = end) {
        float *states[OPTIMIZER_STATES];
        end = last - first < CHUNK ? last : first + CHUNK;
        size_t next = last - end < CHUNK ? last - end : CHUNK;
        prefetch(c->values + end, next);
        for (int i = 0; i < OPTIMIZER_STATES; i++) {
            states[i] = offset(c->states[i], first);
            prefetch(offset(c->states[i], end), next);
        }
        c->kernel(c->constants, c->factor, c->values + first, c->gradients + first, states, end - first);
    }
}

static void zero_part(void *context, size_t first, size_t last) {
    const struct change *c = context;
    memset(c->gradients + first, 0, (last - first) * sizeof *c->gradients);
}

static void update(struct device *device, const struct optimizer_update *u) {
    update_kernel *kernel = cpu_kernels_of(device)->optimizers->update[u->rule];
    for (const struct optimizer_run *run = u->runs; run < u->runs + u->run_count; run++) {
        size_t count = run->end - run->begin;
        struct change c = {.kernel = kernel, .factor = *u->clip, .gradients = u->gradients + run->begin};
        bool is_skipped = run->constants == OPTIMIZER_SKIP || isnan(*u->clip);
        if (!is_skipped) {
            c.constants = &u->constants[run->constants];
            c.values = u->values + run->begin;
            for (int i = 0; i < OPTIMIZER_STATES; i++) c.states[i] = offset(u->states[i], run->at);
        }
        parallel_for(count, PARALLEL_FLOATS, is_skipped ? zero_part : update_part, &c);
    }
}

static void average_part(void *context, size_t first, size_t last) {
    const struct change *c = context;
    c->kernels->average(c->factor, c->from + first, c->values + first, last - first);
}

static void average(struct device *device, float weight, const float *clip, const float *values, float *mean,
                    size_t count) {
    struct change c = {.kernels = cpu_kernels_of(device)->optimizers, .factor = weight, .values = mean, .from = values};
    if (!isnan(*clip)) parallel_for(count, PARALLEL_FLOATS, average_part, &c);
}

static void save_or_restore(struct device *device, const float *clip, float *values, float *saved, size_t count) {
    if (isnan(*clip))
        elementwise_copy(device, saved, values, count);
    else
        elementwise_copy(device, values, saved, count);
}

static void clamp_part(void *context, size_t first, size_t last) {
    const struct change *c = context;
    c->kernels->clamp(c->factor, c->values + first, last - first);
}

static void clamp(struct device *device, float limit, float *x, size_t count) {
    struct change c = {.kernels = cpu_kernels_of(device)->optimizers, .factor = limit, .values = x};
    parallel_for(count, PARALLEL_FLOATS, clamp_part, &c);
}

const struct optimizer_ops elementwise_optimizer_ops = {
    .update = update, .average = average, .save_or_restore = save_or_restore, .clamp = clamp};
