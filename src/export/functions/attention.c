/* y (tokens, heads * size) = softmax(q k^T / sqrt(size)) v of each head; qkv (tokens, (heads + 2 * kv_heads) * size):
 * neighbouring heads of queries share keys and values. Queries and keys are taken in blocks of 64; a softmax is
 * rescaled when a later block has a larger score. [work]: 64 * (64 + size). */
#define TOKENS 64

INLINE void attention(const float *qkv, float *y, size_t tokens, size_t heads, size_t kv_heads, size_t size,
                      int is_causal, float *work) {
    size_t width = heads * size, stride = width + 2 * kv_heads * size, h, first, k, i, j, d;
    float *block = work, *transposed = work + TOKENS * TOKENS, scale = 1 / sqrtf((float)size);
    for (h = 0; h < heads; h++) {
        const float *key = qkv + width + h / (heads / kv_heads) * size, *value = key + kv_heads * size;
        for (first = 0; first < tokens; first += TOKENS) {
            float maximum[TOKENS], sum[TOKENS];
            size_t queries = tokens - first < TOKENS ? tokens - first : TOKENS;
            for (i = 0; i < queries; i++) maximum[i] = -INFINITY, sum[i] = 0;
            for (k = 0; k < tokens && (!is_causal || k < first + queries); k += TOKENS) {
                size_t keys = tokens - k < TOKENS ? tokens - k : TOKENS;
                for (d = 0; d < size; d++)
                    for (j = 0; j < keys; j++) transposed[d * TOKENS + j] = key[(k + j) * stride + d];
                for (i = 0; i < queries; i++) {
                    const float *q = qkv + (first + i) * stride + h * size;
                    float *row = block + i * TOKENS, *to = y + (first + i) * width + h * size;
                    float sums[16] = {0}, before = maximum[i], max, factor;
                    size_t visible = !is_causal || first + i >= k + keys ? keys : first + i - k + 1;
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
                    for (d = 0; d < size; d++) to[d] = k ? to[d] * factor : 0;
                    for (j = 0; j < keys; j++)
                        for (d = 0; d < size; d++) to[d] = fmaf(value[(k + j) * stride + d], row[j], to[d]);
                }
            }
            for (i = 0; i < queries; i++)
                for (d = 0; d < size; d++) y[(first + i) * width + h * size + d] *= 1 / sum[i];
        }
    }
}
