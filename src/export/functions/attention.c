/* Queries (rows, heads * size), keys and values (keys, kv_heads * size), whose rows are strides apart: neighbouring
 * heads of queries share keys and values. Keys from [length] on are padding. */
struct attention {
    const float *q, *k, *v;
    size_t q_stride, kv_stride, rows, keys, length, heads, kv_heads, size;
    int is_causal;
};

/* y (rows, heads * size) = softmax(q k^T / sqrt(size)) v of each head. Queries and keys are taken in blocks of 64; a
 * softmax is rescaled when a later block has a larger score. [work]: 64 * (64 + size). */
#define TOKENS 64

INLINE void attend(struct attention a, float *y, float *work) {
    size_t size = a.size, width = a.heads * size, stride = a.kv_stride, h, first, k, i, j, d;
    float *block = work, *transposed = work + TOKENS * TOKENS, scale = 1 / sqrtf((float)size);
    for (h = 0; h < a.heads; h++) {
        size_t shared = h / (a.heads / a.kv_heads) * size;
        const float *key = a.k + shared, *value = a.v + shared;
        for (first = 0; first < a.rows; first += TOKENS) {
            float maximum[TOKENS], sum[TOKENS];
            size_t queries = a.rows - first < TOKENS ? a.rows - first : TOKENS;
            for (i = 0; i < queries; i++) maximum[i] = -INFINITY, sum[i] = 0;
            for (k = 0; k < a.length && (!a.is_causal || k < first + queries); k += TOKENS) {
                size_t keys = a.keys - k < TOKENS ? a.keys - k : TOKENS;
                size_t real = a.length - k < keys ? a.length - k : keys;
                for (d = 0; d < size; d++)
                    for (j = 0; j < keys; j++) transposed[d * TOKENS + j] = key[(k + j) * stride + d];
                for (i = 0; i < queries; i++) {
                    const float *q = a.q + (first + i) * a.q_stride + h * size;
                    float *row = block + i * TOKENS, *to = y + (first + i) * width + h * size;
                    float sums[16] = {0}, before = maximum[i], max, factor;
                    size_t visible = !a.is_causal || first + i >= k + real ? real : first + i - k + 1;
                    for (j = 0; j < keys; j++) row[j] = 0;
                    for (d = 0; d < size; d++)
                        for (j = 0; j < keys; j++) row[j] = fmaf(transposed[d * TOKENS + j], q[d], row[j]);
                    max = largest(row, visible);
                    max = max > before ? max : before;
                    maximum[i] = max;
                    factor = exponential((before - max) * scale);
                    for (j = 0; j < visible; j++) row[j] = exponential((row[j] - max) * scale);
                    for (j = visible; j < keys; j++) row[j] = 0;
                    for (j = 0; j < visible; j++) sums[j % 16] += row[j];
                    sum[i] = sum[i] * factor + total(sums);
                    if (k)
                        for (d = 0; d < size; d++) to[d] *= factor;
                    else
                        for (d = 0; d < size; d++) to[d] = 0;
                    for (j = 0; j < keys; j++)
                        for (d = 0; d < size; d++) to[d] = fmaf(value[(k + j) * stride + d], row[j], to[d]);
                }
            }
            for (i = 0; i < queries; i++)
                for (d = 0; d < size; d++) y[(first + i) * width + h * size + d] *= 1 / sum[i];
        }
    }
}
