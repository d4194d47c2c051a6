/* Pillow's bilinear resampling with 8-bit channels (src/libImaging/Resample.c), bit for bit: weights are rounded to
 * 22 bits, the horizontal pass rounds to bytes, then the vertical pass. Sums of integers do not depend on the order, so
 * that each input row is added to the output rows that need it and is forgotten. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "data/images/image_resize.h"

#define PRECISION_BITS 22
#define HALF (1 << (PRECISION_BITS - 1))

/* The loops over pixels are compiled for several instruction sets; sanitizers do not know how one is chosen. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define INSTRUCTION_SETS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define INSTRUCTION_SETS
#endif

typedef int32_t pixel __attribute__((vector_size(16)));
typedef uint8_t packed_pixel __attribute__((vector_size(4)));

/* ---- weights ---- */

static status grow(void *block, size_t *capacity, size_t count, size_t size) {
    void **memory = block;
    if (count <= *capacity) return OK;
    void *more = count > PTRDIFF_MAX / size ? NULL : realloc(*memory, count * size);
    if (!more) return status_memory("an image");
    *memory = more;
    *capacity = count;
    return OK;
}

static status allocate_axis(struct resize_axis *axis) {
    size_t capacity = axis->capacity;
    TRY(grow(&axis->first, &capacity, axis->count, sizeof *axis->first));
    TRY(grow(&axis->used, &axis->capacity, axis->count, sizeof *axis->used));
    TRY(grow(&axis->weights, &axis->weight_capacity, axis->count * axis->taps, sizeof *axis->weights));
    return grow(&axis->exact, &axis->exact_capacity, axis->taps, sizeof *axis->exact);
}

/* precompute_coeffs and normalize_coeffs_8bpc of Pillow */
static status compute_weights(struct resize_axis *axis, const struct resize_range *range) {
    double scale = (double)range->in / (double)range->resized, filter_scale = scale < 1 ? 1 : scale;
    double support = filter_scale, step = 1 / filter_scale;
    axis->count = range->count;
    axis->taps = (size_t)ceil(support) * 2 + 1;
    TRY(allocate_axis(axis));
    for (size_t i = 0; i < range->count; i++) {
        double center = ((double)(range->first + i) + 0.5) * scale, sum = 0;
        int64_t first = (int64_t)(center - support + 0.5), end = (int64_t)(center + support + 0.5);
        if (first < 0) first = 0;
        if (end > (int64_t)range->in) end = (int64_t)range->in;
        size_t used = (size_t)(end - first);
        for (size_t k = 0; k < used; k++) {
            double distance = fabs(((double)k + (double)first - center + 0.5) * step);
            sum += axis->exact[k] = distance < 1 ? 1 - distance : 0;
        }
        for (size_t k = 0; k < used; k++) {
            double weight = sum != 0 ? axis->exact[k] / sum : axis->exact[k];
            axis->weights[i * axis->taps + k] = (int32_t)(0.5 + weight * (1 << PRECISION_BITS));
        }
        axis->first[i] = (size_t)first;
        axis->used[i] = used;
    }
    return OK;
}

static void free_axis(struct resize_axis *axis) {
    free(axis->first);
    free(axis->used);
    free(axis->weights);
    free(axis->exact);
}

status resizer_start(struct resizer *resizer, const struct resize_range *x, const struct resize_range *y,
                     size_t channels) {
    resizer->channels = channels;
    resizer->row = resizer->top = 0;
    TRY(compute_weights(&resizer->x, x));
    TRY(compute_weights(&resizer->y, y));
    size_t line = x->count * channels;
    TRY(grow(&resizer->line, &resizer->line_capacity, line, 1));
    TRY(grow(&resizer->sums, &resizer->sums_capacity, line * y->count, sizeof *resizer->sums));
    for (size_t i = 0; i < line * y->count; i++) resizer->sums[i] = HALF;
    return OK;
}

void resizer_free(struct resizer *resizer) {
    free_axis(&resizer->x);
    free_axis(&resizer->y);
    free(resizer->line);
    free(resizer->sums);
}

/* ---- passes ---- */

static uint8_t byte_of(int32_t sum) {
    int32_t value = sum >> PRECISION_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

INSTRUCTION_SETS static void across_pixels(const struct resize_axis *x, const uint8_t *row, uint8_t *line) {
    for (size_t i = 0; i < x->count; i++) {
        const int32_t *weights = x->weights + i * x->taps;
        const uint8_t *from = row + x->first[i] * 4;
        pixel sum = {HALF, HALF, HALF, HALF};
        for (size_t k = 0; k < x->used[i]; k++) {
            packed_pixel bytes;
            memcpy(&bytes, from + k * 4, sizeof bytes);
            sum += __builtin_convertvector(bytes, pixel) * weights[k];
        }
        for (size_t c = 0; c < 4; c++) line[i * 4 + c] = byte_of(sum[c]);
    }
}

INSTRUCTION_SETS static void across_bytes(const struct resize_axis *x, const uint8_t *row, uint8_t *line) {
    for (size_t i = 0; i < x->count; i++) {
        const int32_t *weights = x->weights + i * x->taps;
        int32_t sum = HALF;
        for (size_t k = 0; k < x->used[i]; k++) sum += row[x->first[i] + k] * weights[k];
        line[i] = byte_of(sum);
    }
}

INSTRUCTION_SETS static void add_line(const uint8_t *line, size_t count, int32_t weight, int32_t *sums) {
    for (size_t i = 0; i < count; i++) sums[i] += line[i] * weight;
}

void resizer_add(struct resizer *resizer, const uint8_t *row) {
    const struct resize_axis *y = &resizer->y;
    size_t at = resizer->row++, line = resizer->x.count * resizer->channels;
    while (resizer->top < y->count && y->first[resizer->top] + y->used[resizer->top] <= at) resizer->top++;
    if (resizer->top == y->count || y->first[resizer->top] > at) return;
    if (resizer->channels == 4)
        across_pixels(&resizer->x, row, resizer->line);
    else
        across_bytes(&resizer->x, row, resizer->line);
    for (size_t i = resizer->top; i < y->count && y->first[i] <= at; i++)
        add_line(resizer->line, line, y->weights[i * y->taps + at - y->first[i]], resizer->sums + i * line);
}

bool resizer_is_complete(const struct resizer *resizer) {
    const struct resize_axis *y = &resizer->y;
    return y->first[y->count - 1] + y->used[y->count - 1] <= resizer->row;
}

void resizer_finish(const struct resizer *resizer, size_t kept, uint8_t *out) {
    size_t pixels = resizer->x.count * resizer->y.count, channels = resizer->channels;
    for (size_t c = 0; c < kept; c++)
        for (size_t p = 0; p < pixels; p++) out[c * pixels + p] = byte_of(resizer->sums[p * channels + c]);
}
