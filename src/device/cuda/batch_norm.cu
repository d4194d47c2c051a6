/* Batch norm with the formulas of cpu/sets/image.c. Sums over positions are those of columns.cuh; the
 * statistics of each channel are computed from them on the GPU. cuDNN's batch norm is a single call, which does not
 * allow sums over ranks.
 *
 * With sync the sums are copied to the host, summed over ranks, and copied back: one of the operators that wait
 * for the GPU. */
#include "device/cuda/columns.cuh"
#include "device/cuda/product.cuh"

namespace { /* in each file, so that kernels of different files have different types */

/* A batch norm's workspace, as on the CPU: statistics, then sums in double. */
struct work {
    float *mean, *inverse, *scale, *shift, *from_x, *constant; /* (channels) */
    double *sums;                                              /* (2, channels) of all ranks */
    double *count;                                             /* positions of the statistics */
};

struct work work_of(float *work, size_t channels) {
    double *sums = (double *)(void *)(work + 6 * channels);
    return {
        work, work + channels,    work + 2 * channels, work + 3 * channels, work + 4 * channels, work + 5 * channels,
        sums, sums + 2 * channels};
}

/* The parameters for computing statistics from sums, as plain values for a kernel. */
struct rule {
    double eps, momentum;
    const float *weight, *bias;
    float *running_mean, *running_var;
};

/* running = (1 - momentum) running + momentum new; a batch of one value has no unbiased variance; its biased variance
 * is used */
__device__ void update_running(const struct rule &r, size_t c, float mean, float variance, double count) {
    double m = r.momentum, unbiased = count > 1 ? count / (count - 1) : 1;
    r.running_mean[c] = (float)((1 - m) * (double)r.running_mean[c] + m * (double)mean);
    r.running_var[c] = (float)((1 - m) * (double)r.running_var[c] + m * unbiased * (double)variance);
}

/* y = x scale + shift */
__device__ void store(const struct rule &r, const struct work &w, size_t c, float mean, float variance) {
    w.mean[c] = mean;
    w.inverse[c] = (float)(1 / sqrt((double)variance + r.eps));
    w.scale[c] = r.weight ? r.weight[c] * w.inverse[c] : w.inverse[c];
    w.shift[c] = fmaf(-mean, w.scale[c], r.bias ? r.bias[c] : 0);
}

/* mean and spread: of E[x - origin] and E[(x - origin)^2], or with origin 0 of those of all ranks */
__device__ void store_batch(const struct rule &r, const struct work &w, size_t c, double mean, double spread,
                            double count) {
    float variance = (float)(spread > 0 ? spread : 0);
    if (r.running_mean) update_running(r, c, (float)mean, variance, count);
    store(r, w, c, (float)mean, variance);
}

/* V parameters of channels. */
template <int V> __device__ gpu_several<V> of_channels(const float *values, size_t c) {
    struct gpu_several<V> v;
    for (int k = 0; k < V; k++) v.at[k] = values[c + k];
    return v;
}

/* The sums of x - origin and its square, origin being the first position's values. */
struct moments {
    struct gpu_numbers x;
    bool has_rows;
    template <int V> struct of_some {
        struct gpu_numbers x;
        struct gpu_several<V> origin;
        __device__ gpu_fetched<V> get(size_t, size_t i) const { return x.fetch_some<V>(i); }
        __device__ void add(struct gpu_fetched<V> got, float *terms) const {
            struct gpu_several<V> v = x.some<V>(got);
            for (int k = 0; k < V; k++) {
                float d = v.at[k] - origin.at[k];
                terms[k] += d;
                terms[V + k] = fmaf(d, d, terms[V + k]);
            }
        }
    };
    template <int V> __device__ of_some<V> of(size_t c) const {
        return {x, has_rows ? x.some_at<V>(c) : gpu_several<V>{}};
    }
};

template <typename Finish>
void sum_moments(operator_call *c, struct gpu_numbers x, size_t count, size_t channels, Finish finish) {
    column_sums_of<2>(c, count, channels, column_has_fours(channels, x), moments{x, count > 0}, finish);
}

void own_statistics(operator_call *c, const struct rule &r, const struct work &w, struct gpu_numbers x, size_t count,
                    size_t channels) {
    sum_moments(c, x, count, channels, [=] __device__(size_t channel, const double *sums) {
        double all = (double)count, shift = sums[0] / all;
        if (channel == 0) *w.count = all;
        store_batch(r, w, channel, (double)x.one(channel) + shift, sums[1] / all - shift * shift, all);
    });
}

/* Sums of x and x^2, which can be added up; a rank may have no positions. */
void shared_statistics(operator_call *c, const struct rule &r, const struct work &w, const struct all_sum *sync,
                       struct gpu_numbers x, size_t count, size_t channels) {
    sum_moments(c, x, count, channels, [=] __device__(size_t channel, const double *sums) {
        double origin = count ? (double)x.one(channel) : 0, all = (double)count;
        if (channel == 0) *w.count = all;
        w.sums[channel] = sums[0] + all * origin;
        w.sums[channels + channel] = sums[1] + origin * (2 * sums[0] + all * origin);
    });
    gpu_sum_over_ranks(c, sync, w.sums, 2 * channels + 1);
    c->each(channels, [=] __device__(size_t channel) {
        double mean = w.sums[channel] / *w.count;
        store_batch(r, w, channel, mean, w.sums[channels + channel] / *w.count - mean * mean, *w.count);
    });
}

/* y = max(x scale + shift, 0) */
struct application {
    struct gpu_numbers x;
    const float *scale, *shift;
    struct gpu_result y;
    bool has_relu;
    template <int V> struct of_some {
        struct gpu_numbers x;
        struct gpu_result y;
        struct gpu_several<V> scale, shift;
        bool has_relu;
        __device__ gpu_fetched<V> get(size_t i) const { return x.fetch_some<V>(i); }
        __device__ void put(size_t i, struct gpu_fetched<V> got) const {
            struct gpu_several<V> v = x.some<V>(got);
            for (int k = 0; k < V; k++) {
                v.at[k] = fmaf(v.at[k], scale.at[k], shift.at[k]);
                if (has_relu && v.at[k] <= 0) v.at[k] = 0;
            }
            y.put(i, v);
        }
    };
    template <int V> __device__ of_some<V> of(size_t c) const {
        return {x, y, of_channels<V>(scale, c), of_channels<V>(shift, c), has_relu};
    }
};

void apply(operator_call *c, const struct batch_norm *norm, const struct work &w, struct gpu_numbers x,
           struct gpu_result y, size_t count) {
    column_each(c, count, norm->channels, column_has_fours(norm->channels, x, y),
                application{x, w.scale, w.shift, y, norm->has_relu});
}

void batch_norm_forward(struct device *device, const struct batch_norm *norm, const struct tensor *x,
                        const float *weight, const float *bias, float *running_mean, float *running_var, float *work,
                        const struct tensor *y, size_t count) {
    operator_call c(device, "batch_norm_forward");
    size_t channels = norm->channels;
    struct gpu_numbers from = c.in(x, count * channels);
    struct work w = work_of(c.inout(work, BATCH_NORM_WORK(channels)), channels);
    struct rule r = {(double)norm->eps,    (double)norm->momentum,          c.in(weight, channels),
                     c.in(bias, channels), c.inout(running_mean, channels), c.inout(running_var, channels)};
    struct gpu_result to = c.out(y, count * channels);
    if (norm->uses_batch && norm->sync)
        shared_statistics(&c, r, w, norm->sync, from, count, channels);
    else if (norm->uses_batch)
        own_statistics(&c, r, w, from, count, channels);
    else
        c.each(channels, [=] __device__(size_t i) { store(r, w, i, r.running_mean[i], r.running_var[i]); });
    gpu_add_half_output(&c, &to);
    apply(&c, norm, w, from, to, count);
}

void batch_norm_recompute(struct device *device, const struct batch_norm *norm, const struct tensor *x, float *work,
                          const struct tensor *y, size_t count) {
    operator_call c(device, "batch_norm_recompute");
    size_t channels = norm->channels;
    struct gpu_numbers from = c.in(x, count * channels);
    struct work w = work_of(c.inout(work, BATCH_NORM_WORK(channels)), channels);
    apply(&c, norm, w, from, c.out(y, count * channels), count);
}

/* V numbers of x and dy. */
template <int V> struct fetched_pair { struct gpu_fetched<V> x, dy; };

/* The sums of g and g (x - mean); with a relu g is dy where y > 0. */
struct slopes {
    struct gpu_numbers x, dy;
    const float *mean, *scale, *shift;
    bool has_relu;
    template <int V> struct of_some {
        struct gpu_numbers x, dy;
        struct gpu_several<V> mean, scale, shift;
        bool has_relu;
        __device__ fetched_pair<V> get(size_t, size_t i) const { return {x.fetch_some<V>(i), dy.fetch_some<V>(i)}; }
        __device__ void add(struct fetched_pair<V> got, float *terms) const {
            struct gpu_several<V> from = x.some<V>(got.x), g = dy.some<V>(got.dy);
            for (int k = 0; k < V; k++) {
                if (has_relu && fmaf(from.at[k], scale.at[k], shift.at[k]) <= 0) g.at[k] = 0;
                terms[k] += g.at[k];
                terms[V + k] = fmaf(g.at[k], from.at[k] - mean.at[k], terms[V + k]);
            }
        }
    };
    template <int V> __device__ of_some<V> of(size_t c) const {
        return {x, dy, of_channels<V>(mean, c), of_channels<V>(scale, c), of_channels<V>(shift, c), has_relu};
    }
};

/* dx = scale (g - mean(g) - (x - mean) inverse^2 mean(g (x - mean))) */
struct application_back {
    struct work w;
    struct gpu_numbers x, dy;
    struct gpu_result dx;
    bool has_relu;
    template <int V> struct of_some {
        struct gpu_numbers x, dy;
        struct gpu_result dx;
        struct gpu_several<V> mean, scale, shift, from_x, constant;
        bool has_relu;
        __device__ fetched_pair<V> get(size_t i) const { return {x.fetch_some<V>(i), dy.fetch_some<V>(i)}; }
        __device__ void put(size_t i, struct fetched_pair<V> got) const {
            struct gpu_several<V> from = x.some<V>(got.x), g = dy.some<V>(got.dy);
            for (int k = 0; k < V; k++) {
                if (has_relu && fmaf(from.at[k], scale.at[k], shift.at[k]) <= 0) g.at[k] = 0;
                g.at[k] = fmaf(g.at[k], scale.at[k], fmaf(from.at[k] - mean.at[k], from_x.at[k], constant.at[k]));
            }
            dx.put(i, g);
        }
    };
    template <int V> __device__ of_some<V> of(size_t c) const {
        return {x,
                dy,
                dx,
                of_channels<V>(w.mean, c),
                of_channels<V>(w.scale, c),
                of_channels<V>(w.shift, c),
                of_channels<V>(w.from_x, c),
                of_channels<V>(w.constant, c),
                has_relu};
    }
};

/* Stores the values for application_back from the sums of g and g (x - mean) of all ranks. */
__device__ void store_back(const struct work &w, size_t c, double g, double products) {
    double inverse = (double)w.inverse[c], factor = -(double)w.scale[c], all = *w.count;
    w.from_x[c] = (float)(factor * inverse * inverse * products / all);
    w.constant[c] = (float)(factor * g / all);
}

void batch_norm_backward(struct device *device, const struct batch_norm *norm, const struct tensor *x,
                         const struct tensor *dy, float *work, const struct tensor *dx, float *dweight, float *dbias,
                         size_t count) {
    operator_call c(device, "batch_norm_backward");
    size_t channels = norm->channels;
    struct gpu_numbers input = c.in(x, count * channels), from = c.in(dy, count * channels);
    struct work w = work_of(c.inout(work, BATCH_NORM_WORK(channels)), channels);
    struct gpu_result to = c.out(dx, count * channels);
    float *dw = c.inout(dweight, channels), *db = c.inout(dbias, channels);
    bool has_fours = column_has_fours(channels, input, from, to);
    slopes terms = {input, from, w.mean, w.scale, w.shift, norm->has_relu};
    column_sums_of<2>(&c, count, channels, has_fours, terms, [=] __device__(size_t channel, const double *sums) {
        w.sums[channel] = sums[0];
        w.sums[channels + channel] = sums[1];
        if (dw) dw[channel] += (float)(sums[1] * (double)w.inverse[channel]);
        if (db) db[channel] += (float)sums[0]; /* of the rows of this rank, as every gradient */
        store_back(w, channel, sums[0], sums[1]);
    });
    if (norm->sync) {
        gpu_sum_over_ranks(&c, norm->sync, w.sums, 2 * channels);
        c.each(channels, [=] __device__(size_t i) { store_back(w, i, w.sums[i], w.sums[channels + i]); });
    }
    if (!to.is_wanted()) return;
    gpu_add_half_output(&c, &to);
    column_each(&c, count, channels, has_fours, application_back{w, input, from, to, norm->has_relu});
}

} // namespace

const struct image_ops gpu_batch_norms = {.batch_norm_forward = batch_norm_forward,
                                          .batch_norm_recompute = batch_norm_recompute,
                                          .batch_norm_backward = batch_norm_backward};
