/* Group norm with the formulas of cpu/sets/image.c: a block computes one group of a row of the batch, with sums in
 * double. Gradients of the weights are sums over all positions of a channel (columns.cuh). */
#include "device/cuda/columns.cuh"

namespace { /* in each file, so that kernels of different files have different types */

/* The elements of one group: [size] channels that lie side by side at each position. Neighbouring threads process
 * [width] channels, a power of two. */
struct group {
    size_t groups, size, channels, positions;
    unsigned width;
};

struct group group_of(const struct group_norm *norm) {
    struct group g = {norm->groups, norm->channels / norm->groups, norm->channels, norm->positions, 1};
    while (g.width < GPU_THREADS && g.width < g.size) g.width *= 2;
    return g;
}

/* f(element of the image, channel of the group) for a thread's share of the group */
template <typename F> __device__ inline void in_group(const struct group &g, size_t group, F f) {
    size_t lanes = GPU_THREADS / g.width, at = group * g.size;
    for (size_t i = threadIdx.x / g.width; i < g.positions; i += lanes)
        for (size_t c = threadIdx.x % g.width; c < g.size; c += g.width) f(i * g.channels + at + c, at + c);
}

__device__ void forward_group(const struct group &g, size_t group, float eps, const struct gpu_numbers &x,
                              const float *weight, const float *bias, float *saved, const struct gpu_result &y) {
    double sum = 0, squares = 0, count = (double)(g.size * g.positions), origin = (double)x.one(group * g.size);
    in_group(g, group, [&](size_t e, size_t) {
        double d = (double)x.one(e) - origin;
        sum += d;
        squares += d * d;
    });
    sum = gpu_reduce(sum, gpu_add()) / count;
    double variance = gpu_reduce(squares, gpu_add()) / count - sum * sum;
    float mean = (float)(origin + sum), inverse = (float)(1 / sqrt((variance < 0 ? 0 : variance) + (double)eps));
    if (threadIdx.x == 0) saved[0] = mean, saved[1] = inverse;
    in_group(g, group, [&](size_t e, size_t channel) {
        float v = (x.one(e) - mean) * inverse;
        y.put(e, weight ? fmaf(v, weight[channel], bias[channel]) : v);
    });
}

void group_norm_forward(struct device *device, const struct group_norm *norm, const struct tensor *x,
                        const float *weight, const float *bias, float *saved, const struct tensor *y, size_t rows) {
    operator_call c(device, "group_norm_forward");
    struct group g = group_of(norm);
    size_t row = g.channels * g.positions, all = rows * g.groups;
    struct gpu_numbers from = c.in(x, rows * row);
    struct gpu_result to = c.out(y, rows * row);
    const float *w = c.in(weight, g.channels), *b = c.in(bias, g.channels);
    float *statistics = c.out(saved, 2 * all), eps = norm->eps;
    c.rows(all, [=] __device__(size_t i) {
        size_t r = i / g.groups;
        forward_group(g, i % g.groups, eps, from.from(r * row), w, b, statistics + 2 * i, to.from(r * row));
    });
}

/* v = (x - mean) inverse;  h = dy weight;  dx = inverse (h - mean(h) - v mean(h v)) */
__device__ void backward_group(const struct group &g, size_t group, const struct gpu_numbers &x, const float *weight,
                               const float *saved, const struct gpu_numbers &dy, const struct gpu_result &dx) {
    float mean = saved[0], inverse = saved[1];
    double sum = 0, product = 0, count = (double)(g.size * g.positions);
    in_group(g, group, [&](size_t e, size_t channel) {
        float v = (x.one(e) - mean) * inverse, h = weight ? dy.one(e) * weight[channel] : dy.one(e);
        sum += (double)h;
        product += (double)(h * v);
    });
    float h_mean = (float)(gpu_reduce(sum, gpu_add()) / count);
    float hv_mean = (float)(gpu_reduce(product, gpu_add()) / count);
    in_group(g, group, [&](size_t e, size_t channel) {
        float v = (x.one(e) - mean) * inverse, h = weight ? dy.one(e) * weight[channel] : dy.one(e);
        dx.put(e, inverse * (h - h_mean - v * hv_mean));
    });
}

/* The sums of dy and dy v; rows are the positions of all images. */
struct slopes {
    struct gpu_numbers x, dy;
    const float *saved;
    struct group g;
    __device__ void operator()(size_t row, size_t c, float *terms) const {
        size_t i = row * g.channels + c;
        const float *statistics = saved + 2 * (row / g.positions * g.groups + c / g.size);
        float d = dy.one(i);
        terms[0] += d;
        terms[1] += d * ((x.one(i) - statistics[0]) * statistics[1]);
    }
};

void group_norm_backward(struct device *device, const struct group_norm *norm, const struct tensor *x,
                         const float *weight, const float *saved, const struct tensor *dy, const struct tensor *dx,
                         float *dweight, float *dbias, size_t rows) {
    operator_call c(device, "group_norm_backward");
    struct group g = group_of(norm);
    size_t row = g.channels * g.positions, all = rows * g.groups;
    struct gpu_numbers input = c.in(x, rows * row), from = c.in(dy, rows * row);
    const float *w = c.in(weight, g.channels), *statistics = c.in(saved, 2 * all);
    struct gpu_result to = c.out(dx, rows * row);
    float *dw = c.inout(dweight, g.channels), *db = c.inout(dbias, g.channels);
    if (dw || db)
        column_sums<2>(&c, rows * g.positions, g.channels, slopes{input, from, statistics, g},
                       [=] __device__(size_t channel, const double *sums) {
                           if (db) db[channel] += (float)sums[0];
                           if (dw) dw[channel] += (float)sums[1];
                       });
    if (to.is_wanted())
        c.rows(all, [=] __device__(size_t i) {
            size_t r = i / g.groups;
            backward_group(g, i % g.groups, input.from(r * row), w, statistics + 2 * i, from.from(r * row),
                           to.from(r * row));
        });
}

} // namespace

const struct image_ops gpu_group_norms = {.group_norm_forward = group_norm_forward,
                                          .group_norm_backward = group_norm_backward};
