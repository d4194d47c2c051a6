/* Poolings with the formulas, windows, positions and order of sums of cpu/sets/image.c: results are those of the CPU
 * to the bit. cuDNN's poolings support neither ceil_mode nor divisor_override nor adaptive windows, store no
 * positions, and read x again in backward. A thread computes one element, or four adjacent channels of a position: in
 * forward it reads its window, in backward it gathers from the windows that contain the element, so no two threads
 * add to the same element. */
#include "device/cuda/gpu.cuh"
#include "device/math.h"

/* f.run<V>(row of the batch, first of V elements of its [size]) for each; 32 bits are enough for the elements of one
 * image, and divide quickly. */
template <int V, typename F> __global__ void pool_elements(size_t rows, uint32_t size, F f) {
    uint32_t element = V * (blockIdx.x * GPU_THREADS + threadIdx.x);
    for (size_t row = blockIdx.y; element < size && row < rows; row += gridDim.y) f.template run<V>(row, element);
}

template <int V, typename F> static void each_some(operator_call *c, size_t rows, size_t size, F f) {
    if (rows == 0 || size == 0) return;
    unsigned blocks = (unsigned)((size / V + GPU_THREADS - 1) / GPU_THREADS);
    c->launch(pool_elements<V, F>, dim3(blocks, rows < 65535 ? (unsigned)rows : 65535), GPU_THREADS, 0, rows,
              (uint32_t)size, f);
}

/* [has_fours]: channels are a multiple of 4, and operands aligned. */
template <typename F> static void each_element(operator_call *c, size_t rows, size_t size, bool has_fours, F f) {
    if (has_fours)
        each_some<4>(c, rows, size, f);
    else
        each_some<1>(c, rows, size, f);
}

template <typename... Operand> static bool has_fours(uint32_t channels, const Operand &...operands) {
    return channels % 4 == 0 && (... && operands.has_fours());
}

/* struct pooling along one dimension: [0] height, [1] width. */
struct side {
    int in, out, kernel, stride, padding;
    bool is_adaptive;
};

struct pool {
    struct side side[2];
    uint32_t channels;
    uint32_t in, out; /* elements of a row */
    bool excludes_padding, has_relu;
    size_t divisor;
};

static struct pool pool_of(const struct pooling *p) {
    const size_t in[2] = {p->in.height, p->in.width}, out[2] = {p->out.height, p->out.width};
    struct pool pool = {};
    for (int d = 0; d < 2; d++)
        pool.side[d] = {
            (int)in[d],    (int)out[d], (int)p->window.kernel[d], (int)p->window.stride[d], (int)p->window.padding[d],
            p->is_adaptive};
    pool.channels = (uint32_t)p->in.channels;
    pool.in = (uint32_t)(in[0] * in[1] * p->in.channels);
    pool.out = (uint32_t)(out[0] * out[1] * p->in.channels);
    pool.excludes_padding = p->is_adaptive || p->excludes_padding;
    pool.has_relu = p->has_relu;
    pool.divisor = p->divisor;
    return pool;
}

/* The real elements of a window; [skipped]: number of padding elements before them; [padded]: all of its elements in
 * the padded image, which the last window may exceed. */
struct span {
    int from, to, skipped, padded;
};

__device__ static inline struct span span_of(const struct side &s, int o) {
    if (s.is_adaptive) {
        int from = (int)((int64_t)o * s.in / s.out), to = (int)(((int64_t)(o + 1) * s.in + s.out - 1) / s.out);
        return {from, to, 0, to - from};
    }
    int start = o * s.stride - s.padding, end = start + s.kernel, from = start < 0 ? 0 : start;
    return {from, end < s.in ? end : s.in, from - start, (end < s.in + s.padding ? end : s.in + s.padding) - start};
}

/* The windows that may contain element [i]: [first, last). */
struct windows {
    int first, last;
};

__device__ static inline struct windows windows_of(const struct side &s, int i) {
    if (s.is_adaptive) return {(int)((int64_t)i * s.out / s.in), (int)(((int64_t)(i + 1) * s.out + s.in - 1) / s.in)};
    int at = i + s.padding, first = at < s.kernel ? 0 : (at - s.kernel) / s.stride + 1, last = at / s.stride + 1;
    return {first, last < s.out ? last : s.out};
}

/* The coordinates of an element of an image. */
struct pool_place {
    int y, x;
    uint32_t channel;
};

__device__ static inline struct pool_place place_of(uint32_t element, uint32_t channels, int width) {
    uint32_t pixel = element / channels, y = pixel / (uint32_t)width;
    return {(int)y, (int)(pixel - y * (uint32_t)width), element - pixel * channels};
}

/* V positions within windows, side by side in memory. */
template <int V> struct positions { uint8_t at[V]; };
template <> struct __align__(4) positions<4> { uint8_t at[4]; };

struct max_windows {
    struct pool p;
    struct gpu_numbers x;
    struct gpu_result y;
    uint8_t *index;

    template <int V> __device__ void run(size_t row, uint32_t element) const {
        struct pool_place o = place_of(element, p.channels, p.side[1].out);
        struct span v = span_of(p.side[0], o.y), h = span_of(p.side[1], o.x);
        struct gpu_several<V> best = {};
        int at[V];
        for (int k = 0; k < V; k++) at[k] = -1;
        for (int i = v.from; i < v.to; i++)
            for (int j = h.from; j < h.to; j++) {
                size_t from = row * p.in + (size_t)(i * p.side[1].in + j) * p.channels + o.channel;
                struct gpu_several<V> value = x.some_at<V>(from);
                for (int k = 0; k < V; k++) {
                    if (at[k] >= 0 && !(value.at[k] > best.at[k] || value.at[k] != value.at[k])) continue;
                    best.at[k] = value.at[k];
                    at[k] = (i - v.from + v.skipped) * p.side[1].kernel + j - h.from + h.skipped;
                }
            }
        positions<V> found;
        for (int k = 0; k < V; k++) {
            if (p.has_relu && best.at[k] <= 0) best.at[k] = 0;
            found.at[k] = (uint8_t)at[k];
        }
        *(positions<V> *)(index + row * p.out + element) = found;
        y.put(row * p.out + element, best);
    }
};

static void max_pool_forward(struct device *device, const struct pooling *pooling, const struct tensor *x,
                             const struct tensor *y, uint8_t *index, size_t rows) {
    operator_call c(device, "max_pool_forward");
    struct pool p = pool_of(pooling);
    struct gpu_numbers from = c.in(x, rows * p.in);
    struct gpu_result to = c.out(y, rows * p.out);
    uint8_t *at = c.out(index, rows * p.out);
    each_element(&c, rows, p.out, has_fours(p.channels, from, to) && alignment(at) >= 4, max_windows{p, from, to, at});
}

/* Calls f(element of the output, spans of the window) for each window that contains the input element [in], in order.
 */
template <typename F> __device__ static inline void in_windows(const struct pool &p, struct pool_place in, F f) {
    struct windows rows = windows_of(p.side[0], in.y), columns = windows_of(p.side[1], in.x);
    for (int i = rows.first; i < rows.last; i++) {
        struct span v = span_of(p.side[0], i);
        for (int j = columns.first; j < columns.last; j++)
            f((uint32_t)(i * p.side[1].out + j) * p.channels + in.channel, v, span_of(p.side[1], j));
    }
}

struct max_gradients {
    struct pool p;
    struct gpu_numbers y, dy;
    const uint8_t *index;
    struct gpu_result dx;

    template <int V> __device__ void run(size_t row, uint32_t element) const {
        struct pool_place in = place_of(element, p.channels, p.side[1].in);
        struct gpu_several<V> sum = {};
        in_windows(p, in, [&](uint32_t o, struct span v, struct span h) {
            int own = (in.y - v.from + v.skipped) * p.side[1].kernel + in.x - h.from + h.skipped;
            size_t out = row * p.out + o;
            positions<V> found = *(const positions<V> *)(index + out);
            struct gpu_several<V> slope = dy.some_at<V>(out), output = {};
            if (p.has_relu) output = y.some_at<V>(out);
            for (int k = 0; k < V; k++) {
                bool counts = found.at[k] == own && (!p.has_relu || output.at[k] > 0);
                sum.at[k] += counts ? slope.at[k] : 0;
            }
        });
        dx.put(row * p.in + element, sum);
    }
};

static void max_pool_backward(struct device *device, const struct pooling *pooling, const struct tensor *y,
                              const uint8_t *index, const struct tensor *dy, const struct tensor *dx, size_t rows) {
    operator_call c(device, "max_pool_backward");
    struct pool p = pool_of(pooling);
    struct gpu_numbers output = c.in(y, rows * p.out), from = c.in(dy, rows * p.out);
    struct gpu_result to = c.out(dx, rows * p.in);
    const uint8_t *at = c.in(index, rows * p.out);
    each_element(&c, rows, p.in, has_fours(p.channels, output, from, to) && alignment(at) >= 4,
                 max_gradients{p, output, from, at, to});
}

struct max_elements {
    struct pool p;
    struct gpu_numbers x;
    const uint8_t *index;
    struct gpu_result y;

    template <int V> __device__ void run(size_t row, uint32_t element) const {
        struct pool_place o = place_of(element, p.channels, p.side[1].out);
        struct span v = span_of(p.side[0], o.y), h = span_of(p.side[1], o.x);
        positions<V> found = *(const positions<V> *)(index + row * p.out + element);
        struct gpu_several<V> value;
        for (int k = 0; k < V; k++) {
            int i = found.at[k] / p.side[1].kernel - v.skipped, j = found.at[k] % p.side[1].kernel - h.skipped;
            size_t pixel = (size_t)((v.from + i) * p.side[1].in + h.from + j);
            value.at[k] = x.one(row * p.in + pixel * p.channels + o.channel + (uint32_t)k);
        }
        y.put(row * p.out + element, value);
    }
};

static void max_pool_gather(struct device *device, const struct pooling *pooling, const uint8_t *index,
                            const struct tensor *x, const struct tensor *y, size_t rows) {
    operator_call c(device, "max_pool_gather");
    struct pool p = pool_of(pooling);
    struct gpu_numbers from = c.in(x, rows * p.in);
    struct gpu_result to = c.out(y, rows * p.out);
    const uint8_t *at = c.in(index, rows * p.out);
    each_element(&c, rows, p.out, has_fours(p.channels, to) && alignment(at) >= 4, max_elements{p, from, at, to});
}

/* 1 / elements of the window */
__device__ static inline float window_factor(const struct pool &p, struct span v, struct span h) {
    if (p.divisor) return 1 / (float)p.divisor;
    return 1 / (float)(p.excludes_padding ? (v.to - v.from) * (h.to - h.from) : v.padded * h.padded);
}

struct averages {
    struct pool p;
    struct gpu_numbers x;
    struct gpu_result y;

    template <int V> __device__ void run(size_t row, uint32_t element) const {
        struct pool_place o = place_of(element, p.channels, p.side[1].out);
        struct span v = span_of(p.side[0], o.y), h = span_of(p.side[1], o.x);
        size_t image = row * p.in + o.channel;
        bool is_long = (size_t)(v.to - v.from) * (size_t)(h.to - h.from) > LONG_SUM;
        struct gpu_several<V> sum = {}, above = {}; /* above: the lines above, of a long sum */
        for (int i = v.from; i < v.to; i++) {
            for (int j = h.from; j < h.to; j++) {
                struct gpu_several<V> value = x.some_at<V>(image + (size_t)(i * p.side[1].in + j) * p.channels);
                for (int k = 0; k < V; k++) sum.at[k] += value.at[k];
            }
            for (int k = 0; k < V && is_long; k++) above.at[k] += sum.at[k], sum.at[k] = 0;
        }
        for (int k = 0; k < V && is_long; k++) sum.at[k] = above.at[k];
        for (int k = 0; k < V; k++) sum.at[k] *= window_factor(p, v, h);
        y.put(row * p.out + element, sum);
    }
};

static void avg_pool_forward(struct device *device, const struct pooling *pooling, const struct tensor *x,
                             const struct tensor *y, size_t rows) {
    operator_call c(device, "avg_pool_forward");
    struct pool p = pool_of(pooling);
    struct gpu_numbers from = c.in(x, rows * p.in);
    struct gpu_result to = c.out(y, rows * p.out);
    each_element(&c, rows, p.out, has_fours(p.channels, from, to), averages{p, from, to});
}

struct average_gradients {
    struct pool p;
    struct gpu_numbers dy;
    struct gpu_result dx;

    template <int V> __device__ void run(size_t row, uint32_t element) const {
        struct gpu_several<V> sum = {};
        in_windows(p, place_of(element, p.channels, p.side[1].in), [&](uint32_t o, struct span v, struct span h) {
            struct gpu_several<V> slope = dy.some_at<V>(row * p.out + o);
            for (int k = 0; k < V; k++) sum.at[k] += slope.at[k] * window_factor(p, v, h);
        });
        dx.put(row * p.in + element, sum);
    }
};

static void avg_pool_backward(struct device *device, const struct pooling *pooling, const struct tensor *dy,
                              const struct tensor *dx, size_t rows) {
    operator_call c(device, "avg_pool_backward");
    struct pool p = pool_of(pooling);
    struct gpu_numbers from = c.in(dy, rows * p.out);
    struct gpu_result to = c.out(dx, rows * p.in);
    each_element(&c, rows, p.in, has_fours(p.channels, from, to), average_gradients{p, from, to});
}

const struct image_ops gpu_poolings = {.max_pool_forward = max_pool_forward,
                                       .max_pool_backward = max_pool_backward,
                                       .max_pool_gather = max_pool_gather,
                                       .avg_pool_forward = avg_pool_forward,
                                       .avg_pool_backward = avg_pool_backward};
