/* Convolutions with AMX: the products of amx.c, one of whose factors is the image (pixels, (position in the kernel,
 * channels)), packed from where its pixels are; zeros are its padding. The gradient of the inputs is a convolution of
 * the outputs' gradient. The channels of a position are adjacent in the weights, too, in a copy. */
#include <math.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "device/cpu/bf16/amx.h"
#include "device/cpu/bf16/round.h"
#include "device/cpu/parallel.h"
#include "device/cpu/workspace.h"
#include "device/image.h"

#define SIZE AMX_SIZE
#define STEP AMX_STEP
#define TILE_FLOATS AMX_TILE_FLOATS

struct device_convolution {
    struct device *device;
    struct convolution c;
    size_t positions, weights; /* of the kernel; numbers of the weights */
};

bool amx_convolves(const struct convolution *c) {
    return c->groups == 1 && c->in.channels % STEP == 0 && c->out.channels % STEP == 0;
}

static size_t pixels_of(const struct image_shape *s) { return s->height * s->width; }

/* ---- the image as a factor ---- */

/* Reads [image] for the pixels of [grid], the images of the other side. is_gradient: the image is the outputs' gradient
 * and the grid the inputs; else the image is the inputs. */
struct view {
    const float *image;
    struct image_shape shape, grid;
    struct window window;
    bool is_gradient;
};

/* A pixel of the grid. */
struct grid_pixel {
    size_t row, y, x;
};

static struct grid_pixel pixel_at(const struct view *v, size_t pixel) {
    size_t in_row = pixel % pixels_of(&v->grid);
    return (struct grid_pixel){pixel / pixels_of(&v->grid), in_row / v->grid.width, in_row % v->grid.width};
}

static void next_pixel(const struct view *v, struct grid_pixel *at) {
    if (++at->x < v->grid.width) return;
    at->x = 0;
    if (++at->y < v->grid.height) return;
    at->y = 0;
    at->row++;
}

/* Where dimension [d] of the image is read for [at] of the grid and [k] of the kernel; false: it is padding, or between
 * the outputs of a stride. */
static bool find(const struct view *v, int d, size_t at, size_t k, size_t size, size_t *out) {
    const struct window *w = &v->window;
    size_t shift = k * w->dilation[d], padded = at + w->padding[d];
    if (v->is_gradient) {
        if (padded < shift || (padded - shift) % w->stride[d] != 0) return false;
        *out = (padded - shift) / w->stride[d];
    } else {
        size_t moved = at * w->stride[d] + shift;
        if (moved < w->padding[d]) return false;
        *out = moved - w->padding[d];
    }
    return *out < size;
}

/* The channels that position [t] of the kernel reads for a pixel of the grid. NULL: zeros. */
static const float *channels_at(const struct view *v, const struct grid_pixel *at, size_t t) {
    size_t y, x;
    if (!find(v, 0, at->y, t / v->window.kernel[1], v->shape.height, &y) ||
        !find(v, 1, at->x, t % v->window.kernel[1], v->shape.width, &x))
        return NULL;
    return v->image + ((at->row * v->shape.height + y) * v->shape.width + x) * v->shape.channels;
}

/* As a: i are pixels, k are (position, channel). */
static void pack_pixels(float *to, const struct amx_factor *f, size_t i, size_t count, size_t k, size_t depth) {
    const struct view *v = f->context;
    size_t channels = v->shape.channels, row = depth / STEP * TILE_FLOATS;
    struct grid_pixel at = pixel_at(v, i);
    for (size_t l = 0; l < count; l++, next_pixel(v, &at)) {
        float *tile = to + l / SIZE * row + l % SIZE * SIZE;
        size_t t = k / channels, c = k % channels;
        const float *from = channels_at(v, &at, t);
        for (size_t s = 0; s < depth; s += STEP, tile += TILE_FLOATS) {
            *(lanes *)tile = from ? neighbours(from + c, STEP) : (lanes){0};
            c += STEP;
            if (c < channels || s + STEP >= depth) continue;
            c = 0;
            from = channels_at(v, &at, ++t);
        }
    }
}

/* A tile of b: the same 16 channels of two pixels of each pair. */
static void pack_pairs(float *to, const float *const pixels[STEP], size_t c) {
    for (size_t l = 0; l < SIZE; l++) {
        const float *even = pixels[2 * l], *odd = pixels[2 * l + 1];
        *(lanes *)(to + l * SIZE) = pairs_of(even ? _mm512_loadu_ps(even + c) : _mm512_setzero_ps(),
                                             odd ? _mm512_loadu_ps(odd + c) : _mm512_setzero_ps());
    }
}

/* As b: i are (position, channel), k are pixels. */
static void pack_channels(float *to, const struct amx_factor *f, size_t i, size_t count, size_t k, size_t depth) {
    const struct view *v = f->context;
    size_t channels = v->shape.channels, row = (depth + STEP - 1) / STEP * TILE_FLOATS;
    struct grid_pixel at = pixel_at(v, k);
    for (size_t s = 0; s < depth; s += STEP) {
        struct grid_pixel grid_pixels[STEP];
        size_t pixels = depth - s < STEP ? depth - s : STEP;
        for (size_t l = 0; l < pixels; l++, next_pixel(v, &at)) grid_pixels[l] = at;
        const float *at_position[STEP] = {NULL};
        for (size_t j = 0; j < count; j += SIZE) {
            size_t c = (i + j) % channels;
            if (j == 0 || c == 0)
                for (size_t l = 0; l < pixels; l++)
                    at_position[l] = channels_at(v, &grid_pixels[l], (i + j) / channels);
            pack_pairs(to + j / SIZE * row + s / STEP * TILE_FLOATS, at_position, c);
        }
    }
}

static struct amx_factor image_factor(const struct view *v, bool is_b) {
    return (struct amx_factor){.pack = is_b ? pack_channels : pack_pixels, .context = v};
}

static struct view inputs_of(const struct device_convolution *d, const float *x) {
    return (struct view){x, d->c.in, d->c.out, d->c.window, false};
}

static struct view gradients_of(const struct device_convolution *d, const float *dy) {
    return (struct view){dy, d->c.out, d->c.in, d->c.window, true};
}

/* ---- weights ---- */

/* w (out, in, positions), and a copy: (out, positions, in) or (positions, out, in). */
struct weights {
    const struct device_convolution *d;
    const float *w;
    float *dw; /* (out, in, positions) */
    float *copy;
    size_t out_stride, position_stride; /* of the copy */
};

static void copy_weights(void *context, size_t first, size_t last) {
    const struct weights *x = context;
    size_t in = x->d->c.in.channels, positions = x->d->positions;
    for (size_t o = first; o < last; o++)
        for (size_t t = 0; t < positions; t++)
            for (size_t c = 0; c < in; c++)
                x->copy[o * x->out_stride + t * x->position_stride + c] = x->w[(o * in + c) * positions + t];
}

static void add_weights(void *context, size_t first, size_t last) {
    const struct weights *x = context;
    size_t in = x->d->c.in.channels, positions = x->d->positions;
    for (size_t o = first; o < last; o++)
        for (size_t c = 0; c < in; c++)
            for (size_t t = 0; t < positions; t++)
                x->dw[(o * in + c) * positions + t] += x->copy[o * x->out_stride + t * x->position_stride + c];
}

#define MIN_WEIGHTS ((size_t)1 << 14) /* of a thread: 20 us */

static void for_each_output(const struct device_convolution *d, parallel_part *part, struct weights *x) {
    parallel_for(d->c.out.channels, 1 + MIN_WEIGHTS / (d->positions * d->c.in.channels), part, x);
}

/* ---- the operators ---- */

/* The workspace: the copy of the weights, or of their gradient, and what is packed. */
static size_t bytes_of(const struct device_convolution *d, size_t m, size_t n, size_t k) {
    struct amx_space space = amx_space(NULL, m, n, k, 1);
    return (d->weights + space.rows_floats + space.columns_floats) * sizeof(float);
}

/* Reserved again in each pass: fewer rows may need more, and the number of threads may have changed. NULL: there is not
 * enough memory. */
static float *reserve(const struct device_convolution *d, const struct cpu_product *p, struct amx_space *space) {
    status s = workspace_reserve(d->device, bytes_of(d, p->m, p->n, p->k), "a convolution");
    bool is_missing = s != OK;
    status_free(s);
    if (is_missing) return NULL;
    float *copy = workspace_of(d->device);
    *space = amx_space(copy + d->weights, p->m, p->n, p->k, 1);
    return copy;
}

/* Out of memory: the run ends because its numbers are not finite. */
static void fail(float *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) numbers[i] = NAN;
}

static size_t taps_of(const struct device_convolution *d, size_t channels) { return d->positions * channels; }

static status prepare(struct device_convolution *d, size_t rows, bool is_training) {
    size_t in = d->c.in.channels, out = d->c.out.channels, outputs = rows * pixels_of(&d->c.out);
    size_t inputs = rows * pixels_of(&d->c.in);
    TRY(workspace_reserve(d->device, bytes_of(d, outputs, out, taps_of(d, in)), "a convolution"));
    if (!is_training) return OK;
    TRY(workspace_reserve(d->device, bytes_of(d, inputs, in, taps_of(d, out)), "a convolution"));
    return workspace_reserve(d->device, bytes_of(d, out, taps_of(d, in), outputs), "a convolution");
}

static status create(struct device *device, const struct convolution *c, size_t rows, struct device_convolution **out) {
    struct device_convolution *d = calloc(1, sizeof *d);
    if (!d) return status_memory("a convolution");
    d->device = device;
    d->c = *c;
    d->positions = c->window.kernel[0] * c->window.kernel[1];
    d->weights = c->out.channels * taps_of(d, c->in.channels);
    status s = prepare(d, rows, true);
    if (s) {
        free(d);
        return s;
    }
    *out = d;
    return OK;
}

static void destroy(struct device_convolution *d) { free(d); }

static void forward(struct device_convolution *d, const float *x, const float *w, const float *bias, float *y,
                    size_t rows) {
    size_t in = d->c.in.channels, out = d->c.out.channels, terms = taps_of(d, in);
    struct view view = inputs_of(d, x);
    struct amx_space space;
    struct cpu_product p = {.m = rows * pixels_of(&d->c.out),
                            .n = out,
                            .k = terms,
                            .c = y,
                            .ldc = out,
                            .start = bias ? PRODUCT_ROW : PRODUCT_ZERO,
                            .row = bias,
                            .has_relu = d->c.has_relu};
    float *copy = p.m > 0 ? reserve(d, &p, &space) : NULL;
    struct weights weights = {d, w, NULL, copy, terms, in};
    if (!copy) {
        fail(y, p.m * out);
        return;
    }
    for_each_output(d, copy_weights, &weights);
    amx_product(&p, image_factor(&view, false), amx_columns(copy, terms, 1), &space);
}

static void input_gradient(struct device_convolution *d, const float *w, const float *dy, float *dx, size_t rows) {
    size_t in = d->c.in.channels, out = d->c.out.channels;
    struct view view = gradients_of(d, dy);
    struct amx_space space;
    struct cpu_product p = {
        .m = rows * pixels_of(&d->c.in), .n = in, .k = taps_of(d, out), .c = dx, .ldc = in, .start = PRODUCT_ZERO};
    float *copy = reserve(d, &p, &space);
    struct weights weights = {d, w, NULL, copy, in, out * in};
    if (!copy) {
        fail(dx, p.m * in);
        return;
    }
    for_each_output(d, copy_weights, &weights);
    amx_product(&p, image_factor(&view, false), amx_columns(copy, 1, in), &space);
}

static void weight_gradient(struct device_convolution *d, const float *x, const float *dy, float *dw, size_t rows) {
    size_t in = d->c.in.channels, out = d->c.out.channels, terms = taps_of(d, in);
    struct view view = inputs_of(d, x);
    struct cpu_product p = {
        .m = out, .n = terms, .k = rows * pixels_of(&d->c.out), .ldc = terms, .start = PRODUCT_ZERO};
    struct amx_space space;
    float *copy = reserve(d, &p, &space);
    struct weights weights = {d, NULL, dw, copy, terms, in};
    if (!copy) {
        fail(dw, d->weights);
        return;
    }
    p.c = copy;
    amx_product(&p, amx_rows(dy, 1, out), image_factor(&view, true), &space);
    for_each_output(d, add_weights, &weights);
}

static void backward(struct device_convolution *d, const float *x, const float *w, const float *dy, float *dx,
                     float *dw, float *dbias, size_t rows) {
    (void)dbias; /* computed by the caller */
    if (rows == 0) return;
    if (dw) weight_gradient(d, x, dy, dw, rows);
    if (dx) input_gradient(d, w, dy, dx, rows);
}

const struct convolution_ops amx_convolution_ops = {
    .create = create, .destroy = destroy, .prepare = prepare, .forward = forward, .backward = backward};
