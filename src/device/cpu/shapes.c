/* See device/shapes.h. */
#include "device/cpu/cpu.h"

#include <string.h>

#include "device/cpu/parallel.h"

/* Operands of a loop over rows of [in] and [out] elements. */
struct job {
    const void *shape;
    const float *x;
    float *y;
    size_t in, out;
    int32_t *new_index;
    const int32_t *index, *lengths; /* lengths: NULL: none */
    size_t count, inner;
};

static void run(size_t rows, parallel_part *part, struct job *job) {
    size_t floats = job->in > job->out ? job->in : job->out;
    parallel_for(rows, parallel_items(floats), part, job);
}

/* ---- permutations ---- */

static size_t permutation_elements(const struct permutation *p) {
    size_t count = 1;
    for (int d = 0; d < p->dims; d++) count *= p->size[d];
    return count;
}

/* The innermost dimension of the output at [at] of the input. */
static void copy_line(const struct permutation *p, const float *restrict x, float *restrict y) {
    size_t count = p->size[p->dims - 1], stride = p->stride[p->dims - 1];
    if (stride == 1)
        memcpy(y, x, count * sizeof *y);
    else
        for (size_t i = 0; i < count; i++) y[i] = x[i * stride];
}

static void permute_row(const struct permutation *p, const float *x, float *y, size_t elements) {
    size_t index[PERMUTATION_DIMS] = {0}, line = p->size[p->dims - 1];
    for (size_t done = 0; done < elements; done += line, y += line) {
        copy_line(p, x, y);
        for (int d = p->dims - 2; d >= 0; d--) {
            x += p->stride[d];
            if (++index[d] < p->size[d]) break;
            x -= index[d] * p->stride[d];
            index[d] = 0;
        }
    }
}

static void permute_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    for (size_t r = first; r < last; r++) permute_row(j->shape, j->x + r * j->in, j->y + r * j->in, j->in);
}

static void permute(struct device *device, const struct permutation *p, const float *x, float *y, size_t rows) {
    size_t elements = permutation_elements(p);
    run(rows, permute_part, &(struct job){.shape = p, .x = x, .y = y, .in = elements, .out = elements});
}

/* ---- padding ---- */

static void fill(float *y, size_t count, float value) {
    for (size_t i = 0; i < count; i++) y[i] = value;
}

static void pad_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    const struct pad *p = j->shape;
    float *y = j->y + first * j->out;
    for (size_t r = first; r < last; r++)
        for (size_t a = 0; a < pad_size(p, 0); a++)
            for (size_t b = 0; b < pad_size(p, 1); b++)
                for (size_t c = 0; c < pad_size(p, 2); c++, y += p->inner) {
                    size_t from = pad_pixel(p, a, b, c);
                    if (from == PAD_NONE)
                        fill(y, p->inner, p->value);
                    else
                        memcpy(y, j->x + r * j->in + from * p->inner, p->inner * sizeof *y);
                }
}

static void add_to(float *restrict y, const float *restrict x, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] += x[i];
}

static void pad_back_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    const struct pad *p = j->shape;
    const float *dy = j->x + first * j->in;
    memset(j->y + first * j->out, 0, (last - first) * j->out * sizeof *j->y);
    for (size_t r = first; r < last; r++)
        for (size_t a = 0; a < pad_size(p, 0); a++)
            for (size_t b = 0; b < pad_size(p, 1); b++)
                for (size_t c = 0; c < pad_size(p, 2); c++, dy += p->inner) {
                    size_t to = pad_pixel(p, a, b, c);
                    if (to != PAD_NONE) add_to(j->y + r * j->out + to * p->inner, dy, p->inner);
                }
}

static void pad_forward(struct device *device, const struct pad *p, const float *x, float *y, size_t rows) {
    run(rows, pad_part, &(struct job){.shape = p, .x = x, .y = y, .in = pad_inputs(p), .out = pad_outputs(p)});
}

static void pad_backward(struct device *device, const struct pad *p, const float *dy, float *dx, size_t rows) {
    run(rows, pad_back_part, &(struct job){.shape = p, .x = dy, .y = dx, .in = pad_outputs(p), .out = pad_inputs(p)});
}

/* ---- interpolation ---- */

/* The four pixels of an output, as elements of the input image, and their weights. */
struct pixels {
    size_t at[4];
    float weight[4];
};

static struct pixels pixels_of(const struct resize *r, struct resize_taps v, size_t column) {
    struct resize_taps h = resize_taps(r, 1, column);
    size_t width = r->side[1].in, rows[2] = {v.first, v.second}, columns[2] = {h.first, h.second};
    float tall[2] = {1 - v.weight, v.weight}, wide[2] = {1 - h.weight, h.weight};
    struct pixels p;
    for (int i = 0; i < 4; i++) {
        p.at[i] = (rows[i / 2] * width + columns[i % 2]) * r->channels;
        p.weight[i] = tall[i / 2] * wide[i % 2];
    }
    return p;
}

static void resize_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    const struct resize *r = j->shape;
    float *restrict y = j->y + first * j->out;
    for (size_t n = first; n < last; n++)
        for (size_t a = 0; a < r->side[0].out; a++) {
            struct resize_taps v = resize_taps(r, 0, a);
            const float *x = j->x + n * j->in;
            for (size_t b = 0; b < r->side[1].out; b++, y += r->channels) {
                struct pixels p = pixels_of(r, v, b);
                const float *x0 = x + p.at[0], *x1 = x + p.at[1], *x2 = x + p.at[2], *x3 = x + p.at[3];
                if (r->is_nearest)
                    memcpy(y, x0, r->channels * sizeof *y);
                else
                    for (size_t c = 0; c < r->channels; c++)
                        y[c] = p.weight[0] * x0[c] + p.weight[1] * x1[c] + p.weight[2] * x2[c] + p.weight[3] * x3[c];
            }
        }
}

static void add_product(float *restrict y, const float *restrict x, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] += factor * x[i];
}

static void resize_back_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    const struct resize *r = j->shape;
    const float *dy = j->x + first * j->in;
    memset(j->y + first * j->out, 0, (last - first) * j->out * sizeof *j->y);
    for (size_t n = first; n < last; n++)
        for (size_t a = 0; a < r->side[0].out; a++) {
            struct resize_taps v = resize_taps(r, 0, a);
            float *dx = j->y + n * j->out;
            for (size_t b = 0; b < r->side[1].out; b++, dy += r->channels) {
                struct pixels p = pixels_of(r, v, b);
                if (r->is_nearest) add_to(dx + p.at[0], dy, r->channels);
                for (int i = 0; !r->is_nearest && i < 4; i++) add_product(dx + p.at[i], dy, p.weight[i], r->channels);
            }
        }
}

static void resize_forward(struct device *device, const struct resize *r, const float *x, float *y, size_t rows) {
    size_t in = r->side[0].in * r->side[1].in * r->channels, out = r->side[0].out * r->side[1].out * r->channels;
    run(rows, resize_part, &(struct job){.shape = r, .x = x, .y = y, .in = in, .out = out});
}

static void resize_backward(struct device *device, const struct resize *r, const float *dy, float *dx, size_t rows) {
    size_t in = r->side[0].in * r->side[1].in * r->channels, out = r->side[0].out * r->side[1].out * r->channels;
    run(rows, resize_back_part, &(struct job){.shape = r, .x = dy, .y = dx, .in = out, .out = in});
}

/* ---- maxima ---- */

static void max_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    for (size_t r = first; r < last; r++) {
        const float *restrict x = j->x + r * j->in;
        float *restrict y = j->y + r * j->out;
        int32_t *restrict index = j->new_index + r * j->out;
        memcpy(y, x, j->inner * sizeof *y);
        memset(index, 0, j->inner * sizeof *index);
        size_t count = j->lengths ? (size_t)j->lengths[r] : j->count;
        for (size_t k = 1; k < count; k++)
            for (size_t i = 0; i < j->inner; i++) {
                float v = x[k * j->inner + i];
                bool is_larger = v > y[i] || (v != v && y[i] == y[i]);
                y[i] = is_larger ? v : y[i];
                index[i] = is_larger ? (int32_t)k : index[i];
            }
    }
}

static void max_back_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    memset(j->y + first * j->out, 0, (last - first) * j->out * sizeof *j->y);
    for (size_t r = first; r < last; r++)
        for (size_t i = 0; i < j->inner; i++)
            j->y[r * j->out + (size_t)j->index[r * j->in + i] * j->inner + i] = j->x[r * j->in + i];
}

static void max_forward(struct device *device, const float *x, const int32_t *lengths, float *y, int32_t *index,
                        size_t outer, size_t count, size_t inner) {
    run(outer, max_part,
        &(struct job){.x = x,
                      .lengths = lengths,
                      .y = y,
                      .new_index = index,
                      .in = count * inner,
                      .out = inner,
                      .count = count,
                      .inner = inner});
}

static void max_backward(struct device *device, const int32_t *index, const float *dy, float *dx, size_t outer,
                         size_t count, size_t inner) {
    run(outer, max_back_part,
        &(struct job){.x = dy, .y = dx, .index = index, .in = inner, .out = count * inner, .inner = inner});
}

/* ---- windows along the depth ---- */

static void unfold_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    const struct depth_window *w = j->shape;
    size_t slice = w->positions * w->channels;
    for (size_t r = first; r < last; r++)
        for (size_t o = 0; o < w->out; o++)
            for (size_t k = 0; k < w->kernel; k++) {
                size_t at = depth_source(w, o, k);
                const float *restrict x = j->x + r * j->in + (at == SIZE_MAX ? 0 : at * slice);
                float *restrict y = j->y + r * j->out + o * slice * w->kernel + k;
                for (size_t i = 0; i < slice; i++) y[i * w->kernel] = at == SIZE_MAX ? 0 : x[i];
            }
}

static void fold_part(void *context, size_t first, size_t last) {
    const struct job *j = context;
    const struct depth_window *w = j->shape;
    size_t slice = w->positions * w->channels;
    memset(j->y + first * j->out, 0, (last - first) * j->out * sizeof *j->y);
    for (size_t r = first; r < last; r++)
        for (size_t i = 0; i < w->in; i++)
            for (size_t k = 0; k < w->kernel; k++) {
                size_t o = depth_target(w, i, k);
                const float *restrict dy = j->x + r * j->in + (o == SIZE_MAX ? 0 : o * slice * w->kernel + k);
                float *restrict dx = j->y + r * j->out + i * slice;
                for (size_t e = 0; o != SIZE_MAX && e < slice; e++) dx[e] += dy[e * w->kernel];
            }
}

static void unfold_depth(struct device *device, const struct depth_window *w, const float *x, float *y, size_t rows) {
    size_t slice = w->positions * w->channels;
    run(rows, unfold_part,
        &(struct job){.shape = w, .x = x, .y = y, .in = w->in * slice, .out = w->out * slice * w->kernel});
}

static void fold_depth(struct device *device, const struct depth_window *w, const float *dy, float *dx, size_t rows) {
    size_t slice = w->positions * w->channels;
    run(rows, fold_part,
        &(struct job){.shape = w, .x = dy, .y = dx, .in = w->out * slice * w->kernel, .out = w->in * slice});
}

const struct shape_ops cpu_shape_ops = {
    .permute = permute,
    .pad_forward = pad_forward,
    .pad_backward = pad_backward,
    .resize_forward = resize_forward,
    .resize_backward = resize_backward,
    .max_forward = max_forward,
    .max_backward = max_backward,
    .unfold_depth = unfold_depth,
    .fold_depth = fold_depth,
};
