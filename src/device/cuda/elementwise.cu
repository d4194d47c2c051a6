/* Operators whose elements are independent, with the formulas of device/activations.h and cpu/sets/kernels.c, and the
 * sums over a whole buffer. */
#include <cmath>
#include <cstdlib>

#include "device/activations.h"
#include "device/cuda/columns.cuh"
#include "device/cuda/draws.cuh"
#include "device/cuda/elements.cuh"
#include "device/cuda/rows.cuh"

static void add(struct device *device, const struct tensor *a, const struct tensor *b, const struct tensor *y,
                size_t count) {
    operator_call c(device, "add");
    struct gpu_numbers from = c.in(a, count), other = c.in(b, count);
    elements(
        &c, count, c.out(y, count), [] __device__(float u, float v) { return u + v; }, from, other);
}

static void copy(struct device *device, const struct tensor *x, const struct tensor *y, size_t count) {
    operator_call c(device, "copy");
    struct gpu_numbers from = c.in(x, count);
    elements(
        &c, count, c.out(y, count), [] __device__(float v) { return v; }, from);
}

template <enum activation f> struct activated;
/* Operands that the formula does not read may be NULL. */
template <enum activation f> struct activated_back;

#define X(id, name, module, properties, doc)                                                                           \
    template <> struct activated<id> {                                                                                 \
        __device__ float operator()(float x) const { return name##_value(x); }                                         \
    };                                                                                                                 \
    template <> struct activated_back<id> {                                                                            \
        __device__ float operator()(float x, float y, float dy) const { return name##_gradient(x, y, dy); }            \
    };
ACTIVATIONS(X)
#undef X

/* A kernel for each function: elements(c, ..., of<f>(), operands) */
template <template <enum activation> typename Of, typename... Operand>
static void activation_elements(operator_call *c, enum activation f, size_t count, struct gpu_result to,
                                Operand... from) {
    switch (f) {
#define X(id, name, module, properties, doc)                                                                           \
    case id:                                                                                                           \
        return elements(c, count, to, Of<id>(), from...);
        ACTIVATIONS(X)
#undef X
    }
}

/* The exact GELU from or to 16-bit numbers, in half the time of the CPU's formula: formula 7.1.26 of Abramowitz and
 * Stegun (absolute error 1.5e-7 of erf, 2.1e-7 of the result) with the GPU's exponential and division. */
struct normal {
    float density, below; /* e^(-x^2 / 2), and the share of a normal distribution below x */
    __device__ normal(float x) {
        float t = __fdividef(1, fmaf(0.231641888f, fabsf(x), 1)), p = fmaf(1.061405429f, t, -1.453152027f);
        p = fmaf(p, t, 1.421413741f);
        p = fmaf(p, t, -0.284496736f);
        p = fmaf(p, t, 0.254829592f);
        density = exp2_fast(-0.72134752f * x * x);
        float tail = 0.5f * p * t * density;
        below = x > 0 ? 1 - tail : tail;
    }
};

static void activation_forward(struct device *device, enum activation f, const struct tensor *x, const struct tensor *y,
                               size_t count) {
    operator_call c(device, "activation_forward");
    struct gpu_numbers from = c.in(x, count);
    struct gpu_result to = c.out(y, count);
    gpu_add_half_output(&c, &to);
    if (f == ACTIVATION_GELU && (from.is_half() || to.is_half()))
        elements(
            &c, count, to, [] __device__(float v) { return v * normal(v).below; }, from);
    else
        activation_elements<activated>(&c, f, count, to, from);
}

static void activation_backward(struct device *device, enum activation f, const struct tensor *x,
                                const struct tensor *y, const struct tensor *dy, const struct tensor *dx,
                                size_t count) {
    operator_call c(device, "activation_backward");
    struct gpu_numbers input = c.in(x, count), output = c.in(y, count);
    struct gpu_numbers from = c.in(dy, count);
    struct gpu_result to = c.out(dx, count);
    if (f == ACTIVATION_GELU && (input.is_half() || output.is_half())) /* y is rounded: of x alone */
        elements(
            &c, count, to,
            [] __device__(float v, float d) {
                normal n(v);
                return d * fmaf(v * 0.398942280f, n.density, n.below);
            },
            input, from);
    else
        activation_elements<activated_back>(&c, f, count, to, input, output, from);
}

/* Functions with keys: of<f>{a, b} */
template <enum keyed_function f> struct keyed;
template <enum keyed_function f> struct keyed_back;

#define X(id, name, properties)                                                                                        \
    template <> struct keyed<id> {                                                                                     \
        float a, b;                                                                                                    \
        __device__ float operator()(float x) const { return name##_value(a, b, x); }                                   \
    };                                                                                                                 \
    template <> struct keyed_back<id> {                                                                                \
        float a, b;                                                                                                    \
        __device__ float operator()(float x, float dy) const { return name##_gradient(a, b, x, dy); }                  \
    };
KEYED_ACTIVATIONS(X)
#undef X

template <template <enum keyed_function> typename Of, typename... Operand>
static void keyed_elements(operator_call *c, const struct keyed_activation *f, size_t count, struct gpu_result to,
                           Operand... from) {
    switch (f->f) {
#define X(id, name, properties)                                                                                        \
    case id:                                                                                                           \
        return elements(c, count, to, Of<id>{f->a, f->b}, from...);
        KEYED_ACTIVATIONS(X)
#undef X
    }
}

static void keyed_forward(struct device *device, const struct keyed_activation *f, const struct tensor *x,
                          const struct tensor *y, size_t count) {
    operator_call c(device, "keyed_forward");
    struct gpu_numbers from = c.in(x, count);
    keyed_elements<keyed>(&c, f, count, c.out(y, count), from);
}

static void keyed_backward(struct device *device, const struct keyed_activation *f, const struct tensor *x,
                           const struct tensor *dy, const struct tensor *dx, size_t count) {
    operator_call c(device, "keyed_backward");
    struct gpu_numbers input = c.in(x, count), from = c.in(dy, count);
    keyed_elements<keyed_back>(&c, f, count, c.out(dx, count), input, from);
}

static void prelu_forward(struct device *device, const float *x, const float *slopes, size_t channels, float *y,
                          size_t count) {
    operator_call c(device, "prelu_forward");
    const float *from = c.in(x, count), *a = c.in(slopes, channels);
    float *to = c.out(y, count);
    c.each(count, [=] __device__(size_t i) { to[i] = from[i] > 0 ? from[i] : a[i % channels] * from[i]; });
}

static void prelu_backward(struct device *device, const float *x, const float *slopes, size_t channels, const float *dy,
                           float *dx, float *dslopes, size_t count) {
    operator_call c(device, "prelu_backward");
    const float *from = c.in(x, count), *a = c.in(slopes, channels), *slope = c.in(dy, count);
    float *to = c.out(dx, count), *sums = c.inout(dslopes, channels);
    column_sums<1>(
        &c, count / channels, channels,
        [=] __device__(size_t i, size_t j, float *sum) {
            float v = from[i * channels + j];
            *sum += v > 0 ? 0 : v * slope[i * channels + j];
        },
        [=] __device__(size_t j, const double *sum) { sums[j] += (float)*sum; });
    if (dx) c.each(count, [=] __device__(size_t i) { to[i] = from[i] > 0 ? slope[i] : a[i % channels] * slope[i]; });
}

static void scale_forward(struct device *device, const float *x, const float *scales, size_t channels, float *y,
                          size_t count) {
    operator_call c(device, "scale_forward");
    const float *from = c.in(x, count), *a = c.in(scales, channels);
    float *to = c.out(y, count);
    c.each(count, [=] __device__(size_t i) { to[i] = from[i] * a[i % channels]; });
}

static void scale_backward(struct device *device, const float *x, const float *scales, size_t channels, const float *dy,
                           float *dx, float *dscales, size_t count) {
    operator_call c(device, "scale_backward");
    const float *from = c.in(x, count), *a = c.in(scales, channels), *slope = c.in(dy, count);
    float *to = c.out(dx, count), *sums = c.inout(dscales, channels);
    column_sums<1>(
        &c, count / channels, channels,
        [=] __device__(size_t i, size_t j, float *sum) { *sum += from[i * channels + j] * slope[i * channels + j]; },
        [=] __device__(size_t j, const double *sum) { sums[j] += (float)*sum; });
    if (dx) c.each(count, [=] __device__(size_t i) { to[i] = slope[i] * a[i % channels]; });
}

/* Four elements of a row from one counter. */
static void dropout(struct device *device, const struct draw_key *key, float p, const struct tensor *x,
                    const struct tensor *y, size_t rows, size_t size) {
    operator_call c(device, "dropout");
    struct gpu_numbers from = c.in(x, rows * size);
    struct gpu_result to = c.out(y, rows * size);
    bool has_fours = size % 4 == 0 && from.has_fours() && to.has_fours();
    struct mask_draws draws = mask_draws_of(&c, key, p);
    size_t blocks = (size + 3) / 4;
    c.each(rows * blocks, [=] __device__(size_t n) {
        size_t i = n / blocks, j = n % blocks * 4;
        uint32_t word[4];
        draws.of(i, j / 4, word);
        if (has_fours) {
            float4 v = from.four(i * size + j);
            to.put(i * size + j, float4{draws.drop(word[0], v.x), draws.drop(word[1], v.y), draws.drop(word[2], v.z),
                                        draws.drop(word[3], v.w)});
            return;
        }
        for (size_t l = 0; l < 4 && j + l < size; l++)
            to.put(i * size + j + l, draws.drop(word[l], from.one(i * size + j + l)));
    });
}

static void dropout_channels(struct device *device, const struct draw_key *key, float p, const struct tensor *x,
                             const struct tensor *y, size_t rows, size_t size, size_t channels) {
    operator_call c(device, "dropout_channels");
    struct gpu_numbers from = c.in(x, rows * size);
    struct gpu_result to = c.out(y, rows * size);
    struct mask_draws draws = mask_draws_of(&c, key, p);
    c.each(rows * size, [=] __device__(size_t n) {
        size_t channel = n % size % channels;
        uint32_t word[4];
        draws.of(n / size, channel / 4, word);
        to.put(n, draws.drop(word[channel % 4], from.one(n)));
    });
}

static void rrelu(struct device *device, const struct draw_key *key, float low, float high, const float *x,
                  const float *from, float *to, size_t rows, size_t size) {
    operator_call c(device, "rrelu");
    const float *values = c.in(x, rows * size), *factors = c.in(from, rows * size);
    float *results = c.out(to, rows * size);
    struct mask_draws draws = mask_draws_of(&c, key, 0);
    size_t blocks = (size + 3) / 4;
    c.each(rows * blocks, [=] __device__(size_t n) {
        size_t i = n / blocks, j = n % blocks * 4;
        uint32_t word[4];
        draws.of(i, j / 4, word);
        for (size_t l = 0; l < 4 && j + l < size; l++) {
            size_t at = i * size + j + l;
            results[at] = factors[at] * rrelu_slope(low, high, values[at], word[l]);
        }
    });
}

/* As on the CPU: four elements of a row from one counter; [has_mean]: forward. */
static void normal_noise(operator_call *c, const struct draw_key *key, const float *other, const float *log_variance,
                         float *to, bool has_mean, size_t rows, size_t size) {
    struct mask_draws draws = mask_draws_of(c, key, 0);
    size_t blocks = (size + 3) / 4;
    c->each(rows * blocks, [=] __device__(size_t n) {
        size_t i = n / blocks, j = n % blocks * 4;
        uint32_t word[4];
        float e[4];
        draws.of(i, j / 4, word);
        math_normal_pair(word[0], word[1], e);
        math_normal_pair(word[2], word[3], e + 2);
        for (size_t l = 0; l < 4 && j + l < size; l++) {
            size_t at = i * size + j + l;
            float noise = math_exp(0.5f * log_variance[at]) * e[l];
            to[at] = has_mean ? other[at] + noise : 0.5f * (other[at] * noise);
        }
    });
}

static void sample_normal(struct device *device, const struct draw_key *key, const float *mean,
                          const float *log_variance, float *z, size_t rows, size_t size) {
    operator_call c(device, "sample_normal");
    size_t count = rows * size;
    normal_noise(&c, key, c.in(mean, count), c.in(log_variance, count), c.out(z, count), true, rows, size);
}

static void sample_normal_backward(struct device *device, const struct draw_key *key, const float *log_variance,
                                   const float *dz, float *dlog_variance, size_t rows, size_t size) {
    operator_call c(device, "sample_normal_backward");
    size_t count = rows * size;
    normal_noise(&c, key, c.in(dz, count), c.in(log_variance, count), c.out(dlog_variance, count), false, rows, size);
}

static float norm(struct device *device, const float *x, size_t count) {
    operator_call c(device, "norm");
    const float *from = c.in(x, count);
    return (float)sqrt(c.read_sum(count, [=] __device__(size_t i) { return (double)from[i] * (double)from[i]; }));
}

#define FEW_NUMBERS (32 << 10) /* for one block */
#define FEW_RANGES 16
#define FEW_THREADS 1024
#define NORM_PIECE ((size_t)1 << 14) /* maximum numbers of a block */
#define NORM_AHEAD 4                 /* fours that a thread reads before it adds the first */

static size_t pieces_of(struct device_range range) { return (range.end - range.begin + NORM_PIECE - 1) / NORM_PIECE; }

/* A gpu_make of ranges: their pieces, and before them the number of the first piece of each range, and of all. */
static void *create_pieces(const void *p, size_t bytes, size_t *converted_bytes) {
    const struct device_range *ranges = (const struct device_range *)p;
    size_t count = bytes / sizeof *ranges, total = 0;
    for (size_t r = 0; r < count; r++) total += pieces_of(ranges[r]);
    *converted_bytes = (count + 1) * sizeof(size_t) + total * sizeof(struct device_range);
    size_t *first = (size_t *)malloc(*converted_bytes);
    if (!first) return nullptr;
    struct device_range *piece = (struct device_range *)(first + count + 1);
    first[0] = 0;
    for (size_t r = 0; r < count; r++) {
        first[r + 1] = first[r] + pieces_of(ranges[r]);
        for (size_t begin = ranges[r].begin; begin < ranges[r].end; begin += NORM_PIECE) {
            size_t end = ranges[r].end - begin < NORM_PIECE ? ranges[r].end : begin + NORM_PIECE;
            *piece++ = {begin, end};
        }
    }
    return first;
}

__device__ static double square(float x) { return (double)x * (double)x; }

__device__ static double squares(float4 v) { return (square(v.x) + square(v.y)) + (square(v.z) + square(v.w)); }

/* The sum of the squares of a piece; by a block, whose threads all get it. */
__device__ static double piece_squares(const float *x, struct device_range piece) {
    const float *from = x + piece.begin;
    size_t count = piece.end - piece.begin, fours = (uintptr_t)from % sizeof(float4) == 0 ? count / 4 : 0;
    double sum = 0;
    size_t i = threadIdx.x;
    for (; i + (NORM_AHEAD - 1) * GPU_THREADS < fours; i += NORM_AHEAD * GPU_THREADS) {
        float4 v[NORM_AHEAD];
        for (int k = 0; k < NORM_AHEAD; k++) v[k] = ((const float4 *)from)[i + k * GPU_THREADS];
        for (int k = 0; k < NORM_AHEAD; k++) sum += squares(v[k]);
    }
    for (; i < fours; i += GPU_THREADS) sum += squares(((const float4 *)from)[i]);
    for (i = 4 * fours + threadIdx.x; i < count; i += GPU_THREADS) sum += square(from[i]);
    return gpu_reduce(sum, gpu_add());
}

/* parts[piece] = the sum of its squares */
__global__ static void add_squares(const float *x, const struct device_range *pieces, double *parts) {
    double sum = piece_squares(x, pieces[blockIdx.x]);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

/* A warp for each range: sums[range] = the sum of its parts; [is_norm]: the square of its norm, which is a float, as on
 * the CPU. */
__global__ static void range_sums(size_t count, const size_t *first, const double *parts, bool is_norm, double *sums) {
    size_t range = (size_t)blockIdx.x * (GPU_THREADS / 32) + threadIdx.x / 32;
    if (range >= count) return;
    double sum = 0;
    for (size_t p = first[range] + threadIdx.x % 32; p < first[range + 1]; p += 32) sum += parts[p];
    sum = row_join<32>(sum, row_add());
    double norm = (double)(float)sqrt(sum);
    if (threadIdx.x % 32 == 0) sums[range] = is_norm ? norm * norm : sum;
}

/* The same of ranges of x, whose pieces are those of create_pieces. */
static void sum_ranges(operator_call *c, const float *x, const size_t *first, size_t pieces, size_t count, bool is_norm,
                       double *sums) {
    size_t warps = GPU_THREADS / 32;
    double *parts = c->scratch<double>(pieces);
    if (pieces > 0)
        c->launch(add_squares, (unsigned)pieces, GPU_THREADS, 0, x, (const struct device_range *)(first + count + 1),
                  parts);
    if (count > 0)
        c->launch(range_sums, (unsigned)((count + warps - 1) / warps), GPU_THREADS, 0, count, first, parts, is_norm,
                  sums);
}

/* [squares]: of each thread; one block. */
__device__ static void put_norm(double squares, float limit, float scale, struct clip_norm *out) {
    squares = gpu_reduce(squares, gpu_add());
    if (threadIdx.x > 0) return;
    float norm = (float)(sqrt(squares) / (double)scale), coefficient = limit / (norm + 1e-6f);
    out->norm = norm;
    out->clip = 1 / scale;
    if (limit > 0 && coefficient < 1) out->clip *= coefficient;
}

__global__ static void finish_norm(const double *norms, size_t count, float limit, float scale, struct clip_norm *out) {
    double squares = 0;
    for (size_t r = threadIdx.x; r < count; r += GPU_THREADS) squares += norms[r];
    put_norm(squares, limit, scale, out);
}

/* A few small ranges of one piece each, in one block: the bits of the three kernels for many. */
__global__ static void few_norms(const float *x, size_t count, const struct device_range *pieces, float limit,
                                 float scale, struct clip_norm *out) {
    double own = 0;
    for (size_t r = 0; r < count; r++) {
        double norm = (double)(float)sqrt(piece_squares(x, pieces[r]));
        if (r == threadIdx.x) own = norm * norm;
    }
    put_norm(own, limit, scale, out);
}

static void clip_norm(struct device *device, const float *x, const struct device_range *ranges, size_t count,
                      float limit, float scale, struct clip_norm *out) {
    operator_call c(device, "clip_norm");
    const float *from = c.in(x, count ? ranges[count - 1].end : 0);
    size_t pieces = 0;
    for (size_t r = 0; r < count; r++) pieces += pieces_of(ranges[r]);
    const size_t *first = c.constant<size_t>(ranges, count, create_pieces);
    double *norms = c.scratch<double>(count);
    struct clip_norm *to = c.inout(out, 1);
    if (pieces == count && count <= FEW_RANGES && count > 0 && ranges[count - 1].end - ranges[0].begin <= FEW_NUMBERS) {
        c.launch(few_norms, 1, GPU_THREADS, 0, from, count, (const struct device_range *)(first + count + 1), limit,
                 scale, to);
        return;
    }
    sum_ranges(&c, from, first, pieces, count, true, norms);
    c.launch(finish_norm, 1, GPU_THREADS, 0, norms, count, limit, scale, to);
}

static void squares(struct device *device, const float *x, const struct device_range *ranges, size_t count,
                    double *sums) {
    operator_call c(device, "squares");
    const float *from = c.in(x, count ? ranges[count - 1].end : 0);
    size_t pieces = 0;
    for (size_t r = 0; r < count; r++) pieces += pieces_of(ranges[r]);
    const size_t *first = c.constant<size_t>(ranges, count, create_pieces);
    double *to = c.scratch<double>(count);
    sum_ranges(&c, from, first, pieces, count, false, to);
    if (count > 0) c.read(sums, to, count * sizeof *sums);
}

__device__ static bool is_nonfinite(float x) { return (bits_of_float(x) & 0x7f800000u) == 0x7f800000u; }
__device__ static bool is_nonfinite(double x) { return !(x - x == 0); }

static bool is_finite(struct device *device, const struct tensor *x, size_t count) {
    operator_call c(device, "is_finite");
    struct gpu_numbers from = c.in(x, count);
    return c.read_sum(count, [=] __device__(size_t i) { return is_nonfinite(from.one(i)) ? 1.0 : 0.0; }) == 0;
}

/* Whether one of x (count) is; by a block of FEW_THREADS, whose threads all get it. */
__device__ static bool has_nonfinite(const float *x, size_t count) {
    size_t fours = (uintptr_t)x % sizeof(float4) == 0 ? count / 4 : 0;
    bool is_found = false;
    for (size_t i = threadIdx.x; i < fours; i += FEW_THREADS) {
        float4 v = ((const float4 *)x)[i];
        is_found = is_found || is_nonfinite(v.x) || is_nonfinite(v.y) || is_nonfinite(v.z) || is_nonfinite(v.w);
    }
    for (size_t i = 4 * fours + threadIdx.x; i < count; i += FEW_THREADS) is_found = is_found || is_nonfinite(x[i]);
    return row_join<FEW_THREADS>(is_found ? 1.0f : 0.0f, row_add()) > 0;
}

/* *nonfinite += 1 if one of x (count) is; one block. */
__global__ static void few_finite(const float *x, size_t count, double *nonfinite) {
    bool is_found = has_nonfinite(x, count);
    if (threadIdx.x == 0 && is_found) *nonfinite += 1;
}

static void check_finite(struct device *device, const float *x, size_t count, double *nonfinite) {
    operator_call c(device, "check_finite");
    const float *from = c.in(x, count);
    double *found = c.scratch<double>(1), *to = c.inout(nonfinite, 1);
    if (count == 0) return;
    if (count <= FEW_NUMBERS) {
        c.launch(few_finite, 1, FEW_THREADS, 0, from, count, to);
        return;
    }
    c.each(1, [=] __device__(size_t) { *found = 0; });
    c.sum(
        count, [=] __device__(size_t i) { return is_nonfinite(from[i]) ? 1.0 : 0.0; }, found);
    c.each(1, [=] __device__(size_t) { *to += *found > 0 ? 1 : 0; });
}

/* The numbers that decide about an update. */
struct decision {
    const double *loss;
    const float *norm;
    const double *nonfinite;
    size_t nonfinite_count;
    double *found_inf;
    float *clip;

    __device__ void make() const {
        bool is_found = is_nonfinite(*loss) || is_nonfinite(*norm);
        for (size_t i = 0; i < nonfinite_count; i++) is_found = is_found || nonfinite[i] > 0;
        if (is_found) *found_inf += 1;
        if (*found_inf > 0) *clip = bits_to_float(0x7fc00000u);
    }
};

/* few_finite and the decision; one block. */
__global__ static void few_decide(const float *x, size_t count, double *nonfinite, struct decision d) {
    bool is_found = has_nonfinite(x, count);
    if (threadIdx.x > 0) return;
    if (is_found) *nonfinite += 1;
    d.make();
}

static void skip_if_nonfinite(struct device *device, const float *x, size_t count, const double *loss,
                              const float *norm, double *nonfinite, size_t nonfinite_count, double *found_inf,
                              float *clip) {
    if (count > FEW_NUMBERS) check_finite(device, x, count, nonfinite);
    operator_call c(device, "skip_if_nonfinite");
    double *found = c.inout(nonfinite, nonfinite_count);
    const float *from = c.in(x, count);
    struct decision d = {c.in(loss, 1), c.in(norm, 1), found, nonfinite_count, c.inout(found_inf, 1), c.inout(clip, 1)};
    if (count > 0 && count <= FEW_NUMBERS)
        c.launch(few_decide, 1, FEW_THREADS, 0, from, count, found, d);
    else
        c.each(1, [=] __device__(size_t) { d.make(); });
}

static void propagate_nonfinite(struct device *device, const double *loss, const double *nonfinite, float *x) {
    operator_call c(device, "propagate_nonfinite");
    const double *sum = c.in(loss, 1), *found = c.in(nonfinite, 1);
    float *to = c.inout(x, 1);
    c.each(1, [=] __device__(size_t) {
        if (is_nonfinite(*sum) || *found > 0) *to = bits_to_float(0x7fc00000u);
    });
}

static void add_relu(struct device *device, const struct tensor *a, const struct tensor *b, const struct tensor *y,
                     size_t count) {
    operator_call c(device, "add_relu");
    struct gpu_numbers from = c.in(a, count), other = c.in(b, count);
    struct gpu_result to = c.out(y, count);
    gpu_add_half_output(&c, &to);
    elements(
        &c, count, to, [] __device__(float u, float v) { return relu_value(u + v); }, from, other);
}

static void relu_backward(struct device *device, const struct tensor *y, const struct tensor *dy,
                          const struct tensor *dx, size_t count) {
    operator_call c(device, "relu_backward");
    struct gpu_numbers output = c.in(y, count), from = c.in(dy, count);
    elements(
        &c, count, c.out(dx, count), [] __device__(float v, float d) { return v > 0 ? d : 0; }, output, from);
}

static void transpose(struct device *device, const struct tensor *x, const struct tensor *y, size_t rows, size_t height,
                      size_t width) {
    operator_call c(device, "transpose");
    size_t size = height * width;
    struct gpu_numbers from = c.in(x, rows * size);
    struct gpu_result to = c.out(y, rows * size);
    c.each(rows * size, [=] __device__(size_t n) {
        size_t i = n / size, w = n % size / height, h = n % height;
        to.put(n, from.one(i * size + h * width + w));
    });
}

static void multiply(struct device *device, const float *a, const float *b, float *y, size_t count) {
    operator_call c(device, "multiply");
    struct gpu_numbers left = {c.in(a, count), GPU_FLOAT32, nullptr}, right = {c.in(b, count), GPU_FLOAT32, nullptr};
    struct gpu_result to = {c.out(y, count), {nullptr, false}, nullptr};
    elements(
        &c, count, to, [] __device__(float u, float v) { return u * v; }, left, right);
}

static void copy_columns(struct device *device, const float *x, size_t x_stride, float *y, size_t y_stride, size_t rows,
                         size_t count) {
    operator_call c(device, "copy_columns");
    if (rows == 0) return;
    const float *from = c.in(x, (rows - 1) * x_stride + count);
    float *to = c.inout(y, (rows - 1) * y_stride + count);
    c.each(rows * count, [=] __device__(size_t n) {
        size_t r = n / count, j = n % count;
        to[r * y_stride + j] = from[r * x_stride + j];
    });
}

const struct image_ops gpu_images = {.add_relu = add_relu, .relu_backward = relu_backward, .transpose = transpose};

const struct device_ops gpu_elementwise = {.add = add,
                                           .activation_forward = activation_forward,
                                           .activation_backward = activation_backward,
                                           .keyed_forward = keyed_forward,
                                           .keyed_backward = keyed_backward,
                                           .dropout = dropout,
                                           .dropout_channels = dropout_channels,
                                           .rrelu = rrelu,
                                           .sample_normal = sample_normal,
                                           .sample_normal_backward = sample_normal_backward,
                                           .norm = norm,
                                           .clip_norm = clip_norm,
                                           .squares = squares,
                                           .is_finite = is_finite,
                                           .check_finite = check_finite,
                                           .skip_if_nonfinite = skip_if_nonfinite,
                                           .propagate_nonfinite = propagate_nonfinite,
                                           .prelu_forward = prelu_forward,
                                           .prelu_backward = prelu_backward,
                                           .scale_forward = scale_forward,
                                           .scale_backward = scale_backward,
                                           .copy = copy,
                                           .multiply = multiply,
                                           .copy_columns = copy_columns};
