/* Operators whose elements are independent, and sums over a whole buffer, as plain loops that the compiler vectorises.
 * Formulas write each fused multiply-add of PyTorch's kernels as fmaf. An operator fills a struct with its arguments;
 * the function before it computes a range of elements for a thread. */
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "device/cpu/parallel.h"
#include "device/cpu/sets/random.h"
#include "device/cpu/sets/set.h"

struct job {
    const float *a, *b, *c;
    float *to;
    enum activation f;
    struct keyed_activation keyed;
};

/* y may be a or b. */
static void add_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    const float *a = j->a, *b = j->b;
    float *y = j->to;
#pragma omp simd
    for (size_t i = first; i < last; i++) y[i] = a[i] + b[i];
}

static void add(struct device *device, const struct tensor *a, const struct tensor *b, const struct tensor *y,
                size_t count) {
    (void)device;
    struct job job = {.a = floats(a), .b = floats(b), .to = floats(y)};
    parallel_for(count, PARALLEL_FLOATS, add_part, &job);
}

static void copy_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    memcpy(j->to + first, j->a + first, (last - first) * sizeof *j->to);
}

static void copy(struct device *device, const struct tensor *x, const struct tensor *y, size_t count) {
    (void)device;
    parallel_for(count, PARALLEL_FLOATS, copy_part, &(struct job){.a = floats(x), .to = floats(y)});
}

static void multiply_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    const float *a = j->a, *b = j->b;
    float *y = j->to;
#pragma omp simd
    for (size_t i = first; i < last; i++) y[i] = a[i] * b[i];
}

static void multiply(struct device *device, const float *a, const float *b, float *y, size_t count) {
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

static void copy_columns(struct device *device, const float *x, size_t x_stride, float *y, size_t y_stride, size_t rows,
                         size_t count) {
    struct columns columns = {x, y, x_stride, y_stride, count};
    (void)device;
    parallel_for(rows, parallel_items(count), copy_columns_part, &columns);
}

/* ---- activations: one loop for each row of the table ---- */

void IN_SET(activate)(enum activation f, const float *restrict x, float *restrict y, size_t count) {
    switch (f) {
#define X(id, name, module, properties, doc)                                                                           \
    case id:                                                                                                           \
        for (size_t i = 0; i < count; i++) y[i] = name##_value(x[i]);                                                  \
        break;
        ACTIVATIONS(X)
#undef X
    }
}

void IN_SET(activate_backward)(enum activation f, const float *restrict x, const float *restrict y,
                               const float *restrict dy, float *restrict dx, size_t count) {
    switch (f) {
#define X(id, name, module, properties, doc)                                                                           \
    case id:                                                                                                           \
        for (size_t i = 0; i < count; i++) dx[i] = name##_gradient(x[i], y[i], dy[i]);                                 \
        break;
        ACTIVATIONS(X)
#undef X
    }
}

/* Activations cost more per element than a pass over memory. */
#define ACTIVATION_FLOATS (PARALLEL_FLOATS / 4)

static size_t elements_of_thread(int properties) {
    return properties & ACTIVATION_IS_CHEAP ? PARALLEL_FLOATS : ACTIVATION_FLOATS;
}

static void activation_forward_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    IN_SET(activate)(j->f, j->a + first, j->to + first, last - first);
}

static void activation_forward(struct device *device, enum activation f, const struct tensor *x, const struct tensor *y,
                               size_t count) {
    (void)device;
    struct job job = {.a = floats(x), .to = floats(y), .f = f};
    parallel_for(count, elements_of_thread(activation_properties(f)), activation_forward_part, &job);
}

static void activation_backward_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    IN_SET(activate_backward)(j->f, j->a + first, j->b + first, j->c + first, j->to + first, last - first);
}

static void activation_backward(struct device *device, enum activation f, const struct tensor *x,
                                const struct tensor *y, const struct tensor *dy, const struct tensor *dx,
                                size_t count) {
    (void)device;
    struct job job = {.a = floats(x), .b = floats(y), .c = floats(dy), .to = floats(dx), .f = f};
    parallel_for(count, elements_of_thread(activation_properties(f)), activation_backward_part, &job);
}

static void keyed_forward_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    const float *restrict x = j->a, a = j->keyed.a, b = j->keyed.b;
    float *restrict y = j->to;
    switch (j->keyed.f) {
#define X(id, name, properties)                                                                                        \
    case id:                                                                                                           \
        for (size_t i = first; i < last; i++) y[i] = name##_value(a, b, x[i]);                                         \
        break;
        KEYED_ACTIVATIONS(X)
#undef X
    }
}

static void keyed_backward_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    const float *restrict x = j->a, *restrict dy = j->b, a = j->keyed.a, b = j->keyed.b;
    float *restrict dx = j->to;
    switch (j->keyed.f) {
#define X(id, name, properties)                                                                                        \
    case id:                                                                                                           \
        for (size_t i = first; i < last; i++) dx[i] = name##_gradient(a, b, x[i], dy[i]);                              \
        break;
        KEYED_ACTIVATIONS(X)
#undef X
    }
}

static void keyed_forward(struct device *device, const struct keyed_activation *f, const struct tensor *x,
                          const struct tensor *y, size_t count) {
    (void)device;
    struct job job = {.a = floats(x), .to = floats(y), .keyed = *f};
    parallel_for(count, elements_of_thread(keyed_properties(f->f)), keyed_forward_part, &job);
}

static void keyed_backward(struct device *device, const struct keyed_activation *f, const struct tensor *x,
                           const struct tensor *dy, const struct tensor *dx, size_t count) {
    (void)device;
    struct job job = {.a = floats(x), .b = floats(dy), .to = floats(dx), .keyed = *f};
    parallel_for(count, elements_of_thread(keyed_properties(f->f)), keyed_backward_part, &job);
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

static void prelu_forward(struct device *device, const float *x, const float *slopes, size_t channels, float *y,
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

static void prelu_backward(struct device *device, const float *x, const float *slopes, size_t channels, const float *dy,
                           float *dx, float *dslopes, size_t count) {
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

static void scale_forward(struct device *device, const float *x, const float *scales, size_t channels, float *y,
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

static void scale_backward(struct device *device, const float *x, const float *scales, size_t channels, const float *dy,
                           float *dx, float *dscales, size_t count) {
    struct slopes s = {.x = x, .dy = dy, .sums = dscales, .channels = channels, .count = count};
    parallel_for((channels + SCALE_BLOCK - 1) / SCALE_BLOCK, parallel_items(count / channels * SCALE_BLOCK),
                 scale_sums_part, &s);
    if (dx) scale_forward(device, dy, scales, channels, dx, count);
}

/* ---- dropout ---- */

struct drop_job {
    const struct draw_key *key;
    float p;
    const float *x;
    float *y;
    uint16_t *kept; /* (rows, whole groups): bits of the elements */
    size_t size;
};

#define GROUP 16 /* elements whose bits are one number */

/* Bit i: whether words[i] is not below the threshold. */
static inline uint16_t bits_of(const uint32_t *words, uint32_t threshold) {
#if LANES == 16
    return _mm512_cmpge_epu32_mask(_mm512_loadu_si512(words), _mm512_set1_epi32((int)threshold));
#else
    unsigned bits = 0;
#if LANES == 8
    for (size_t i = 0; i < GROUP; i += LANES) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(words + i)), t = _mm256_set1_epi32((int)threshold);
        __m256i is_kept = _mm256_cmpeq_epi32(_mm256_max_epu32(x, t), x);
        bits |= (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(is_kept)) << i;
    }
#else
    for (size_t i = 0; i < GROUP; i++) bits |= (unsigned)(words[i] >= threshold) << i;
#endif
    return (uint16_t)bits;
#endif
}

/* y = x scale where a bit is set, else 0, of [count] elements, at most a group */
static inline void keep(unsigned bits, float scale, const float *x, float *y, size_t count) {
#if LANES == 16
    __mmask16 exist = (__mmask16)((1u << count) - 1);
    __m512 kept = _mm512_maskz_loadu_ps(exist & (__mmask16)bits, x);
    _mm512_mask_storeu_ps(y, exist, _mm512_maskz_mul_ps((__mmask16)bits, kept, _mm512_set1_ps(scale)));
#else
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        float kept = x[i] * scale;
        y[i] = bits >> i & 1 ? kept : 0;
    }
#endif
}

/* [draws] and [saves] are constants. Without draws the bits are read. */
static inline __attribute__((always_inline)) void drop_rows(const struct drop_job *d, size_t first, size_t last,
                                                            bool draws, bool saves) {
    float scale = d->p < 1 ? 1 / (1 - d->p) : 0;
    uint32_t threshold = dropout_threshold(d->p), words[WORDS];
    for (size_t i = first; i < last; i++) {
        struct row_words row = {0};
        const float *x = d->x + i * d->size;
        float *y = d->y + i * d->size;
        uint16_t *kept = saves || !draws ? d->kept + i * DROPOUT_BITS(d->size) : NULL;
        if (draws) row = row_words_of(d->key, i);
        for (size_t j = 0; j < d->size; j += GROUP) {
            if (draws && j % WORDS == 0) draw_words(&row, j / 4, words);
            unsigned bits = draws ? bits_of(words + j % WORDS, threshold) : kept[j / GROUP];
            if (d->p >= 1) bits = 0;
            if (saves) kept[j / GROUP] = (uint16_t)bits;
            keep(bits, scale, x + j, y + j, d->size - j < GROUP ? d->size - j : GROUP);
        }
    }
}

static void drop_part(void *context, size_t first, size_t last) { drop_rows(context, first, last, true, false); }
static void drop_saving_part(void *context, size_t first, size_t last) { drop_rows(context, first, last, true, true); }
static void drop_saved_part(void *context, size_t first, size_t last) { drop_rows(context, first, last, false, false); }

static void dropout(struct device *device, const struct draw_key *key, float p, const struct tensor *x,
                    const struct tensor *y, size_t rows, size_t size) {
    (void)device;
    parallel_for(rows, parallel_items(size), drop_part, &(struct drop_job){key, p, floats(x), floats(y), NULL, size});
}

static void dropout_saving(struct device *device, const struct draw_key *key, float p, const struct tensor *x,
                           const struct tensor *y, uint16_t *kept, size_t rows, size_t size) {
    (void)device;
    parallel_for(rows, parallel_items(size), drop_saving_part,
                 &(struct drop_job){key, p, floats(x), floats(y), kept, size});
}

static void dropout_saved(struct device *device, float p, uint16_t *kept, const struct tensor *dy,
                          const struct tensor *dx, size_t rows, size_t size) {
    (void)device;
    parallel_for(rows, parallel_items(size), drop_saved_part,
                 &(struct drop_job){NULL, p, floats(dy), floats(dx), kept, size});
}

#define DRAWN 64 /* channels at a time; a multiple of WORDS */

/* Channels [first, first + count) of all positions of a row. */
static void drop_channels(const float *restrict x, float *restrict y, size_t size, size_t channels,
                          const float *restrict scales, size_t count) {
    for (size_t at = 0; at < size; at += channels)
        for (size_t c = 0; c < count; c++) y[at + c] = scales[c] > 0 ? x[at + c] * scales[c] : 0;
}

static void drop_row(const float *restrict x, float *restrict y, size_t size, float scale) {
    for (size_t j = 0; j < size; j++) y[j] = scale > 0 ? x[j] * scale : 0;
}

static void dropout_channels(struct device *device, const struct draw_key *key, float p, const struct tensor *tx,
                             const struct tensor *ty, size_t rows, size_t size, size_t channels) {
    const float *restrict x = floats(tx);
    float *restrict y = floats(ty);
    (void)device;
    float scale = 1 / (1 - p), scales[DRAWN];
    uint32_t threshold = dropout_threshold(p), words[WORDS];
    for (size_t i = 0; i < rows; i++, x += size, y += size) {
        struct row_words row = row_words_of(key, i);
        for (size_t first = 0; first < channels; first += DRAWN) {
            size_t count = channels - first < DRAWN ? channels - first : DRAWN;
            for (size_t c = 0; c < count; c += WORDS) {
                draw_words(&row, (first + c) / 4, words);
                for (size_t l = 0; l < WORDS; l++) scales[c + l] = words[l] >= threshold && p < 1 ? scale : 0;
            }
            if (channels == 1)
                drop_row(x, y, size, scales[0]);
            else
                drop_channels(x + first, y + first, size, channels, scales, count);
        }
    }
}

/* ---- rrelu ---- */

struct slope_job {
    const struct draw_key *key;
    float low, high;
    const float *x, *from; /* (rows, size) */
    float *to;             /* (rows, size) */
    size_t size;
};

static void slope_part(void *context, size_t first, size_t last) {
    const struct slope_job *s = context;
    uint32_t words[WORDS];
    for (size_t i = first; i < last; i++) {
        struct row_words row = row_words_of(s->key, i);
        for (size_t j = 0; j < s->size; j += WORDS) {
            size_t at = i * s->size + j, count = s->size - j < WORDS ? s->size - j : WORDS;
            draw_words(&row, j / 4, words);
#pragma omp simd
            for (size_t l = 0; l < count; l++)
                s->to[at + l] = s->from[at + l] * rrelu_slope(s->low, s->high, s->x[at + l], words[l]);
        }
    }
}

static void rrelu(struct device *device, const struct draw_key *key, float low, float high, const float *x,
                  const float *from, float *to, size_t rows, size_t size) {
    (void)device;
    parallel_for(rows, parallel_items(size), slope_part, &(struct slope_job){key, low, high, x, from, to, size});
}

/* ---- samples of normal distributions ---- */

struct normal_job {
    const struct draw_key *key;
    const float *mean, *log_variance, *dz; /* (rows, size); mean: forward, dz: backward */
    float *to;                             /* (rows, size) */
    size_t size;
};

/* exp(v / 2) e of rows first to last - 1, which forward adds to the mean and backward multiplies by dz / 2. */
static void normal_part(void *context, size_t first, size_t last) {
    const struct normal_job *s = context;
    uint32_t words[WORDS];
    float e[WORDS];
    for (size_t i = first; i < last; i++) {
        struct row_words row = row_words_of(s->key, i);
        for (size_t j = 0; j < s->size; j += WORDS) {
            size_t at = i * s->size + j, count = s->size - j < WORDS ? s->size - j : WORDS;
            draw_words(&row, j / 4, words);
#pragma omp simd
            for (size_t l = 0; l < WORDS; l += 2) math_normal_pair(words[l], words[l + 1], e + l);
#pragma omp simd
            for (size_t l = 0; l < count; l++) {
                float noise = math_exp(0.5f * s->log_variance[at + l]) * e[l];
                s->to[at + l] = s->mean ? s->mean[at + l] + noise : 0.5f * (s->dz[at + l] * noise);
            }
        }
    }
}

static void sample_normal(struct device *device, const struct draw_key *key, const float *mean,
                          const float *log_variance, float *z, size_t rows, size_t size) {
    (void)device;
    parallel_for(rows, parallel_items(8 * size), normal_part,
                 &(struct normal_job){key, mean, log_variance, NULL, z, size});
}

static void sample_normal_backward(struct device *device, const struct draw_key *key, const float *log_variance,
                                   const float *dz, float *dlog_variance, size_t rows, size_t size) {
    (void)device;
    parallel_for(rows, parallel_items(8 * size), normal_part,
                 &(struct normal_job){key, NULL, log_variance, dz, dlog_variance, size});
}

/* ---- norms, and numbers that are not finite ---- */

/* 16 partial sums in double, added in a fixed order at the end */
static float norm(struct device *device, const float *x, size_t count) {
    (void)device;
    double parts[16] = {0}, sum = 0;
    size_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (int l = 0; l < 16; l++) parts[l] += (double)x[i + (size_t)l] * (double)x[i + (size_t)l];
    for (; i < count; i++) parts[i % 16] += (double)x[i] * (double)x[i];
    for (int l = 0; l < 16; l++) sum += parts[l];
    return (float)sqrt(sum);
}

static void clip_norm(struct device *device, const float *x, const struct device_range *ranges, size_t count, float max,
                      float scale, struct clip_norm *out) {
    double squares = 0;
    for (size_t i = 0; i < count; i++) {
        double part = (double)norm(device, x + ranges[i].begin, ranges[i].end - ranges[i].begin);
        squares += part * part;
    }
    out->norm = (float)(sqrt(squares) / (double)scale);
    out->clip = 1 / scale;
    float coefficient = max / (out->norm + 1e-6f);
    if (max > 0 && coefficient < 1) out->clip *= coefficient;
}

static void squares(struct device *device, const float *x, const struct device_range *ranges, size_t count,
                    double *sums) {
    (void)device;
    for (size_t r = 0; r < count; r++) {
        double sum = 0;
        for (size_t i = ranges[r].begin; i < ranges[r].end; i++) sum += (double)x[i] * (double)x[i];
        sums[r] = sum;
    }
}

/* an exponent of all ones is an infinity or a NaN */
static bool is_finite(struct device *device, const struct tensor *tx, size_t count) {
    const float *x = floats(tx);
    (void)device;
    uint32_t carries = 0;
    for (size_t i = 0; i < count; i++) carries |= (bits_of_float(x[i]) & 0x7f800000u) + 0x00800000u;
    return carries >> 31 == 0;
}

static void check_finite(struct device *device, const float *x, size_t count, double *nonfinite) {
    *nonfinite += is_finite(device, F32(x), count) ? 0 : 1;
}

static void skip_if_nonfinite(struct device *device, const float *x, size_t count, const double *loss,
                              const float *norm, double *nonfinite, size_t nonfinite_count, double *found_inf,
                              float *clip) {
    bool is_nonfinite = !isfinite(*loss) || !isfinite(*norm);
    if (count) check_finite(device, x, count, nonfinite);
    for (size_t i = 0; i < nonfinite_count; i++) is_nonfinite = is_nonfinite || nonfinite[i] > 0;
    if (is_nonfinite) *found_inf += 1;
    if (*found_inf > 0) *clip = NAN;
}

static void propagate_nonfinite(struct device *device, const double *loss, const double *nonfinite, float *x) {
    (void)device;
    if (!isfinite(*loss) || *nonfinite > 0) *x = NAN;
}

/* The other members of the table are NULL. */
const struct device_ops IN_SET(elementwise) = {
    .add = add,
    .activation_forward = activation_forward,
    .activation_backward = activation_backward,
    .dropout = dropout,
    .dropout_saving = dropout_saving,
    .dropout_saved = dropout_saved,
    .dropout_channels = dropout_channels,
    .rrelu = rrelu,
    .sample_normal = sample_normal,
    .sample_normal_backward = sample_normal_backward,
    .norm = norm,
    .clip_norm = clip_norm,
    .squares = squares,
    .is_finite = is_finite,
    .check_finite = check_finite,
    .skip_if_nonfinite = skip_if_nonfinite,
    .propagate_nonfinite = propagate_nonfinite,
    .keyed_forward = keyed_forward,
    .keyed_backward = keyed_backward,
    .prelu_forward = prelu_forward,
    .prelu_backward = prelu_backward,
    .scale_forward = scale_forward,
    .scale_backward = scale_backward,
    .copy = copy,
    .multiply = multiply,
    .copy_columns = copy_columns,
};
