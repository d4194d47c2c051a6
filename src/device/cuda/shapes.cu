/* Operators that change shapes. A thread computes one element of the result; in backward it gathers the gradients of
 * the elements that read it, in the order of the CPU, so no two threads add to the same element. */
#include "device/cuda/gpu.cuh"

static void permute(struct device *device, const struct permutation *permutation, const float *x, float *y,
                    size_t rows) {
    operator_call c(device, "permute");
    struct permutation p = *permutation;
    size_t size = 1;
    for (int d = 0; d < p.dims; d++) size *= p.size[d];
    const float *from = c.in(x, rows * size);
    float *to = c.out(y, rows * size);
    c.each(rows * size, [=] __device__(size_t i) {
        size_t row = i / size, rest = i % size, at = row * size;
        for (int d = p.dims - 1; d >= 0; d--) {
            at += rest % p.size[d] * p.stride[d];
            rest /= p.size[d];
        }
        to[i] = from[at];
    });
}

/* Coordinates of an element of (rows, height, width, inner). */
struct pixel {
    size_t row, y, x, inner;
};

__device__ static inline struct pixel pixel_of(size_t i, size_t height, size_t width, size_t inner) {
    size_t n = i / inner, line = n / width;
    return {line / height, line % height, n % width, i % inner};
}

static void pad_forward(struct device *device, const struct pad *pad, const float *x, float *y, size_t rows) {
    operator_call c(device, "pad_forward");
    struct pad p = *pad;
    size_t depth = pad_size(&p, 0), height = pad_size(&p, 1), width = pad_size(&p, 2), in = pad_inputs(&p);
    const float *from = c.in(x, rows * in);
    float *to = c.out(y, rows * pad_outputs(&p));
    c.each(rows * pad_outputs(&p), [=] __device__(size_t i) {
        struct pixel at = pixel_of(i, height, width, p.inner); /* row: of all images */
        size_t pixel = pad_pixel(&p, at.row % depth, at.y, at.x);
        to[i] = pixel == PAD_NONE ? p.value : from[at.row / depth * in + pixel * p.inner + at.inner];
    });
}

static void pad_backward(struct device *device, const struct pad *pad, const float *dy, float *dx, size_t rows) {
    operator_call c(device, "pad_backward");
    struct pad p = *pad;
    size_t height = pad_size(&p, 1), width = pad_size(&p, 2), out = pad_outputs(&p);
    const float *from = c.in(dy, rows * out);
    float *to = c.out(dx, rows * pad_inputs(&p));
    c.each(rows * pad_inputs(&p), [=] __device__(size_t i) {
        struct pixel at = pixel_of(i, p.in[1], p.in[2], p.inner); /* row: of all images */
        struct pad_targets d = pad_targets(&p, 0, at.row % p.in[0]);
        struct pad_targets v = pad_targets(&p, 1, at.y), h = pad_targets(&p, 2, at.x);
        const float *row = from + at.row / p.in[0] * out + at.inner;
        float sum = 0;
        for (int l = 0; l < 3; l++)
            for (size_t z = d.from[l]; z < d.to[l]; z++)
                for (int j = 0; j < 3; j++)
                    for (size_t a = v.from[j]; a < v.to[j]; a++)
                        for (int k = 0; k < 3; k++)
                            for (size_t b = h.from[k]; b < h.to[k]; b++)
                                sum += row[((z * height + a) * width + b) * p.inner];
        to[i] = sum;
    });
}

static void resize_forward(struct device *device, const struct resize *resize, const float *x, float *y, size_t rows) {
    operator_call c(device, "resize_forward");
    struct resize r = *resize;
    size_t width = r.side[1].in, in = r.side[0].in * width * r.channels;
    size_t count = rows * r.side[0].out * r.side[1].out * r.channels;
    const float *from = c.in(x, rows * in);
    float *to = c.out(y, count);
    c.each(count, [=] __device__(size_t i) {
        struct pixel at = pixel_of(i, r.side[0].out, r.side[1].out, r.channels);
        struct resize_taps v = resize_taps(&r, 0, at.y), h = resize_taps(&r, 1, at.x);
        const float *image = from + at.row * in + at.inner;
        size_t top = v.first * width, bottom = v.second * width;
        float first = image[(top + h.first) * r.channels];
        if (r.is_nearest) {
            to[i] = first;
            return;
        }
        float a = 1 - v.weight, b = 1 - h.weight;
        to[i] = a * b * first + a * h.weight * image[(top + h.second) * r.channels] +
                v.weight * b * image[(bottom + h.first) * r.channels] +
                v.weight * h.weight * image[(bottom + h.second) * r.channels];
    });
}

/* The weight with which an output reads element [i]. */
__device__ static inline float weight_of(const struct resize_taps &t, size_t i) {
    return (t.first == i ? 1 - t.weight : 0) + (t.second == i ? t.weight : 0);
}

static void resize_backward(struct device *device, const struct resize *resize, const float *dy, float *dx,
                            size_t rows) {
    operator_call c(device, "resize_backward");
    struct resize r = *resize;
    size_t width = r.side[1].out, out = r.side[0].out * width * r.channels;
    size_t count = rows * r.side[0].in * r.side[1].in * r.channels;
    const float *from = c.in(dy, rows * out);
    float *to = c.out(dx, count);
    c.each(count, [=] __device__(size_t i) {
        struct pixel at = pixel_of(i, r.side[0].in, r.side[1].in, r.channels);
        struct resize_readers v = resize_readers(&r, 0, at.y), h = resize_readers(&r, 1, at.x);
        float sum = 0;
        for (size_t a = v.from; a < v.to; a++) {
            float tall = weight_of(resize_taps(&r, 0, a), at.y);
            for (size_t b = h.from; tall != 0 && b < h.to; b++) {
                float wide = weight_of(resize_taps(&r, 1, b), at.x);
                if (wide != 0) sum += tall * wide * from[at.row * out + (a * width + b) * r.channels + at.inner];
            }
        }
        to[i] = sum;
    });
}

static void max_forward(struct device *device, const float *x, const int32_t *lengths, float *y, int32_t *index,
                        size_t outer, size_t count, size_t inner) {
    operator_call c(device, "max_forward");
    const float *from = c.in(x, outer * count * inner);
    const int32_t *ends = c.in(lengths, outer);
    float *to = c.out(y, outer * inner);
    int32_t *at = c.out(index, outer * inner);
    c.each(outer * inner, [=] __device__(size_t i) {
        const float *values = from + i / inner * count * inner + i % inner;
        float best = *values;
        size_t found = 0, end = ends ? (size_t)ends[i / inner] : count;
        for (size_t k = 1; k < end; k++) {
            float v = values[k * inner];
            if (v > best || (v != v && best == best)) best = v, found = k;
        }
        to[i] = best;
        at[i] = (int32_t)found;
    });
}

static void max_backward(struct device *device, const int32_t *index, const float *dy, float *dx, size_t outer,
                         size_t count, size_t inner) {
    operator_call c(device, "max_backward");
    const int32_t *at = c.in(index, outer * inner);
    const float *from = c.in(dy, outer * inner);
    float *to = c.out(dx, outer * count * inner);
    c.each(outer * count * inner, [=] __device__(size_t i) {
        size_t row = i / (count * inner), k = i / inner % count, source = row * inner + i % inner;
        to[i] = (size_t)at[source] == k ? from[source] : 0;
    });
}

static void unfold_depth(struct device *device, const struct depth_window *window, const float *x, float *y,
                         size_t rows) {
    operator_call c(device, "unfold_depth");
    struct depth_window w = *window;
    size_t slice = w.positions * w.channels, count = rows * w.out * slice * w.kernel;
    const float *from = c.in(x, rows * w.in * slice);
    float *to = c.out(y, count);
    c.each(count, [=] __device__(size_t i) {
        size_t k = i % w.kernel, element = i / w.kernel % slice, o = i / w.kernel / slice;
        size_t at = depth_source(&w, o % w.out, k);
        to[i] = at == SIZE_MAX ? 0 : from[(o / w.out * w.in + at) * slice + element];
    });
}

static void fold_depth(struct device *device, const struct depth_window *window, const float *dy, float *dx,
                       size_t rows) {
    operator_call c(device, "fold_depth");
    struct depth_window w = *window;
    size_t slice = w.positions * w.channels, count = rows * w.in * slice;
    const float *from = c.in(dy, rows * w.out * slice * w.kernel);
    float *to = c.out(dx, count);
    c.each(count, [=] __device__(size_t i) {
        size_t element = i % slice, depth = i / slice;
        float sum = 0;
        for (size_t k = 0; k < w.kernel; k++) {
            size_t o = depth_target(&w, depth % w.in, k);
            if (o != SIZE_MAX) sum += from[((depth / w.in * w.out + o) * slice + element) * w.kernel + k];
        }
        to[i] = sum;
    });
}

const struct shape_ops gpu_shapes = {.permute = permute,
                                     .pad_forward = pad_forward,
                                     .pad_backward = pad_backward,
                                     .resize_forward = resize_forward,
                                     .resize_backward = resize_backward,
                                     .max_forward = max_forward,
                                     .max_backward = max_backward,
                                     .unfold_depth = unfold_depth,
                                     .fold_depth = fold_depth};
