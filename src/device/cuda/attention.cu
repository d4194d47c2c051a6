/* The operators of attention: float32, or tensor cores if the device's products have 16-bit factors. */
#include "device/cuda/attention.cuh"
#include "device/cuda/product.cuh"

#define WARPS (GPU_THREADS / 32)

static struct tensor of_floats(const float *address) { return {(void *)address, false, nullptr}; }

/* Where queries, and keys and values, are: side by side in one matrix, or with [kv] in two. */
struct sources {
    const struct tensor *q, *kv; /* kv NULL: q is qkv */
    size_t q_values, kv_values, keys;

    sources(const struct attention_shape *s, const struct tensor *q, const struct tensor *kv) : q(q), kv(kv) {
        size_t width = s->heads * s->head_size;
        keys = kv ? s->keys : s->tokens;
        q_values = s->rows * s->tokens * width * (kv ? 1 : 3);
        kv_values = s->rows * keys * width * 2;
    }
};

static struct attention_masked_job job_of(operator_call *c, const struct attention_shape *s,
                                          const struct sources *from) {
    struct attention_masked_job job = {};
    job.tokens = (unsigned)s->tokens;
    job.keys = (unsigned)from->keys;
    job.heads = (unsigned)s->heads;
    job.head_size = (unsigned)s->head_size;
    job.is_causal = s->is_causal;
    job.scale = 1 / sqrtf((float)s->head_size);
    job.q_parts = from->kv ? 1 : 3;
    job.kv_parts = from->kv ? 2 : 3;
    job.k_part = from->kv ? 0 : 1;
    job.lengths = c->in(s->lengths, s->rows);
    job.drops = s->dropout != nullptr;
    job.is_masked = from->kv || s->lengths || job.drops;
    if (job.drops) job.draws = mask_draws_of(c, s->dropout, s->dropout_p);
    return job;
}

static bool is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

/* Whether 16-bit kernels are used; larger heads support float32 only. */
static bool is_half(const operator_call *c, const struct attention_shape *s) {
    return gpu_factor_size(c->gpu) == 2 && s->head_size <= ATTENTION_MAX_HALF;
}

/* 16-bit operands are possible only for heads that need no padding. */
static void check_half(operator_call *c, const struct attention_shape *s, bool is_any_half) {
    c->reject_half(is_any_half && (!is_half(c, s) || s->head_size % 8 != 0));
}

static void start(operator_call *c, struct attention_masked_job *job, const struct attention_shape *s) {
    size_t heads = s->rows * s->heads;
    if (heads * s->tokens == 0) return;
    job->is_aligned = s->head_size % 4 == 0 && is_aligned(job->qkv) && is_aligned(job->kv) && is_aligned(job->y) &&
                      is_aligned(job->dy) && is_aligned(job->dqkv) && is_aligned(job->dkv);
    static gpu_attention *const kernels[3][2] = {{gpu_attention_float, gpu_attention_float_masked},
                                                 {gpu_attention_bfloat16, gpu_attention_bfloat16_masked},
                                                 {gpu_attention_float16, gpu_attention_float16_masked}};
    int factors = !is_half(c, s) ? 0 : c->gpu->precision == PRECISION_BFLOAT16 ? 1 : 2;
    kernels[factors][job->is_masked](c, job, heads);
}

static unsigned padded_size(size_t head_size) { return (unsigned)((head_size + 7) / 8 * 8); }

/* [values] numbers of heads, each of head_size numbers, in 16 bits, heads padded with zeros. */
static const uint16_t *half_heads(operator_call *c, struct gpu_numbers given, size_t values,
                                  const struct attention_shape *s) {
    if (given.is_half()) return (const uint16_t *)given.at;
    const float *qkv = given.floats();
    size_t size = s->head_size, eights = padded_size(size) / 8, count = values / size * eights;
    uint16_t *to = c->scratch<uint16_t>(count * 8);
    bool is_bfloat16 = c->gpu->precision == PRECISION_BFLOAT16, is_whole = size % 8 == 0 && is_aligned(qkv);
    c->each(count, [=] __device__(size_t i) {
        float v[8];
        if (is_whole) {
            float4 a = ((const float4 *)qkv)[2 * i], b = ((const float4 *)qkv)[2 * i + 1];
            v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        } else {
            size_t column = i % eights * 8;
            const float *from = qkv + i / eights * size;
            for (size_t k = 0; k < 8; k++) v[k] = column + k < size ? from[column + k] : 0;
        }
        ((uint4 *)to)[i] = {gpu_to_half(is_bfloat16, v[0], v[1]), gpu_to_half(is_bfloat16, v[2], v[3]),
                            gpu_to_half(is_bfloat16, v[4], v[5]), gpu_to_half(is_bfloat16, v[6], v[7])};
    });
    return to;
}

/* Sets the operands that forward and backward read. */
static void set_sources(operator_call *c, struct attention_masked_job *job, const struct attention_shape *s,
                        const struct sources *from) {
    struct gpu_numbers q = c->in(from->q, from->q_values), kv = q;
    if (from->kv) kv = c->in(from->kv, from->kv_values);
    if (!is_half(c, s)) {
        job->qkv = q.floats();
        job->kv = kv.floats();
        return;
    }
    job->padded = padded_size(s->head_size);
    job->half_kv = job->half_qkv = half_heads(c, q, from->q_values, s);
    if (from->kv) job->half_kv = half_heads(c, kv, from->kv_values, s);
}

static void forward(operator_call *c, const struct attention_shape *shape, const struct sources *from,
                    const struct tensor *y, float *softmaxes) {
    struct attention_masked_job job = job_of(c, shape, from);
    size_t width = shape->heads * shape->head_size, values = shape->rows * shape->tokens * width;
    struct gpu_result to = c->out(y, values);
    check_half(c, shape, from->q->is_half || to.is_half());
    job.y = to.to;
    job.out_softmaxes = (float2 *)c->out(softmaxes, 2 * shape->rows * shape->heads * shape->tokens);
    if (is_half(c, shape)) {
        gpu_add_half_output_rows(c, &to, width);
        job.half_output = to.half_output.to;
    }
    set_sources(c, &job, shape, from);
    start(c, &job, shape);
}

void gpu_attention_forward(struct device *device, const struct attention_shape *shape, const struct tensor *qkv,
                           const struct tensor *y, float *softmaxes) {
    operator_call c(device, "attention_forward");
    struct sources from(shape, qkv, nullptr);
    forward(&c, shape, &from, y, softmaxes);
}

void gpu_cross_attention_forward(struct device *device, const struct attention_shape *shape, const float *q,
                                 const float *kv, const struct tensor *y, float *softmaxes) {
    operator_call c(device, "cross_attention_forward");
    struct tensor queries = of_floats(q), others = of_floats(kv);
    struct sources from(shape, &queries, &others);
    forward(&c, shape, &from, y, softmaxes);
}

/* The numbers of a head for one token, computed by a warp: their offset in y and their index in softmaxes. */
struct head_place {
    size_t i, first;
    __device__ head_place(const struct attention_shape &s) {
        i = (size_t)blockIdx.x * WARPS + threadIdx.x / 32;
        size_t row = i / s.tokens / s.heads, head = i / s.tokens % s.heads;
        first = (row * s.tokens + i % s.tokens) * s.heads + head;
    }
};

__device__ static float sum_of_warp(float sum) {
    for (unsigned way = 16; way > 0; way /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, way);
    return sum;
}

/* totals (rows, heads, tokens) = sums of y dy */
__global__ void attention_totals(struct attention_shape s, const float *y, const float *dy, float *totals) {
    struct head_place at(s);
    if (at.i >= s.rows * s.heads * s.tokens) return;
    size_t first = at.first * s.head_size;
    float sum = 0;
    for (size_t d = threadIdx.x % 32; d < s.head_size; d += 32) sum = fmaf(y[first + d], dy[first + d], sum);
    sum = sum_of_warp(sum);
    if (threadIdx.x % 32 == 0) totals[at.i] = sum;
}

/* The same with the softmaxes next to them; the same pass rounds dy, with padded heads, unless half_dy is NULL. [lanes]
 * threads for a head, a power of two, process 8 numbers each. [has_fours]: heads are a multiple of 8 numbers, and
 * gpu_numbers::four may be used. */
__global__ void attention_statistics_kernel(struct attention_shape s, struct gpu_numbers y, struct gpu_numbers dy,
                                            const float2 *softmaxes, float4 *statistics, unsigned padded,
                                            unsigned lanes, bool has_fours, bool is_bfloat16, uint16_t *half_dy) {
    size_t place = (size_t)blockIdx.x * (GPU_THREADS / lanes) + threadIdx.x / lanes; /* row, token, head */
    unsigned d = threadIdx.x % lanes * 8, size = (unsigned)s.head_size;
    bool is_counted = place < s.rows * s.tokens * s.heads;
    float a[8] = {}, b[8] = {}, sum = 0;
    if (is_counted && has_fours && d < size) {
        size_t at = place * size + d;
        uint4 fetched[4] = {y.fetch(at), y.fetch(at + 4), dy.fetch(at), dy.fetch(at + 4)};
        for (int k = 0; k < 2; k++) {
            float4 u = y.widen(fetched[k]), v = dy.widen(fetched[2 + k]);
            a[4 * k] = u.x, a[4 * k + 1] = u.y, a[4 * k + 2] = u.z, a[4 * k + 3] = u.w;
            b[4 * k] = v.x, b[4 * k + 1] = v.y, b[4 * k + 2] = v.z, b[4 * k + 3] = v.w;
        }
    } else if (is_counted) {
        for (unsigned k = 0; k < 8; k++)
            if (d + k < size) a[k] = y.one(place * size + d + k), b[k] = dy.one(place * size + d + k);
    }
    for (int k = 0; k < 8; k++) sum = fmaf(a[k], b[k], sum);
    if (is_counted && half_dy && d < padded) {
        uint4 rounded = {gpu_to_half(is_bfloat16, b[0], b[1]), gpu_to_half(is_bfloat16, b[2], b[3]),
                         gpu_to_half(is_bfloat16, b[4], b[5]), gpu_to_half(is_bfloat16, b[6], b[7])};
        *(uint4 *)(half_dy + place * padded + d) = rounded;
    }
    for (unsigned way = lanes / 2; way > 0; way /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, way);
    if (!is_counted || d > 0) return;
    size_t row = place / s.heads / s.tokens, token = place / s.heads % s.tokens, head = place % s.heads;
    size_t i = (row * s.heads + head) * s.tokens + token;
    statistics[i] = {softmaxes[i].x, softmaxes[i].y, sum, 0};
}

/* Operands of backward: the results of forward, and gradients; dkv NULL: dq is dqkv. */
struct gradients {
    const struct tensor *y;
    const float *softmaxes;
    const struct tensor *dy, *dq;
    float *dkv;
};

/* Prepares the kernels with 16-bit factors. */
static void start_half(operator_call *c, struct attention_masked_job *job, const struct attention_shape *shape,
                       const struct gradients *g, struct gpu_numbers output, struct gpu_numbers slope,
                       struct gpu_result to) {
    size_t counts = shape->rows * shape->heads * shape->tokens, width = shape->heads * shape->head_size;
    float4 *statistics = c->scratch<float4>(counts);
    uint16_t *half_dy = slope.is_half() ? nullptr : c->scratch<uint16_t>(counts * job->padded);
    bool has_fours = shape->head_size % 8 == 0 && output.has_fours() && slope.has_fours();
    unsigned lanes = 1;
    while (lanes * 8 < job->padded) lanes *= 2;
    if (!g->dkv) gpu_add_half_output_rows(c, &to, 3 * width);
    c->launch(attention_statistics_kernel, (unsigned)((counts * lanes + GPU_THREADS - 1) / GPU_THREADS), GPU_THREADS, 0,
              *shape, output, slope, job->softmaxes, statistics, job->padded, lanes, has_fours,
              c->gpu->precision == PRECISION_BFLOAT16, half_dy);
    job->statistics = statistics;
    job->half_dy = half_dy ? half_dy : (const uint16_t *)slope.at;
    job->half_output = to.half_output.to;
}

static void backward(operator_call *c, const struct attention_shape *shape, const struct sources *from,
                     const struct gradients *g) {
    struct attention_masked_job job = job_of(c, shape, from);
    size_t counts = shape->rows * shape->heads * shape->tokens, values = counts * shape->head_size;
    struct gpu_numbers output = c->in(g->y, values), slope = c->in(g->dy, values);
    struct gpu_result to = c->out(g->dq, from->q_values);
    check_half(c, shape, from->q->is_half || output.is_half() || slope.is_half() || to.is_half());
    job.softmaxes = (const float2 *)c->in(g->softmaxes, 2 * counts);
    job.dqkv = job.dkv = to.to;
    if (g->dkv) job.dkv = c->out(g->dkv, from->kv_values);
    if (counts == 0) return;
    set_sources(c, &job, shape, from);
    if (is_half(c, shape)) {
        start_half(c, &job, shape, g, output, slope, to);
    } else {
        float *totals = c->scratch<float>(counts);
        job.dy = slope.floats();
        c->launch(attention_totals, (unsigned)((counts + WARPS - 1) / WARPS), GPU_THREADS, 0, *shape, output.floats(),
                  job.dy, totals);
        job.totals = totals;
    }
    start(c, &job, shape);
}

void gpu_attention_backward(struct device *device, const struct attention_shape *shape, const struct tensor *qkv,
                            const struct tensor *y, const float *softmaxes, const struct tensor *dy,
                            const struct tensor *dqkv) {
    operator_call c(device, "attention_backward");
    struct sources from(shape, qkv, nullptr);
    struct gradients g = {y, softmaxes, dy, dqkv, nullptr};
    backward(&c, shape, &from, &g);
}

void gpu_cross_attention_backward(struct device *device, const struct attention_shape *shape, const float *q,
                                  const float *kv, const float *y, const float *softmaxes, const float *dy, float *dq,
                                  float *dkv) {
    operator_call c(device, "cross_attention_backward");
    struct tensor queries = of_floats(q), others = of_floats(kv);
    struct sources from(shape, &queries, &others);
    struct tensor output = of_floats(y), slope = of_floats(dy), gradient = of_floats(dq);
    struct gradients g = {&output, softmaxes, &slope, &gradient, dkv};
    backward(&c, shape, &from, &g);
}
