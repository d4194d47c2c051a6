/* Embedding, softmax, sums of rows and their lengths. Attention is in attention.cu, the gradient of embedding in
 * embedding.cu. */
#include <cmath>

#include "device/cuda/columns.cuh"
#include "device/cuda/rows.cuh"
#include "device/math.h"

struct lookup_rows {
    const int32_t *tokens;
    const float *table;
    float *y;
    size_t size;
    bool is_aligned;

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        const float *from = table + (size_t)tokens[i] * size;
        for (size_t j = first; j < size; j += 4 * THREADS)
            row_store(y + i * size, j, size, is_aligned, row_load(from, j, size, is_aligned, 0));
    }
};

static void embedding_forward(struct device *device, const int32_t *tokens, const float *weight, float *y, size_t count,
                              size_t vocabulary, size_t size) {
    operator_call c(device, "embedding_forward");
    struct lookup_rows f = {c.in(tokens, count), c.in(weight, vocabulary * size), c.out(y, count * size), size, false};
    f.is_aligned = rows_are_aligned(f.table, size) && rows_are_aligned(f.y, size);
    rows_start(&c, count, size, f);
}

/* A thread for each element of y. */
static void embedding_bag_forward(struct device *device, const struct embedding_bag *bag, const int32_t *tokens,
                                  const float *weight, float *y, int32_t *largest) {
    operator_call c(device, "embedding_bag_forward");
    struct embedding_bag b = *bag;
    const int32_t *ids = c.in(tokens, b.rows * b.tokens);
    const float *table = c.in(weight, b.vocabulary * b.size);
    float *to = c.out(y, b.rows * b.size);
    int32_t *positions = c.out(largest, b.rows * b.size);
    c.each(b.rows * b.size, [=] __device__(size_t i) {
        const int32_t *row = ids + i / b.size * b.tokens;
        float value = 0;
        int32_t at = -1;
        size_t count = 0;
        for (size_t t = 0; t < b.tokens; t++) {
            if (row[t] == b.padding) continue;
            float v = table[(size_t)row[t] * b.size + i % b.size];
            if (b.mode != BAG_MAX)
                value += v;
            else if (count == 0 || v > value)
                value = v, at = (int32_t)t;
            count++;
        }
        to[i] = b.mode == BAG_MEAN && count > 0 ? value / (float)count : value;
        if (b.mode == BAG_MAX) positions[i] = at;
    });
}

/* Gradients of all positions, which embedding_backward adds in a fixed order. */
static void embedding_bag_backward(struct device *device, const struct embedding_bag *bag, const int32_t *tokens,
                                   const int32_t *largest, const float *dy, float *dweight) {
    operator_call c(device, "embedding_bag_backward");
    struct embedding_bag b = *bag;
    const int32_t *ids = c.in(tokens, b.rows * b.tokens), *positions = c.in(largest, b.rows * b.size);
    const float *from = c.in(dy, b.rows * b.size);
    float *table = c.inout(dweight, b.vocabulary * b.size), *all = c.scratch<float>(b.rows * b.tokens * b.size);
    c.each(b.rows * b.tokens * b.size, [=] __device__(size_t i) {
        size_t r = i / b.size / b.tokens, t = i / b.size % b.tokens, j = i % b.size;
        const int32_t *row = ids + r * b.tokens;
        float v = from[r * b.size + j];
        if (b.mode == BAG_MAX)
            all[i] = positions[r * b.size + j] == (int32_t)t ? v : 0;
        else
            all[i] = row[t] == b.padding ? 0 : b.mode == BAG_MEAN ? v / (float)bag_count(&b, row) : v;
    });
    gpu_embedding_gather(&c, ids, all, table, b.rows * b.tokens, b.vocabulary, b.size);
}

#define ADD_ROWS 4096 /* maximum rows of the grid; matrices may have few long rows, or many */

/* A thread adds four numbers of the row, to every [gridDim.y]-th row. */
__global__ static void add_row_kernel(const float *x, const float *row, float *y, size_t rows, size_t size,
                                      bool is_aligned) {
    size_t j = ((size_t)blockIdx.x * GPU_THREADS + threadIdx.x) * 4;
    if (j >= size) return;
    float4 b = row_load(row, j, size, is_aligned, 0);
    for (size_t i = blockIdx.y; i < rows; i += gridDim.y) {
        float4 a = row_load(x + i * size, j, size, is_aligned, 0);
        row_store(y + i * size, j, size, is_aligned, {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w});
    }
}

static void add_row(struct device *device, const float *x, const float *row, float *y, size_t rows, size_t size) {
    operator_call c(device, "add_row");
    const float *from = c.in(x, rows * size), *other = c.in(row, size);
    float *to = c.out(y, rows * size);
    size_t across = (size + 4 * GPU_THREADS - 1) / (4 * GPU_THREADS), down = rows < ADD_ROWS ? rows : ADD_ROWS;
    bool is_aligned = rows_are_aligned(from, size) && rows_are_aligned(other, size) && rows_are_aligned(to, size);
    if (rows > 0 && size > 0)
        c.launch(add_row_kernel, dim3((unsigned)across, (unsigned)down), GPU_THREADS, 0, from, other, to, rows, size,
                 is_aligned);
}

static void sum_rows(struct device *device, const float *x, float *sum, size_t rows, size_t size) {
    operator_call c(device, "sum_rows");
    const float *from = c.in(x, rows * size);
    float *to = c.inout(sum, size);
    column_sums<1>(
        &c, rows, size, [=] __device__(size_t i, size_t j, float *sum) { *sum += from[i * size + j]; },
        [=] __device__(size_t j, const double *sum) { to[j] += (float)*sum; });
}

/* y = exp(x - largest) / sum, or with IS_LOG x - largest - log(sum); a row of all -inf gives NaN, as on the CPU. */
template <bool IS_LOG> struct softmax_rows {
    const float *x;
    float *y;
    size_t size;
    bool is_aligned;

    __device__ static float value(float x, float largest, float of_sum) {
        if constexpr (IS_LOG) return x - largest - of_sum;
        return math_exp(x - largest) * of_sum;
    }

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        const float *from = x + i * size;
        struct row_softmax s = {-INFINITY, 0};
        for (size_t j = first; j < size; j += 4 * THREADS) s.take(row_load(from, j, size, is_aligned, -INFINITY));
        s = row_join<THREADS>(s, row_softmax_join());
        float of_sum = IS_LOG ? logf(s.sum) : 1 / s.sum;
        for (size_t j = first; j < size; j += 4 * THREADS) {
            float4 v = row_load(from, j, size, is_aligned, 0);
            row_store(y + i * size, j, size, is_aligned,
                      {value(v.x, s.largest, of_sum), value(v.y, s.largest, of_sum), value(v.z, s.largest, of_sum),
                       value(v.w, s.largest, of_sum)});
        }
    }
};

template <bool IS_LOG> void softmax_forward(struct device *device, const float *x, float *y, size_t rows, size_t size) {
    operator_call c(device, IS_LOG ? "log_softmax_forward" : "softmax_forward");
    struct softmax_rows<IS_LOG> f = {
        c.in(x, rows *size), c.out(y, rows *size), size, false
    };
    f.is_aligned = rows_are_aligned(f.x, size) && rows_are_aligned(f.y, size);
    rows_start(&c, rows, size, f);
}

/* dx = y (dy - sum(y dy)), or with IS_LOG dy - exp(y) sum(dy) */
template <bool IS_LOG> struct softmax_input_rows {
    const float *y, *dy;
    float *dx;
    size_t size;
    bool is_aligned;

    __device__ static float value(float y, float dy, float sum) {
        if constexpr (IS_LOG) return dy - math_exp(y) * sum;
        return y * (dy - sum);
    }

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        const float *output = y + i * size, *slope = dy + i * size;
        float sum = 0;
        for (size_t j = first; j < size; j += 4 * THREADS) {
            float4 g = row_load(slope, j, size, is_aligned, 0);
            if constexpr (!IS_LOG) {
                float4 p = row_load(output, j, size, is_aligned, 0);
                g = {p.x * g.x, p.y * g.y, p.z * g.z, p.w * g.w};
            }
            sum += (g.x + g.y) + (g.z + g.w);
        }
        sum = row_sum<THREADS>(sum);
        for (size_t j = first; j < size; j += 4 * THREADS) {
            float4 p = row_load(output, j, size, is_aligned, 0), g = row_load(slope, j, size, is_aligned, 0);
            row_store(dx + i * size, j, size, is_aligned,
                      {value(p.x, g.x, sum), value(p.y, g.y, sum), value(p.z, g.z, sum), value(p.w, g.w, sum)});
        }
    }
};

template <bool IS_LOG>
void softmax_backward(struct device *device, const float *y, const float *dy, float *dx, size_t rows, size_t size) {
    operator_call c(device, IS_LOG ? "log_softmax_backward" : "softmax_backward");
    struct softmax_input_rows<IS_LOG> f = {
        c.in(y, rows *size), c.in(dy, rows *size), c.out(dx, rows *size), size, false
    };
    f.is_aligned = rows_are_aligned(f.y, size) && rows_are_aligned(f.dy, size) && rows_are_aligned(f.dx, size);
    rows_start(&c, rows, size, f);
}

static void rotate(struct device *device, const struct rotation *rotation, const float *table, const float *x,
                   float *y) {
    operator_call c(device, "rotate");
    struct rotation r = *rotation;
    size_t count = r.rows * r.tokens * r.features;
    const float *from = c.in(x, count), *angles = c.in(table, r.tokens * r.head_size);
    float *to = c.out(y, count);
    c.each(count, [=] __device__(size_t i) {
        size_t position = i / r.features;
        to[i] = rotated(&r, from + position * r.features, angles + position % r.tokens * r.head_size, i % r.features);
    });
}

static void repeat_heads(struct device *device, const struct head_groups *groups, const float *x, float *y) {
    operator_call c(device, "repeat_heads");
    struct head_groups g = *groups;
    size_t in = (g.heads + 2 * g.kv_heads) * g.head_size, out = 3 * g.heads * g.head_size;
    const float *from = c.in(x, g.positions * in);
    float *to = c.out(y, g.positions * out);
    c.each(g.positions * out, [=] __device__(size_t i) { to[i] = from[i / out * in + repeated_column(&g, i % out)]; });
}

static void sum_heads(struct device *device, const struct head_groups *groups, const float *dy, float *dx) {
    operator_call c(device, "sum_heads");
    struct head_groups g = *groups;
    size_t in = (g.heads + 2 * g.kv_heads) * g.head_size, out = 3 * g.heads * g.head_size;
    const float *from = c.in(dy, g.positions * out);
    float *to = c.out(dx, g.positions * in);
    c.each(g.positions * in, [=] __device__(size_t i) { to[i] = summed_head(&g, from + i / in * out, i % in); });
}

/* ---- rows of different lengths ---- */

struct largest_size {
    __device__ size_t operator()(size_t a, size_t b) const { return a > b ? a : b; }
};

/* A block for each row. */
static void padding_lengths(struct device *device, const int32_t *tokens, int32_t padding, int32_t *lengths,
                            size_t rows, size_t positions) {
    operator_call c(device, "padding_lengths");
    const int32_t *from = c.in(tokens, rows * positions);
    int32_t *to = c.out(lengths, rows);
    c.rows(rows, [=] __device__(size_t r) {
        size_t length = 1;
        for (size_t t = threadIdx.x; t < positions; t += GPU_THREADS)
            if (from[r * positions + t] != padding) length = t + 1;
        length = gpu_reduce(length, largest_size());
        if (threadIdx.x == 0) to[r] = (int32_t)length;
    });
}

static void given_lengths(struct device *device, const float *x, int32_t *lengths, size_t rows, size_t positions) {
    operator_call c(device, "given_lengths");
    const float *from = c.in(x, rows);
    int32_t *to = c.out(lengths, rows);
    c.each(rows, [=] __device__(size_t r) {
        float v = from[r];
        to[r] = !(v >= 1) ? 1 : v < (float)positions ? (int32_t)v : (int32_t)positions;
    });
}

static void to_tokens(struct device *device, const float *x, int32_t *tokens, size_t count, size_t vocabulary) {
    operator_call c(device, "to_tokens");
    const float *from = c.in(x, count);
    int32_t *to = c.out(tokens, count);
    c.each(count, [=] __device__(size_t i) {
        float v = from[i];
        to[i] = v >= 0 && v < (float)vocabulary ? (int32_t)v : 0;
    });
}

/* A thread for each element of y; its sum has the CPU's order. */
/* The sum of the numbers [t, end) of a column, [stride] apart; t < end */
__device__ static float sum_along(const float *at, size_t stride, size_t t, size_t end) {
    float sum = at[t++ * stride];
    for (; t + GPU_AHEAD <= end; t += GPU_AHEAD) {
        float v[GPU_AHEAD];
        UNROLL for (size_t k = 0; k < GPU_AHEAD; k++) v[k] = at[(t + k) * stride];
        UNROLL for (size_t k = 0; k < GPU_AHEAD; k++) sum += v[k];
    }
    for (; t < end; t++) sum += at[t * stride];
    return sum;
}

static void mean_forward(struct device *device, const float *x, const int32_t *lengths, float *y, size_t rows,
                         size_t size, size_t inner) {
    operator_call c(device, "mean_forward");
    const float *from = c.in(x, rows * size * inner);
    const int32_t *ends = c.in(lengths, rows);
    float *to = c.out(y, rows * inner);
    c.each(rows * inner, [=] __device__(size_t i) {
        const float *at = from + i / inner * size * inner + i % inner;
        size_t length = ends ? (size_t)ends[i / inner] : size, t;
        double total = (double)sum_along(at, inner, 0, length > LONG_SUM ? LONG_SUM_RUN : length);
        for (t = LONG_SUM_RUN; length > LONG_SUM && t < length; t += LONG_SUM_RUN)
            total += (double)sum_along(at, inner, t, length - t < LONG_SUM_RUN ? length : t + LONG_SUM_RUN);
        to[i] = (float)total / (float)length;
    });
}

static void mean_backward(struct device *device, const float *dy, const int32_t *lengths, float *dx, size_t rows,
                          size_t size, size_t inner) {
    operator_call c(device, "mean_backward");
    const float *from = c.in(dy, rows * inner);
    const int32_t *ends = c.in(lengths, rows);
    float *to = c.out(dx, rows * size * inner);
    c.each(rows * size * inner, [=] __device__(size_t i) {
        size_t row = i / inner / size, length = ends ? (size_t)ends[row] : size;
        to[i] = i / inner % size < length ? from[row * inner + i % inner] / (float)length : 0;
    });
}

const struct sequence_ops gpu_sequences = {.max_head_size = 256,
                                           .padding_lengths = padding_lengths,
                                           .given_lengths = given_lengths,
                                           .to_tokens = to_tokens,
                                           .mean_forward = mean_forward,
                                           .mean_backward = mean_backward,
                                           .embedding_forward = embedding_forward,
                                           .embedding_backward = gpu_embedding_backward,
                                           .embedding_bag_forward = embedding_bag_forward,
                                           .embedding_bag_backward = embedding_bag_backward,
                                           .add_row = add_row,
                                           .sum_rows = sum_rows,
                                           .softmax_forward = softmax_forward<false>,
                                           .softmax_backward = softmax_backward<false>,
                                           .log_softmax_forward = softmax_forward<true>,
                                           .log_softmax_backward = softmax_backward<true>,
                                           .rotate = rotate,
                                           .repeat_heads = repeat_heads,
                                           .sum_heads = sum_heads,
                                           .attention_forward = gpu_attention_forward,
                                           .attention_backward = gpu_attention_backward,
                                           .cross_attention_forward = gpu_cross_attention_forward,
                                           .cross_attention_backward = gpu_cross_attention_backward};
