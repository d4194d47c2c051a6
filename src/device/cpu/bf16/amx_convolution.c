/* Convolutions with AMX: the products of amx.c, one of whose factors is the image (pixels, (position in the kernel,
 * channels)), packed from where its pixels are; zeros are its padding. The gradient of the inputs is a convolution of
 * the outputs' gradient; of a stride of s, it is s x s of them, each of the pixels that the same positions of the
 * kernel reach. The channels of a position are adjacent in the weights, too, in a copy. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/bf16/amx.h"
#include "device/cpu/bf16/round.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/image.h"

#define SIZE AMX_SIZE
#define STEP AMX_STEP
#define TILE_FLOATS AMX_TILE_FLOATS
#define MAX_STRIDE 8 /* with a larger one, the gradient of the inputs is many small products */

/* ---- copies of the weights, by all threads ---- */

#define MIN_WEIGHTS ((size_t)1 << 14) /* of a thread: 20 us */

struct copy_job {
    const struct amx_weights *weights;
    const float *w;
    float *dw;
    size_t in, positions;
};

static float *copy_at(const struct copy_job *x, size_t o, size_t t) {
    const struct amx_weights *weights = x->weights;
    size_t place = weights->places ? weights->places[t] : t, line = place / weights->c->window.kernel[1];
    return weights->copy + o * weights->out_stride + place * weights->position_stride + line * weights->line_gap;
}

static void copy_part(void *context, size_t first, size_t last) {
    const struct copy_job *x = context;
    for (size_t o = first; o < last; o++)
        for (size_t t = 0; t < x->positions; t++) {
            float *to = copy_at(x, o, t);
            for (size_t c = 0; c < x->in; c++) to[c] = x->w[(o * x->in + c) * x->positions + t];
        }
}

static void add_part(void *context, size_t first, size_t last) {
    const struct copy_job *x = context;
    for (size_t o = first; o < last; o++)
        for (size_t t = 0; t < x->positions; t++) {
            const float *from = copy_at(x, o, t);
            for (size_t c = 0; c < x->in; c++) x->dw[(o * x->in + c) * x->positions + t] += from[c];
        }
}

static void for_each_output(const struct amx_weights *weights, const float *w, float *dw, parallel_part *part) {
    const struct convolution *c = weights->c;
    struct copy_job x = {weights, w, dw, c->in.channels, c->window.kernel[0] * c->window.kernel[1]};
    parallel_for(c->out.channels, 1 + MIN_WEIGHTS / (x.positions * x.in), part, &x);
}

void amx_copy_weights(const struct amx_weights *weights, const float *w) {
    for_each_output(weights, w, NULL, copy_part);
}
void amx_add_weights(const struct amx_weights *weights, float *dw) { for_each_output(weights, NULL, dw, add_part); }

/* ---- convolutions ---- */

struct device_convolution {
    struct device *device;
    struct convolution c;
    size_t parts;              /* of each number, as in amx.h */
    size_t positions, weights; /* of the kernel; numbers of the weights */
    /* Positions (positions) by phase: phase (y, x) are the inputs (y + i stride, x + j stride). */
    size_t *order;
    size_t *places; /* (positions): where a position is in order */
};

/* With fewer channels the pixels, rounded for each position of the kernel, are multiplied too few times. */
#define MIN_CHANNELS 64

static bool suits(const struct convolution *c) {
    return c->groups == 1 && c->in.channels % STEP == 0 && c->out.channels % STEP == 0 &&
           c->in.channels >= MIN_CHANNELS && c->out.channels >= MIN_CHANNELS && c->window.stride[0] <= MAX_STRIDE &&
           c->window.stride[1] <= MAX_STRIDE;
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
    size_t phase[2];     /* is_gradient: the grid is every stride-th pixel from here on, and */
    const size_t *order; /* these are the positions */
    size_t parts;
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
    const size_t *stride = v->window.stride;
    size_t y = at->y, x = at->x;
    if (v->is_gradient) t = v->order[t], y = v->phase[0] + y * stride[0], x = v->phase[1] + x * stride[1];
    if (!find(v, 0, y, t / v->window.kernel[1], v->shape.height, &y) ||
        !find(v, 1, x, t % v->window.kernel[1], v->shape.width, &x))
        return NULL;
    return v->image + ((at->row * v->shape.height + y) * v->shape.width + x) * v->shape.channels;
}

static const float zeros[STEP];

/* As a: i are pixels, k are (position, channel). */
static void pack_pixels(float *to, const struct amx_factor *f, size_t i, size_t count, size_t k, size_t depth) {
    const struct view *v = f->context;
    size_t channels = v->shape.channels, step = v->parts * TILE_FLOATS, row = depth / STEP * step;
    struct grid_pixel at = pixel_at(v, i);
    for (size_t l = 0; l < count; l++, next_pixel(v, &at)) {
        float *tile = to + l / SIZE * row + l % SIZE * SIZE;
        size_t t = k / channels, c = k % channels;
        const float *from = channels_at(v, &at, t);
        for (size_t s = 0; s < depth; s += STEP, tile += step) {
            store_row(tile, from ? from + c : zeros, STEP, v->parts);
            c += STEP;
            if (c < channels || s + STEP >= depth) continue;
            c = 0;
            from = channels_at(v, &at, ++t);
        }
    }
}

/* A tile of b: the same 16 channels of two pixels of each pair. */
static void pack_pairs(float *to, const float *const pixels[STEP], size_t c, size_t parts) {
    for (size_t l = 0; l < SIZE; l++) {
        const float *one = pixels[parts == 1 ? 2 * l : l], *other = pixels[parts == 1 ? 2 * l + 1 : SIZE + l];
        __m512 x = one ? _mm512_loadu_ps(one + c) : _mm512_setzero_ps();
        __m512 y = other ? _mm512_loadu_ps(other + c) : _mm512_setzero_ps();
        if (parts == 1)
            *(lanes *)(to + l * SIZE) = pairs_of(x, y);
        else
            store_parts(to + l * SIZE, x, y, parts);
    }
}

/* As b: i are (position, channel), k are pixels. */
static void pack_channels(float *to, const struct amx_factor *f, size_t i, size_t count, size_t k, size_t depth) {
    const struct view *v = f->context;
    size_t channels = v->shape.channels, step = v->parts * TILE_FLOATS, row = (depth + STEP - 1) / STEP * step;
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
            pack_pairs(to + j / SIZE * row + s / STEP * step, at_position, c, v->parts);
        }
    }
}

static struct amx_factor image_factor(const struct view *v, bool is_b) {
    return (struct amx_factor){.pack = is_b ? pack_channels : pack_pixels, .context = v};
}

static struct view inputs_of(const struct device_convolution *d, const float *x) {
    return (struct view){.image = x, .shape = d->c.in, .grid = d->c.out, .window = d->c.window, .parts = d->parts};
}

/* Pixels of a dimension of the inputs in a phase. */
static size_t pixels_in(size_t size, size_t phase, size_t stride) {
    return size > phase ? (size - phase + stride - 1) / stride : 0;
}

static struct view gradients_of(const struct device_convolution *d, const float *dy, size_t y, size_t x) {
    const size_t *stride = d->c.window.stride;
    struct image_shape grid = {pixels_in(d->c.in.height, y, stride[0]), pixels_in(d->c.in.width, x, stride[1]),
                               d->c.in.channels};
    return (struct view){.image = dy,
                         .shape = d->c.out,
                         .grid = grid,
                         .window = d->c.window,
                         .is_gradient = true,
                         .phase = {y, x},
                         .parts = d->parts};
}

/* ---- the operators ---- */

/* The workspace: the copy of the weights, or of their gradient; [extra] floats; and what is packed. */
static size_t bytes_of(const struct device_convolution *d, size_t m, size_t n, size_t k, size_t extra) {
    struct amx_space space = amx_space(NULL, m, n, k, d->parts);
    return (d->weights + extra + space.rows_floats + space.columns_floats) * sizeof(float);
}

/* Reserved again in each pass: fewer rows may need more, and the number of threads may have changed. NULL: there is not
 * enough memory. */
static float *reserve(const struct device_convolution *d, const struct cpu_product *p, size_t extra,
                      struct amx_space *space) {
    status s = workspace_reserve(d->device, bytes_of(d, p->m, p->n, p->k, extra), "a convolution");
    bool is_missing = s != OK;
    status_free(s);
    if (is_missing) return NULL;
    float *copy = workspace_of(d->device);
    *space = amx_space(copy + d->weights + extra, p->m, p->n, p->k, d->parts);
    return copy;
}

static size_t taps_of(const struct device_convolution *d, size_t channels) { return d->positions * channels; }

static bool has_phases(const struct device_convolution *d) {
    return d->c.window.stride[0] > 1 || d->c.window.stride[1] > 1;
}

/* The largest product of the gradient of the inputs, that of the first phase, but for its steps of k; its result is
 * then copied, unless it is the only one. */
static struct cpu_product input_product(const struct device_convolution *d, size_t rows) {
    struct view view = gradients_of(d, NULL, 0, 0);
    return (struct cpu_product){.m = rows * pixels_of(&view.grid),
                                .n = d->c.in.channels,
                                .k = taps_of(d, d->c.out.channels),
                                .ldc = d->c.in.channels,
                                .start = PRODUCT_ZERO};
}

static size_t copied_floats(const struct device_convolution *d, const struct cpu_product *p) {
    return has_phases(d) ? p->m * p->n : 0;
}

static status prepare(struct device_convolution *d, size_t rows, bool is_training) {
    size_t in = d->c.in.channels, out = d->c.out.channels, outputs = rows * pixels_of(&d->c.out);
    struct cpu_product p = input_product(d, rows);
    TRY(workspace_reserve(d->device, bytes_of(d, outputs, out, taps_of(d, in), 0), "a convolution"));
    if (!is_training) return OK;
    TRY(workspace_reserve(d->device, bytes_of(d, p.m, p.n, p.k, copied_floats(d, &p)), "a convolution"));
    return workspace_reserve(d->device, bytes_of(d, out, taps_of(d, in), outputs, 0), "a convolution");
}

/* The phase of the inputs that line or column [k] of the kernel reaches, in dimension [d]. */
static size_t phase_of(const struct window *w, int d, size_t k) {
    return (k * w->dilation[d] + w->stride[d] * w->padding[d] - w->padding[d]) % w->stride[d];
}

static bool is_in_phase(const struct window *w, size_t t, size_t y, size_t x) {
    return phase_of(w, 0, t / w->kernel[1]) == y && phase_of(w, 1, t % w->kernel[1]) == x;
}

/* Adds the positions of a phase to the first [count] of the order; returns how many there are then. */
static size_t add_positions(struct device_convolution *d, size_t count, size_t y, size_t x) {
    const struct window *w = &d->c.window;
    for (size_t line = 0; line < w->kernel[0]; line++)
        for (size_t column = 0; phase_of(w, 0, line) == y && column < w->kernel[1]; column++)
            if (phase_of(w, 1, column) == x) d->order[count++] = line * w->kernel[1] + column;
    return count;
}

static void order_positions(struct device_convolution *d) {
    size_t count = 0;
    for (size_t y = 0; y < d->c.window.stride[0]; y++)
        for (size_t x = 0; x < d->c.window.stride[1]; x++) count = add_positions(d, count, y, x);
    for (size_t i = 0; i < count; i++) d->places[d->order[i]] = i;
}

static void destroy(struct device_convolution *d) {
    free(d->order);
    free(d->places);
    free(d);
}

static status create(struct device *device, const struct convolution *c, size_t rows, size_t parts,
                     struct device_convolution **out) {
    struct device_convolution *d = calloc(1, sizeof *d);
    if (!d) return status_memory("a convolution");
    d->device = device;
    d->c = *c;
    d->parts = parts;
    d->positions = c->window.kernel[0] * c->window.kernel[1];
    d->weights = c->out.channels * taps_of(d, c->in.channels);
    d->order = calloc(d->positions, sizeof *d->order);
    d->places = calloc(d->positions, sizeof *d->places);
    status s = d->order && d->places ? prepare(d, rows, true) : status_memory("a convolution");
    if (s) {
        destroy(d);
        return s;
    }
    order_positions(d);
    *out = d;
    return OK;
}

static status create_one(struct device *device, const struct convolution *c, size_t rows,
                         struct device_convolution **out) {
    return create(device, c, rows, 1, out);
}

static status create_three(struct device *device, const struct convolution *c, size_t rows,
                           struct device_convolution **out) {
    return create(device, c, rows, 3, out);
}

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
    float *copy = p.m > 0 ? reserve(d, &p, 0, &space) : NULL;
    struct amx_weights weights = {.c = &d->c, .copy = copy, .out_stride = terms, .position_stride = in};
    if (!copy) {
        amx_fail(y, p.m * out);
        return;
    }
    amx_copy_weights(&weights, w);
    amx_product(&p, image_factor(&view, false), amx_columns(copy, terms, 1, d->parts), &space);
}

/* The gradient of a phase; NULL: it is 0. */
struct phase {
    const struct device_convolution *d;
    const float *from;
    float *dx;
    size_t y, x, height, width;
};

static void copy_phase(void *context, size_t first, size_t last) {
    const struct phase *p = context;
    const size_t *stride = p->d->c.window.stride;
    const struct image_shape *in = &p->d->c.in;
    for (size_t i = first; i < last; i++) { /* lines of the phase */
        size_t y = p->y + i % p->height * stride[0];
        float *to = p->dx + ((i / p->height * in->height + y) * in->width + p->x) * in->channels;
        for (size_t x = 0; x < p->width; x++, to += stride[1] * in->channels)
            if (p->from)
                memcpy(to, p->from + (i * p->width + x) * in->channels, in->channels * sizeof *to);
            else
                memset(to, 0, in->channels * sizeof *to);
    }
}

/* [copy]: the weights of the [positions] of the phase; result: memory, if the gradient is to be copied to dx */
static void phase_gradient(const struct device_convolution *d, const struct view *view, size_t positions,
                           const float *copy, float *result, float *dx, size_t rows, const struct amx_space *space) {
    size_t in = d->c.in.channels;
    struct cpu_product p = input_product(d, rows);
    p.m = rows * pixels_of(&view->grid);
    p.k = positions * d->c.out.channels;
    p.c = has_phases(d) ? result : dx;
    if (p.m == 0) return;
    if (p.k > 0) amx_product(&p, image_factor(view, false), amx_columns(copy, 1, in, d->parts), space);
    if (p.k > 0 && !has_phases(d)) return;
    struct phase phase = {
        d, p.k > 0 ? result : NULL, dx, view->phase[0], view->phase[1], view->grid.height, view->grid.width};
    parallel_for(rows * view->grid.height, parallel_items(view->grid.width * in), copy_phase, &phase);
}

static void input_gradient(struct device_convolution *d, const float *w, const float *dy, float *dx, size_t rows) {
    size_t in = d->c.in.channels, out = d->c.out.channels;
    struct amx_space space;
    struct cpu_product p = input_product(d, rows);
    float *copy = reserve(d, &p, copied_floats(d, &p), &space);
    struct amx_weights weights = {
        .c = &d->c, .copy = copy, .out_stride = in, .position_stride = out * in, .places = d->places};
    if (!copy) {
        amx_fail(dx, rows * pixels_of(&d->c.in) * in);
        return;
    }
    amx_copy_weights(&weights, w);
    for (size_t y = 0, first = 0, last = 0; y < d->c.window.stride[0]; y++)
        for (size_t x = 0; x < d->c.window.stride[1]; x++, first = last) {
            struct view view = gradients_of(d, dy, y, x);
            while (last < d->positions && is_in_phase(&d->c.window, d->order[last], y, x)) last++;
            view.order = d->order + first;
            phase_gradient(d, &view, last - first, copy + first * out * in, copy + d->weights, dx, rows, &space);
        }
}

static void weight_gradient(struct device_convolution *d, const float *x, const float *dy, float *dw, size_t rows) {
    size_t in = d->c.in.channels, out = d->c.out.channels, terms = taps_of(d, in);
    struct view view = inputs_of(d, x);
    struct cpu_product p = {
        .m = out, .n = terms, .k = rows * pixels_of(&d->c.out), .ldc = terms, .start = PRODUCT_ZERO};
    struct amx_space space;
    float *copy = reserve(d, &p, 0, &space);
    struct amx_weights weights = {.c = &d->c, .copy = copy, .out_stride = terms, .position_stride = in};
    if (!copy) {
        amx_fail(dw, d->weights);
        return;
    }
    p.c = copy;
    amx_product(&p, amx_rows(dy, 1, out, d->parts), image_factor(&view, true), &space);
    amx_add_weights(&weights, dw);
}

static void backward(struct device_convolution *d, const float *x, const float *w, const float *dy, float *dx,
                     float *dw, float *dbias, size_t rows) {
    (void)dbias; /* computed by the caller */
    if (rows == 0) return;
    if (dw) weight_gradient(d, x, dy, dw, rows);
    if (dx) input_gradient(d, w, dy, dx, rows);
}

static const struct convolution_kernels ops_one = {
    .create = create_one, .destroy = destroy, .prepare = prepare, .forward = forward, .backward = backward};
static const struct convolution_kernels ops_three = {
    .create = create_three, .destroy = destroy, .prepare = prepare, .forward = forward, .backward = backward};

const struct convolution_kernels *amx_convolution_of_one(const struct convolution *c) {
    if (suits(c) && !(amx_unit_stride_suits(c) && amx_unit_stride_is_faster(c))) return &ops_one;
    return amx_unit_stride_suits(c) ? &amx_unit_stride_ops : NULL;
}

const struct convolution_kernels *amx_convolution_of_three(const struct convolution *c) {
    return suits(c) ? &ops_three : NULL;
}
