/* image_resize: resizes an image row by row, so that memory does not grow with the height of the image. */
#ifndef DATA_IMAGE_RESIZE_H
#define DATA_IMAGE_RESIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* One dimension: [in] pixels are resized to [resized], of which [count] from [first] on are kept. */
struct resize_range {
    size_t in, resized, first, count;
};

/* The weights of the input pixels for each kept pixel. */
struct resize_axis {
    size_t count, taps;   /* kept pixels; the maximum number of weights of one */
    size_t *first, *used; /* (count): the first input pixel, the number of weights */
    int32_t *weights;     /* (count, taps), in units of 2^-22 */
    double *exact;        /* (taps): workspace */
    size_t capacity, weight_capacity, exact_capacity;
};

struct resizer {
    struct resize_axis x, y;
    size_t channels; /* bytes of a pixel: 1 or 4 */
    size_t row;      /* the next input row */
    size_t top;      /* output rows before it are complete */
    uint8_t *line;   /* (x.count * channels): an input row after the horizontal pass */
    int32_t *sums;   /* (y.count, x.count * channels), in units of 2^-22, rounded */
    size_t line_capacity, sums_capacity;
};

/* Zero-initialise; resizer_start may be called again for the next image. STATUS_MEMORY. */
status resizer_start(struct resizer *resizer, const struct resize_range *x, const struct resize_range *y,
                     size_t channels);
void resizer_free(struct resizer *resizer);

/* Adds the next input row: (in, channels), of the range [x] of resizer_start. */
void resizer_add(struct resizer *resizer, const uint8_t *row);

/* Whether no more rows are needed. */
bool resizer_is_complete(const struct resizer *resizer);

/* After all rows that are needed: out (kept, y.count, x.count), the first [kept] channels. */
void resizer_finish(const struct resizer *resizer, size_t kept, uint8_t *out);

#endif
