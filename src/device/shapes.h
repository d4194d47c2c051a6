/* shapes: operators that change the shape of a tensor, or the size of an image: permutations, padding, interpolation,
 * maxima along a dimension, and the windows of a 3D convolution along its depth. Which element an output reads is
 * computed by the functions at the end, from which the CPU's loops and the GPU's kernels are made. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"

struct device;

#define PERMUTATION_DIMS 10

/* The output is row-major, with these sizes; its element (i_0, i_1, ...) is element i_0 stride[0] + i_1 stride[1] + ...
 * of the input, which has as many elements. */
struct permutation {
    int dims;
    size_t size[PERMUTATION_DIMS], stride[PERMUTATION_DIMS];
};

enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE, PAD_CIRCULAR };

/* Of (in[0], in[1], in[2], inner). reflect: before and after are below in; circular: at most in. */
struct pad {
    size_t in[3], before[3], after[3], inner;
    enum pad_mode mode;
    float value; /* PAD_CONSTANT */
};

struct resize_side {
    size_t in, out;
    float scale; /* of a coordinate of the output to one of the input */
};

/* torch.nn.functional.interpolate of (in[0], in[1], channels). */
struct resize {
    struct resize_side side[2];
    size_t channels;
    bool is_nearest; /* else bilinear */
    bool align_corners;
};

/* Windows along the depth of (in, positions, channels). */
struct depth_window {
    size_t in, out, positions, channels;
    size_t kernel, stride, padding, dilation;
};

struct shape_ops {
    /* y from x, [rows] times */
    void (*permute)(struct device *, const struct permutation *, const float *x, float *y, size_t rows);
    /* y (rows, padded); dx = */
    void (*pad_forward)(struct device *, const struct pad *, const float *x, float *y, size_t rows);
    void (*pad_backward)(struct device *, const struct pad *, const float *dy, float *dx, size_t rows);
    void (*resize_forward)(struct device *, const struct resize *, const float *x, float *y, size_t rows);
    void (*resize_backward)(struct device *, const struct resize *, const float *dy, float *dx, size_t rows);
    /* y (outer, inner) = the largest of x (outer, count, inner), of the first lengths[outer] (NULL: all), index: which
     * one; the first, NaN is the largest. dx = dy there, else 0 */
    void (*max_forward)(struct device *, const float *x, const int32_t *lengths, float *y, int32_t *index, size_t outer,
                        size_t count, size_t inner);
    void (*max_backward)(struct device *, const int32_t *index, const float *dy, float *dx, size_t outer, size_t count,
                         size_t inner);
    /* y (rows, out, positions, channels, kernel): the elements of each window, 0 in the padding; dx = their sums */
    void (*unfold_depth)(struct device *, const struct depth_window *, const float *x, float *y, size_t rows);
    void (*fold_depth)(struct device *, const struct depth_window *, const float *dy, float *dx, size_t rows);
};

/* ---- which elements an output reads ---- */

HOST_DEVICE static inline size_t pad_size(const struct pad *p, int d) { return p->before[d] + p->in[d] + p->after[d]; }

/* Elements of a row of the input and of the output. */
HOST_DEVICE static inline size_t pad_inputs(const struct pad *p) { return p->in[0] * p->in[1] * p->in[2] * p->inner; }
HOST_DEVICE static inline size_t pad_outputs(const struct pad *p) {
    return pad_size(p, 0) * pad_size(p, 1) * pad_size(p, 2) * p->inner;
}

#define PAD_NONE SIZE_MAX

/* The element that element [o] of the padded dimension [d] copies; PAD_NONE: it is p->value. */
HOST_DEVICE static inline size_t pad_source(const struct pad *p, int d, size_t o) {
    size_t in = p->in[d], before = p->before[d];
    if (o >= before && o - before < in) return o - before;
    switch (p->mode) {
    case PAD_REFLECT:
        return o < before ? before - o : 2 * (in - 1) - (o - before);
    case PAD_REPLICATE:
        return o < before ? 0 : in - 1;
    case PAD_CIRCULAR:
        return o < before ? o + in - before : o - before - in;
    case PAD_CONSTANT:
        break;
    }
    return PAD_NONE;
}

/* The pixel (of [inner] elements) that pixel (a, b, c) of the output copies; PAD_NONE: it is p->value. */
HOST_DEVICE static inline size_t pad_pixel(const struct pad *p, size_t a, size_t b, size_t c) {
    size_t image = pad_source(p, 0, a), row = pad_source(p, 1, b), column = pad_source(p, 2, c);
    if (image == PAD_NONE || row == PAD_NONE || column == PAD_NONE) return PAD_NONE;
    return (image * p->in[1] + row) * p->in[2] + column;
}

/* The elements of the padded dimension that copy element [i]: [from[k], to[k]) for k < 3, in ascending order. */
struct pad_targets {
    size_t from[3], to[3];
};

HOST_DEVICE static inline struct pad_targets pad_targets(const struct pad *p, int d, size_t i) {
    size_t in = p->in[d], before = p->before[d], after = p->after[d], last = in - 1;
    struct pad_targets t = {{0, before + i, 0}, {0, before + i + 1, 0}};
    size_t end = before + in;
    switch (p->mode) {
    case PAD_REFLECT:
        if (i >= 1 && i <= before) t.from[0] = before - i, t.to[0] = t.from[0] + 1;
        if (i < last && last - i <= after) t.from[2] = before + 2 * last - i, t.to[2] = t.from[2] + 1;
        break;
    case PAD_REPLICATE:
        if (i == 0) t.to[0] = before;
        if (i == last) t.from[2] = end, t.to[2] = end + after;
        break;
    case PAD_CIRCULAR:
        if (i + before >= in) t.from[0] = i + before - in, t.to[0] = t.from[0] + 1;
        if (i < after) t.from[2] = end + i, t.to[2] = t.from[2] + 1;
        break;
    case PAD_CONSTANT:
        break;
    }
    return t;
}

/* An element of the output along one dimension is (1 - weight) * first + weight * second. */
struct resize_taps {
    size_t first, second;
    float weight;
};

/* The coordinate that element [o] of the output has in the input. */
HOST_DEVICE static inline float resize_coordinate(const struct resize *r, int d, size_t o) {
    float scale = r->side[d].scale, at = (float)o;
    if (r->is_nearest || r->align_corners) return scale * at;
    at = scale * (at + 0.5f) - 0.5f;
    return at < 0 ? 0 : at;
}

/* Whether a side is copied: bilinear wherever the size does not change, nearest unless the scale is another one, which
 * PyTorch uses for signals. */
HOST_DEVICE static inline bool resize_copies(const struct resize *r, int d) {
    return r->side[d].in == r->side[d].out && !(r->is_nearest && r->side[d].scale < 1);
}

HOST_DEVICE static inline struct resize_taps resize_taps(const struct resize *r, int d, size_t o) {
    const struct resize_side *s = &r->side[d];
    float at = resize_coordinate(r, d, o);
    size_t first = resize_copies(r, d) ? o : (size_t)at;
    if (first >= s->in) first = s->in - 1;
    struct resize_taps t = {first, first, 0};
    if (r->is_nearest || s->in == s->out) return t;
    float weight = at - (float)first;
    t.second = first + 1 < s->in ? first + 1 : first;
    t.weight = weight > 1 ? 1 : weight;
    return t;
}

/* The elements of the output that may read element [i]: [from, to); resize_taps decides. */
struct resize_readers {
    size_t from, to;
};

HOST_DEVICE static inline struct resize_readers resize_readers(const struct resize *r, int d, size_t i) {
    const struct resize_side *s = &r->side[d];
    struct resize_readers all = {0, s->out};
    if (resize_copies(r, d)) {
        struct resize_readers own = {i, i + 1};
        return own;
    }
    if (s->scale <= 0) return all;
    float from = ((float)i - 1) / s->scale - 2, to = ((float)i + 2) / s->scale + 2; /* generous: rounding */
    if (i > 0 && from > 0) all.from = (size_t)from < s->out ? (size_t)from : s->out;
    if (i + 1 < s->in && to < (float)s->out) all.to = (size_t)to;
    return all;
}

/* The element that kernel element [k] of window [o] reads; SIZE_MAX: it is in the padding. */
HOST_DEVICE static inline size_t depth_source(const struct depth_window *w, size_t o, size_t k) {
    size_t at = o * w->stride + k * w->dilation;
    return at >= w->padding && at - w->padding < w->in ? at - w->padding : SIZE_MAX;
}

/* The window in which element [i] is kernel element [k]; SIZE_MAX: none. */
HOST_DEVICE static inline size_t depth_target(const struct depth_window *w, size_t i, size_t k) {
    size_t at = i + w->padding, skipped = k * w->dilation;
    if (at < skipped || (at - skipped) % w->stride != 0) return SIZE_MAX;
    size_t o = (at - skipped) / w->stride;
    return o < w->out ? o : SIZE_MAX;
}
