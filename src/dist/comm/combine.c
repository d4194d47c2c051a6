/* Blocks of a few KiB are accumulated in the first-level cache, so each array is read once for any number of ranks.
 * Sums of float32 arrays, the most frequent case, are also compiled for wider vectors; the rounding is the same. */
#include "dist/comm/combine.h"

#include <string.h>

#include "base/bits.h"
#include "base/instructions.h"

#define BLOCK 1024 /* elements */

/* ---- 16-bit floats ---- */

void combine_from_half(float *out, const uint16_t *in, size_t count, enum comm_type type) {
    if (type == COMM_BFLOAT16)
        for (size_t i = 0; i < count; i++) out[i] = bits_from_bfloat16(in[i]);
    else
        for (size_t i = 0; i < count; i++) out[i] = bits_from_float16(in[i]);
}

void combine_to_half(uint16_t *out, const float *in, size_t count, enum comm_type type) {
    if (type == COMM_BFLOAT16)
        for (size_t i = 0; i < count; i++) out[i] = bits_to_bfloat16(in[i]);
    else
        for (size_t i = 0; i < count; i++) out[i] = bits_to_float16(in[i]);
}

/* ---- one block of one more rank: acc = acc op in ---- */

#define FLOAT_SUM(a, b) ((a) + (b))
#define FLOAT_PRODUCT(a, b) ((a) * (b))
#define FLOAT_MIN(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#define FLOAT_MAX(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define INT_SUM(a, b) ((uint64_t)(a) + (uint64_t)(b))
#define INT_PRODUCT(a, b) ((uint64_t)(a) * (uint64_t)(b))
#define INT_MIN_OF(a, b) ((b) < (a) ? (b) : (a))
#define INT_MAX_OF(a, b) ((b) > (a) ? (b) : (a))

#define STEP(name, type, expression)                                                                                   \
    static void name(void *to, const void *from, size_t count) {                                                       \
        type *restrict acc = to;                                                                                       \
        const type *restrict in = from;                                                                                \
        for (size_t i = 0; i < count; i++) acc[i] = (type)expression(acc[i], in[i]);                                   \
    }
#define FLOAT_STEPS(type)                                                                                              \
    STEP(sum_##type, type, FLOAT_SUM)                                                                                  \
    STEP(min_##type, type, FLOAT_MIN)                                                                                  \
    STEP(max_##type, type, FLOAT_MAX)                                                                                  \
    STEP(product_##type, type, FLOAT_PRODUCT)
#define INT_STEPS(type)                                                                                                \
    STEP(sum_##type, type, INT_SUM)                                                                                    \
    STEP(min_##type, type, INT_MIN_OF)                                                                                 \
    STEP(max_##type, type, INT_MAX_OF)                                                                                 \
    STEP(product_##type, type, INT_PRODUCT)

FLOAT_STEPS(float)
FLOAT_STEPS(double)
INT_STEPS(int32_t)
INT_STEPS(int64_t)
INT_STEPS(uint8_t)

typedef void step_function(void *acc, const void *in, size_t count);
#define STEPS_OF(type)                                                                                                 \
    {                                                                                                                  \
        [COMM_SUM] = sum_##type, [COMM_AVG] = sum_##type, [COMM_MIN] = min_##type, [COMM_MAX] = max_##type,            \
        [COMM_PRODUCT] = product_##type                                                                                \
    }

/* 16-bit floats are accumulated as float. */
static const struct {
    size_t size;
    step_function *steps[COMM_OPS];
} types[COMM_TYPES] = {[COMM_FLOAT32] = {4, STEPS_OF(float)},  [COMM_FLOAT64] = {8, STEPS_OF(double)},
                       [COMM_BFLOAT16] = {2, STEPS_OF(float)}, [COMM_FLOAT16] = {2, STEPS_OF(float)},
                       [COMM_INT32] = {4, STEPS_OF(int32_t)},  [COMM_INT64] = {8, STEPS_OF(int64_t)},
                       [COMM_UINT8] = {1, STEPS_OF(uint8_t)}};

size_t comm_type_size(enum comm_type type) { return types[type].size; }

static bool is_half(enum comm_type type) { return type == COMM_BFLOAT16 || type == COMM_FLOAT16; }

/* ---- sums for wider vectors ---- */

/* The functions that are compiled once per instruction set. */
struct sums {
    void (*two)(float *out, const float *a, const float *b, size_t count); /* out = a + b */
    void (*scaled_two)(float *out, const float *a, const float *b, size_t count, float factor);
    void (*scale)(float *out, const float *a, size_t count, float factor);
    void (*add_scaled)(float *out, const float *a, size_t count, float factor); /* out += a * factor */
};

#define SUMS(set, attribute)                                                                                           \
    attribute static void two_##set(float *out, const float *a, const float *b, size_t count) {                        \
        for (size_t i = 0; i < count; i++) out[i] = a[i] + b[i];                                                       \
    }                                                                                                                  \
    attribute static void scaled_two_##set(float *out, const float *a, const float *b, size_t count, float factor) {   \
        for (size_t i = 0; i < count; i++) out[i] = a[i] * factor + b[i] * factor;                                     \
    }                                                                                                                  \
    attribute static void scale_##set(float *out, const float *a, size_t count, float factor) {                        \
        for (size_t i = 0; i < count; i++) out[i] = a[i] * factor;                                                     \
    }                                                                                                                  \
    attribute static void add_scaled_##set(float *out, const float *a, size_t count, float factor) {                   \
        for (size_t i = 0; i < count; i++) out[i] += a[i] * factor;                                                    \
    }                                                                                                                  \
    static const struct sums sums_##set = {two_##set, scaled_two_##set, scale_##set, add_scaled_##set};
SUMS(plain, )
#if defined __x86_64__
SUMS(avx2, __attribute__((target("avx2"))))
SUMS(avx512, __attribute__((target("avx512f"))))

static const struct sums *sums(void) {
    if (processor_has(INSTRUCTIONS_AVX512)) return &sums_avx512;
    return processor_has(INSTRUCTIONS_AVX2) ? &sums_avx2 : &sums_plain;
}
#else
static const struct sums *sums(void) { return &sums_plain; }
#endif

void combine_scaled(float *out, const float *const *in, int ranks, size_t count, float factor) {
    const struct sums *s = sums();
    if (ranks == 2) {
        s->scaled_two(out, in[0], in[1], count, factor);
        return;
    }
    for (size_t i = 0; i < count; i += BLOCK) {
        _Alignas(64) float acc[BLOCK];
        size_t n = count - i < BLOCK ? count - i : BLOCK;
        s->scale(acc, in[0] + i, n, factor);
        for (int r = 1; r < ranks; r++) s->add_scaled(acc, in[r] + i, n, factor);
        memcpy(out + i, acc, n * sizeof *acc);
    }
}

/* ---- all ranks ---- */

static void load(void *acc, const void *in, size_t count, enum comm_type type) {
    if (is_half(type))
        combine_from_half(acc, in, count, type);
    else
        memcpy(acc, in, count * types[type].size);
}

static void store(void *out, const void *acc, size_t count, enum comm_type type) {
    if (is_half(type))
        combine_to_half(out, acc, count, type);
    else
        memcpy(out, acc, count * types[type].size);
}

/* acc /= divisor, in the type that [type] is accumulated in. */
static void divide(void *acc, int divisor, size_t count, enum comm_type type) {
    switch (type) {
    case COMM_FLOAT64:
        for (size_t i = 0; i < count; i++) ((double *)acc)[i] /= divisor;
        break;
    case COMM_INT32:
        for (size_t i = 0; i < count; i++) ((int32_t *)acc)[i] /= divisor;
        break;
    case COMM_INT64:
        for (size_t i = 0; i < count; i++) ((int64_t *)acc)[i] /= divisor;
        break;
    case COMM_UINT8:
        for (size_t i = 0; i < count; i++) ((uint8_t *)acc)[i] = (uint8_t)(((uint8_t *)acc)[i] / divisor);
        break;
    default:
        for (size_t i = 0; i < count; i++) ((float *)acc)[i] /= (float)divisor;
    }
}

void combine(void *out, const void *const *in, int ranks, size_t count, enum comm_type type, enum comm_op op) {
    size_t size = types[type].size;
    step_function *step = types[type].steps[op];
    if (type == COMM_FLOAT32 && op == COMM_SUM && ranks == 2) {
        sums()->two(out, in[0], in[1], count);
        return;
    }
    for (size_t i = 0; i < count; i += BLOCK) {
        _Alignas(64) char acc[BLOCK * sizeof(double)], wide[BLOCK * sizeof(float)];
        size_t n = count - i < BLOCK ? count - i : BLOCK;
        load(acc, (const char *)in[0] + i * size, n, type);
        for (int r = 1; r < ranks; r++) {
            const void *next = (const char *)in[r] + i * size;
            if (is_half(type)) combine_from_half((float *)wide, next, n, type);
            step(acc, is_half(type) ? wide : next, n);
        }
        if (op == COMM_AVG) divide(acc, ranks, n, type);
        store((char *)out + i * size, acc, n, type);
    }
}

void combine_divide(void *data, int divisor, size_t count, enum comm_type type) {
    size_t size = types[type].size;
    for (size_t i = 0; i < count; i += BLOCK) {
        _Alignas(64) char acc[BLOCK * sizeof(double)];
        size_t n = count - i < BLOCK ? count - i : BLOCK;
        load(acc, (char *)data + i * size, n, type);
        divide(acc, divisor, n, type);
        store((char *)data + i * size, acc, n, type);
    }
}
