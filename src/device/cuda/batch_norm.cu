/* Batch norm with the formulas of cpu/sets/image_norm.c. Sums over positions are those of columns.cuh; what is made of
 * them, a few numbers per channel, is made on the GPU. cuDNN's batch norm is one call from sums to result, which leaves
 * no place for the sums of other processes.
 *
 * With sync the sums go to the host, through its sum over processes, and back: the one operator that waits for the GPU.
 */
#include "device/cuda/columns.cuh"
#include "device/cuda/product.cuh"

namespace { /* types of kernels must not be those of another file */

/* A batch norm's workspace, as on the CPU: statistics, then sums in double. */
struct work {
    float *mean, *inverse, *scale, *shift, *from_x, *constant; /* (channels) */
    double *sums;                                              /* (2, channels) for all processes' */
    double *count;                                             /* positions that the statistics are of */
};

struct work work_of(float *work, size_t channels) {
    double *sums = (double *)(void *)(work + 6 * channels);
    return {
        work, work + channels,    work + 2 * channels, work + 3 * channels, work + 4 * channels, work + 5 * channels,
        sums, sums + 2 * channels};
}

/* What makes statistics of sums: plain values that a kernel can take. */
struct rule {
    double eps, momentum;
    const float *weight, *bias;
    float *running_mean, *running_var;
};

/* running = (1 - momentum) running + momentum new; a batch of one value has no unbiased variance and counts as it is */
__device__ void move_running(const struct rule &r, size_t c, float mean, float variance, double count) {
    double m = r.momentum, unbiased = count > 1 ? count / (count - 1) : 1;
    r.running_mean[c] = (float)((1 - m) * (double)r.running_mean[c] + m * (double)mean);
    r.running_var[c] = (float)((1 - m) * (double)r.running_var[c] + m * unbiased * (double)variance);
}

/* y = x scale + shift */
__device__ void keep(const struct rule &r, const struct work &w, size_t c, float mean, float variance) {
    w.mean[c] = mean;
    w.inverse[c] = (float)(1 / sqrt((double)variance + r.eps));
    w.scale[c] = r.weight ? r.weight[c] * w.inverse[c] : w.inverse[c];
    w.shift[c] = fmaf(-mean, w.scale[c], r.bias ? r.bias[c] : 0);
}

/* mean and spread: of E[x - origin] and E[(x - origin)^2], or with origin 0 of all processes' */
__device__ void keep_batch(const struct rule &r, const struct work &w, size_t c, double mean, double spread,
                           double count) {
    float variance = (float)(spread > 0 ? spread : 0);
    if (r.running_mean) move_running(r, c, (float)mean, variance, count);
    keep(r, w, c, (float)mean, variance);
}

/* The sums of all processes in place of this one's. */
void sum_over_processes(call *c, const struct all_sum *sync, double *sums, size_t count) {
    double *host = gpu_staging(c->gpu, count);
    if (!host) return; /* device_status tells; peers that wait learn of it when this process ends */
    if (c->is_ok()) c->check(cudaMemcpyAsync(host, sums, count * sizeof *sums, cudaMemcpyDeviceToHost, c->gpu->stream));
    if (c->is_ok()) c->check(cudaStreamSynchronize(c->gpu->stream));
    sync->sum(sync->user, host, count);
    if (c->is_ok()) c->check(cudaMemcpyAsync(sums, host, count * sizeof *sums, cudaMemcpyHostToDevice, c->gpu->stream));
}

/* The sums of x - origin and its square, origin being the first position's values. */
struct moments {
    const float *x;
    size_t channels;
    __device__ void operator()(size_t row, size_t c, float *terms) const {
        float d = x[row * channels + c] - x[c];
        terms[0] += d;
        terms[1] = fmaf(d, d, terms[1]);
    }
};

void own_statistics(call *c, const struct rule &r, const struct work &w, const float *x, size_t count,
                    size_t channels) {
    column_sums<2>(c, count, channels, moments{x, channels}, [=] __device__(size_t channel, const double *sums) {
        double all = (double)count, shift = sums[0] / all;
        if (channel == 0) *w.count = all;
        keep_batch(r, w, channel, (double)x[channel] + shift, sums[1] / all - shift * shift, all);
    });
}

/* Sums of x and x^2, which can be added up; a process may have no positions. */
void shared_statistics(call *c, const struct rule &r, const struct work &w, const struct all_sum *sync, const float *x,
                       size_t count, size_t channels) {
    column_sums<2>(c, count, channels, moments{x, channels}, [=] __device__(size_t channel, const double *sums) {
        double origin = count ? (double)x[channel] : 0, all = (double)count;
        if (channel == 0) *w.count = all;
        w.sums[channel] = sums[0] + all * origin;
        w.sums[channels + channel] = sums[1] + origin * (2 * sums[0] + all * origin);
    });
    sum_over_processes(c, sync, w.sums, 2 * channels + 1);
    c->each(channels, [=] __device__(size_t channel) {
        double mean = w.sums[channel] / *w.count;
        keep_batch(r, w, channel, mean, w.sums[channels + channel] / *w.count - mean * mean, *w.count);
    });
}

/* y = max(x scale + shift, 0) of one channel */
struct application {
    const float *x, *scale, *shift;
    float *y;
    bool has_relu;
    struct gpu_also also;
    struct of_channel {
        const float *x;
        float *y;
        float scale, shift;
        bool has_relu;
        struct gpu_also also;
        __device__ float get(size_t i) const { return x[i]; }
        __device__ void put(size_t i, float from) const {
            float v = fmaf(from, scale, shift), result = has_relu && v <= 0 ? 0 : v;
            y[i] = result;
            also.put(i, result);
        }
    };
    __device__ of_channel of(size_t c) const { return {x, y, scale[c], shift[c], has_relu, also}; }
};

/* With a relu a convolution is likely to be next, without one a sum. */
void apply(call *c, const struct batch_norm *norm, const struct work &w, const float *x, float *y, bool is_kept,
           size_t count) {
    struct gpu_also also = gpu_also_narrow(c, norm->has_relu && is_kept ? y : nullptr, count * norm->channels);
    column_each(c, count, norm->channels, application{x, w.scale, w.shift, y, norm->has_relu, also});
}

void batch_norm_forward(struct device *device, const struct batch_norm *norm, const float *x, const float *weight,
                        const float *bias, float *running_mean, float *running_var, float *work, float *y,
                        size_t count) {
    call c(device, "batch_norm_forward");
    size_t channels = norm->channels;
    const float *from = c.in(x, count * channels);
    struct work w = work_of(c.inout(work, BATCH_NORM_WORK(channels)), channels);
    struct rule r = {(double)norm->eps,    (double)norm->momentum,          c.in(weight, channels),
                     c.in(bias, channels), c.inout(running_mean, channels), c.inout(running_var, channels)};
    float *to = c.out(y, count * channels);
    if (norm->uses_batch && norm->sync)
        shared_statistics(&c, r, w, norm->sync, from, count, channels);
    else if (norm->uses_batch)
        own_statistics(&c, r, w, from, count, channels);
    else
        c.each(channels, [=] __device__(size_t i) { keep(r, w, i, r.running_mean[i], r.running_var[i]); });
    apply(&c, norm, w, from, to, to == y, count);
}

void batch_norm_again(struct device *device, const struct batch_norm *norm, const float *x, float *work, float *y,
                      size_t count) {
    call c(device, "batch_norm_again");
    size_t channels = norm->channels;
    const float *from = c.in(x, count * channels);
    struct work w = work_of(c.inout(work, BATCH_NORM_WORK(channels)), channels);
    apply(&c, norm, w, from, c.out(y, count * channels), false, count);
}

/* The sums of g and g (x - mean); with a relu g is dy where y > 0. */
struct slopes {
    const float *x, *dy, *mean, *scale, *shift;
    size_t channels;
    bool has_relu;
    __device__ void operator()(size_t row, size_t c, float *terms) const {
        size_t i = row * channels + c;
        float from = x[i], d = dy[i], g = has_relu && fmaf(from, scale[c], shift[c]) <= 0 ? 0 : d;
        terms[0] += g;
        terms[1] = fmaf(g, from - mean[c], terms[1]);
    }
};

/* dx = scale (g - mean(g) - (x - mean) inverse^2 mean(g (x - mean))) of one channel */
struct application_back {
    struct work w;
    const float *x, *dy;
    float *dx;
    bool has_relu;
    struct gpu_also also;
    struct of_channel {
        const float *x, *dy;
        float *dx;
        float mean, scale, shift, from_x, constant;
        bool has_relu;
        struct gpu_also also;
        __device__ float2 get(size_t i) const { return {x[i], dy[i]}; }
        __device__ void put(size_t i, float2 from) const {
            float g = has_relu && fmaf(from.x, scale, shift) <= 0 ? 0 : from.y;
            float result = fmaf(g, scale, fmaf(from.x - mean, from_x, constant));
            dx[i] = result;
            also.put(i, result);
        }
    };
    __device__ of_channel of(size_t c) const {
        return {x, dy, dx, w.mean[c], w.scale[c], w.shift[c], w.from_x[c], w.constant[c], has_relu, also};
    }
};

/* What application_back takes from the sums of g and g (x - mean) of all processes. */
__device__ void keep_back(const struct work &w, size_t c, double g, double products) {
    double inverse = (double)w.inverse[c], factor = -(double)w.scale[c], all = *w.count;
    w.from_x[c] = (float)(factor * inverse * inverse * products / all);
    w.constant[c] = (float)(factor * g / all);
}

void batch_norm_backward(struct device *device, const struct batch_norm *norm, const float *x, const float *dy,
                         float *work, float *dx, float *dweight, float *dbias, size_t count) {
    call c(device, "batch_norm_backward");
    size_t channels = norm->channels;
    const float *input = c.in(x, count * channels), *from = c.in(dy, count * channels);
    struct work w = work_of(c.inout(work, BATCH_NORM_WORK(channels)), channels);
    float *to = c.out(dx, count * channels), *dw = c.inout(dweight, channels), *db = c.inout(dbias, channels);
    slopes terms = {input, from, w.mean, w.scale, w.shift, channels, norm->has_relu};
    column_sums<2>(&c, count, channels, terms, [=] __device__(size_t channel, const double *sums) {
        w.sums[channel] = sums[0];
        w.sums[channels + channel] = sums[1];
        if (dw) dw[channel] += (float)(sums[1] * (double)w.inverse[channel]);
        if (db) db[channel] += (float)sums[0]; /* of this process's rows, as every gradient */
        keep_back(w, channel, sums[0], sums[1]);
    });
    if (norm->sync) {
        sum_over_processes(&c, norm->sync, w.sums, 2 * channels);
        c.each(channels, [=] __device__(size_t i) { keep_back(w, i, w.sums[i], w.sums[channels + i]); });
    }
    if (!to) return;
    struct gpu_also also = gpu_also_narrow(&c, to == dx ? dx : nullptr, count * channels); /* of a convolution, often */
    column_each(&c, count, channels, application_back{w, input, from, to, norm->has_relu, also});
}

} // namespace

const struct image_ops gpu_batch_norms = {.batch_norm_forward = batch_norm_forward,
                                          .batch_norm_again = batch_norm_again,
                                          .batch_norm_backward = batch_norm_backward};
