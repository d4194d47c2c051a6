/* Embedding, softmax and attention. Attention is plain: a block for each query (forward and its gradient) and for each
 * key (gradients of keys and values), over the tokens in pieces of a block's threads; backward makes the scores again
 * from the denominators that forward kept. */
#include <cmath>

#include "device/cuda/gpu.cuh"

/* Rows of the table that the tokens need; they come from the host. */
static size_t rows_of(const int32_t *tokens, size_t count) {
    int32_t most = -1;
    for (size_t i = 0; i < count; i++) most = tokens[i] > most ? tokens[i] : most;
    return (size_t)(most + 1);
}

static void embedding_forward(struct device *device, const int32_t *tokens, const float *weight, float *y, size_t count,
                              size_t size) {
    call c(device, "embedding_forward");
    const int32_t *ids = c.in(tokens, count);
    const float *table = c.in(weight, rows_of(tokens, count) * size);
    float *to = c.out(y, count * size);
    c.each(count * size, [=] __device__(size_t i) { to[i] = table[(size_t)ids[i / size] * size + i % size]; });
}

/* A thread for each column, token after token, as on the CPU. */
static void embedding_backward(struct device *device, const int32_t *tokens, const float *dy, float *dweight,
                               size_t count, size_t size) {
    call c(device, "embedding_backward");
    const int32_t *ids = c.in(tokens, count);
    const float *from = c.in(dy, count * size);
    float *table = c.inout(dweight, rows_of(tokens, count) * size);
    c.each(size, [=] __device__(size_t j) {
        for (size_t i = 0; i < count; i++) table[(size_t)ids[i] * size + j] += from[i * size + j];
    });
}

static void add_row(struct device *device, const float *x, const float *row, float *y, size_t rows, size_t size) {
    call c(device, "add_row");
    const float *from = c.in(x, rows * size), *other = c.in(row, size);
    float *to = c.out(y, rows * size);
    c.each(rows * size, [=] __device__(size_t i) { to[i] = from[i] + other[i % size]; });
}

static void sum_rows(struct device *device, const float *x, float *sum, size_t rows, size_t size) {
    call c(device, "sum_rows");
    const float *from = c.in(x, rows * size);
    float *to = c.inout(sum, size);
    c.each(size, [=] __device__(size_t j) {
        for (size_t i = 0; i < rows; i++) to[j] += from[i * size + j];
    });
}

__device__ static void softmax_row(const float *x, float *y, size_t size) {
    float most = x[0], sum = 0;
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) most = x[j] > most ? x[j] : most;
    most = gpu_reduce(most, gpu_max());
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) sum += math_exp(x[j] - most);
    float scale = 1 / gpu_reduce(sum, gpu_add());
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) y[j] = math_exp(x[j] - most) * scale;
}

static void softmax_forward(struct device *device, const float *x, float *y, size_t rows, size_t size) {
    call c(device, "softmax_forward");
    const float *from = c.in(x, rows * size);
    float *to = c.out(y, rows * size);
    c.rows(rows, [=] __device__(size_t i) { softmax_row(from + i * size, to + i * size, size); });
}

/* dx = y (dy - sum(y dy)) */
__device__ static void softmax_row_back(const float *y, const float *dy, float *dx, size_t size) {
    float sum = 0;
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) sum += y[j] * dy[j];
    float total = gpu_reduce(sum, gpu_add());
    for (size_t j = threadIdx.x; j < size; j += GPU_THREADS) dx[j] = y[j] * (dy[j] - total);
}

static void softmax_backward(struct device *device, const float *y, const float *dy, float *dx, size_t rows,
                             size_t size) {
    call c(device, "softmax_backward");
    const float *output = c.in(y, rows * size), *from = c.in(dy, rows * size);
    float *to = c.out(dx, rows * size);
    c.rows(rows,
           [=] __device__(size_t i) { softmax_row_back(output + i * size, from + i * size, to + i * size, size); });
}

/* ---- attention ---- */

/* One head of one row, and a token of it. Strides: [wide] between tokens of qkv, [narrow] of y. */
struct head {
    const float *q, *k, *v;
    size_t wide, narrow, size, tokens, token;
    size_t at;    /* of the head's first value in y */
    size_t index; /* row * heads + head */
    float scale;
    bool is_causal;
};

/* [block]: (row * heads + head) * tokens + token */
__device__ static struct head head_of(const struct attention_shape &s, const float *qkv, size_t block) {
    struct head h;
    size_t c = s.heads * s.head_size, row = block / s.tokens / s.heads, number = block / s.tokens % s.heads;
    h.q = qkv + row * s.tokens * 3 * c + number * s.head_size;
    h.k = h.q + c;
    h.v = h.q + 2 * c;
    h.wide = 3 * c;
    h.narrow = c;
    h.size = s.head_size;
    h.tokens = s.tokens;
    h.token = block % s.tokens;
    h.at = row * s.tokens * c + number * s.head_size;
    h.index = block / s.tokens;
    h.scale = 1 / sqrtf((float)s.head_size);
    h.is_causal = s.is_causal;
    return h;
}

__device__ static float dot(const float *a, const float *b, size_t size) {
    float sum = 0;
    for (size_t d = 0; d < size; d++) sum = fmaf(a[d], b[d], sum);
    return sum;
}

/* y[d] = y[d] factor + sum of part[j] rows[j][d] for [count] rows; all threads of the block, [part] in shared memory */
__device__ static void take_in(float *y, float factor, const float *part, const float *rows, size_t stride,
                               size_t count, size_t size) {
    for (size_t d = threadIdx.x; d < size; d += GPU_THREADS) {
        float sum = y[d] * factor;
        for (size_t j = 0; j < count; j++) sum = fmaf(part[j], rows[j * stride + d], sum);
        y[d] = sum;
    }
}

__device__ static size_t piece(size_t first, size_t end) {
    return end - first < GPU_THREADS ? end - first : GPU_THREADS;
}

/* The running maximum and denominator take in a piece of the keys at a time; y is scaled to the new maximum. */
__device__ static void attend(const struct head &h, float *y, float *log_sum) {
    __shared__ float part[GPU_THREADS];
    size_t own = threadIdx.x, seen = h.is_causal ? h.token + 1 : h.tokens;
    const float *q = h.q + h.token * h.wide;
    float most = -INFINITY, sum = 0;
    for (size_t d = own; d < h.size; d += GPU_THREADS) y[d] = 0;
    for (size_t first = 0; first < seen; first += GPU_THREADS) {
        size_t keys = piece(first, seen);
        float score = own < keys ? dot(q, h.k + (first + own) * h.wide, h.size) * h.scale : -INFINITY;
        float largest = gpu_reduce(score, gpu_max());
        largest = largest > most ? largest : most;
        float factor = math_exp(most - largest);
        part[own] = own < keys ? math_exp(score - largest) : 0;
        sum = sum * factor + gpu_reduce(part[own], gpu_add());
        take_in(y, factor, part, h.v + first * h.wide, h.wide, keys, h.size);
        most = largest;
        __syncthreads();
    }
    for (size_t d = own; d < h.size; d += GPU_THREADS) y[d] /= sum;
    if (own == 0) *log_sum = most + logf(sum);
}

static void attention_forward(struct device *device, const struct attention_shape *shape, const float *qkv, float *y,
                              float *log_sums) {
    call c(device, "attention_forward");
    struct attention_shape s = *shape;
    size_t values = s.rows * s.tokens * s.heads * s.head_size, blocks = s.rows * s.heads * s.tokens;
    const float *from = c.in(qkv, 3 * values);
    float *to = c.out(y, values), *logs = c.out(log_sums, blocks);
    c.rows(blocks, [=] __device__(size_t block) {
        struct head h = head_of(s, from, block);
        attend(h, to + h.at + h.token * h.narrow, logs + block);
    });
}

/* What backward of a head reads; strides as in struct head. */
struct head_gradients {
    const float *y, *dy, *log_sums;
};

/* Of query i and key j: p = softmax, ds = p (dp - sum(y dy)) scale with dp = dy v^T */
__device__ static void slopes(const struct head &h, const struct head_gradients &g, size_t i, size_t j, float *p,
                              float *ds) {
    const float *dy = g.dy + i * h.narrow;
    float total = dot(g.y + i * h.narrow, dy, h.size), dp = dot(dy, h.v + j * h.wide, h.size);
    *p = math_exp(fmaf(dot(h.q + i * h.wide, h.k + j * h.wide, h.size), h.scale, -g.log_sums[i]));
    *ds = *p * (dp - total) * h.scale;
}

/* dq = sum over the keys of ds k */
__device__ static void query_back(const struct head &h, const struct head_gradients &g, float *dq) {
    __shared__ float part[GPU_THREADS];
    size_t own = threadIdx.x, seen = h.is_causal ? h.token + 1 : h.tokens;
    for (size_t d = own; d < h.size; d += GPU_THREADS) dq[d] = 0;
    for (size_t first = 0; first < seen; first += GPU_THREADS) {
        size_t keys = piece(first, seen);
        float p = 0, ds = 0;
        if (own < keys) slopes(h, g, h.token, first + own, &p, &ds);
        part[own] = ds;
        __syncthreads();
        take_in(dq, 1, part, h.k + first * h.wide, h.wide, keys, h.size);
        __syncthreads();
    }
}

/* dk = sum over the queries of ds q, dv = sum of p dy */
__device__ static void key_back(const struct head &h, const struct head_gradients &g, float *dk, float *dv) {
    __shared__ float part[GPU_THREADS], other[GPU_THREADS];
    size_t own = threadIdx.x;
    for (size_t d = own; d < h.size; d += GPU_THREADS) dk[d] = dv[d] = 0;
    for (size_t first = h.is_causal ? h.token : 0; first < h.tokens; first += GPU_THREADS) {
        size_t queries = piece(first, h.tokens);
        float p = 0, ds = 0;
        if (own < queries) slopes(h, g, first + own, h.token, &p, &ds);
        part[own] = ds;
        other[own] = p;
        __syncthreads();
        take_in(dk, 1, part, h.q + first * h.wide, h.wide, queries, h.size);
        take_in(dv, 1, other, g.dy + first * h.narrow, h.narrow, queries, h.size);
        __syncthreads();
    }
}

static void attention_backward(struct device *device, const struct attention_shape *shape, const float *qkv,
                               const float *y, const float *log_sums, const float *dy, float *dqkv) {
    call c(device, "attention_backward");
    struct attention_shape s = *shape;
    size_t values = s.rows * s.tokens * s.heads * s.head_size, blocks = s.rows * s.heads * s.tokens;
    const float *input = c.in(qkv, 3 * values), *output = c.in(y, values), *logs = c.in(log_sums, blocks);
    const float *from = c.in(dy, values);
    float *to = c.out(dqkv, 3 * values);
    c.rows(blocks, [=] __device__(size_t block) {
        struct head h = head_of(s, input, block);
        struct head_gradients g = {output + h.at, from + h.at, logs + h.index * h.tokens};
        float *dq = to + (h.q - input) + h.token * h.wide;
        query_back(h, g, dq);
        key_back(h, g, dq + h.narrow, dq + 2 * h.narrow);
    });
}

const struct sequence_ops gpu_sequences = {.embedding_forward = embedding_forward,
                                           .embedding_backward = embedding_backward,
                                           .add_row = add_row,
                                           .sum_rows = sum_rows,
                                           .softmax_forward = softmax_forward,
                                           .softmax_backward = softmax_backward,
                                           .attention_forward = attention_forward,
                                           .attention_backward = attention_backward};
