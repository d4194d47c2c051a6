/* The operators of attention: float32, or tensor cores where the device's products have 16-bit factors. */
#include "device/cuda/attention.cuh"

#define WARPS (GPU_THREADS / 32)

static struct attention_job job_of(const struct attention_shape *s) {
    struct attention_job job = {};
    job.tokens = (unsigned)s->tokens;
    job.heads = (unsigned)s->heads;
    job.head_size = (unsigned)s->head_size;
    job.is_causal = s->is_causal;
    job.scale = 1 / sqrtf((float)s->head_size);
    return job;
}

static bool is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

static void start(call *c, struct attention_job *job, const struct attention_shape *s) {
    size_t heads = s->rows * s->heads;
    bool is_small = s->head_size <= 128; /* larger ones are for float32 only */
    if (heads * s->tokens == 0) return;
    job->is_aligned = s->head_size % 4 == 0 && is_aligned(job->qkv) && is_aligned(job->y) && is_aligned(job->dy) &&
                      is_aligned(job->dqkv);
    if (c->gpu->precision == PRECISION_BFLOAT16 && is_small)
        gpu_attention_bfloat16(c, job, heads);
    else if (c->gpu->precision == PRECISION_FLOAT16 && is_small)
        gpu_attention_float16(c, job, heads);
    else
        gpu_attention_float(c, job, heads);
}

void gpu_attention_forward(struct device *device, const struct attention_shape *shape, const float *qkv, float *y,
                           float *log_sums) {
    call c(device, "attention_forward");
    struct attention_job job = job_of(shape);
    size_t values = shape->rows * shape->tokens * shape->heads * shape->head_size;
    job.qkv = c.in(qkv, 3 * values);
    job.y = c.out(y, values);
    job.out_log_sums = c.out(log_sums, shape->rows * shape->heads * shape->tokens);
    start(&c, &job, shape);
}

/* totals (rows, heads, tokens) = sums of y dy; a warp for each */
__global__ void attention_totals(struct attention_shape s, const float *y, const float *dy, float *totals) {
    size_t count = s.rows * s.heads * s.tokens, i = (size_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (i >= count) return;
    size_t row = i / s.tokens / s.heads, head = i / s.tokens % s.heads;
    size_t first = ((row * s.tokens + i % s.tokens) * s.heads + head) * s.head_size;
    float sum = 0;
    for (size_t d = threadIdx.x % 32; d < s.head_size; d += 32) sum = fmaf(y[first + d], dy[first + d], sum);
    for (unsigned way = 16; way > 0; way /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, way);
    if (threadIdx.x % 32 == 0) totals[i] = sum;
}

void gpu_attention_backward(struct device *device, const struct attention_shape *shape, const float *qkv,
                            const float *y, const float *log_sums, const float *dy, float *dqkv) {
    call c(device, "attention_backward");
    struct attention_job job = job_of(shape);
    size_t counts = shape->rows * shape->heads * shape->tokens, values = counts * shape->head_size;
    const float *output = c.in(y, values);
    float *totals = c.scratch<float>(counts);
    job.qkv = c.in(qkv, 3 * values);
    job.log_sums = c.in(log_sums, counts);
    job.dy = c.in(dy, values);
    job.dqkv = c.out(dqkv, 3 * values);
    job.totals = totals;
    if (counts == 0) return;
    c.launch(attention_totals, (unsigned)((counts + WARPS - 1) / WARPS), GPU_THREADS, 0, *shape, output, job.dy,
             totals);
    start(&c, &job, shape);
}
