/* Layers over tokens and positions. */

/* y (count, size): row tokens[i] of w; 2 for a token that w does not have */
INLINE int embedding(const int32_t *tokens, const float *w, float *y, size_t count, int32_t vocabulary, size_t size) {
    size_t i;
    for (i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= vocabulary) return 2;
        memcpy(y + i * size, w + (size_t)tokens[i] * size, size * sizeof *y);
    }
    return 0;
}

/* y (size): the mean (0), sum (1) or maximum (2) of the rows of w (vocabulary, size) without the token padding; 2 for a
 * token that w does not have. The tokens are tokens (count), or values (count) where tokens is NULL. */
INLINE int embedding_bag(const int32_t *tokens, const float *values, const float *w, float *y, size_t count,
                         int32_t vocabulary, size_t size, int32_t padding, int mode) {
    size_t i, j, used = 0;
    for (j = 0; j < size; j++) y[j] = 0;
    for (i = 0; i < count; i++) {
        int32_t token;
        const float *from;
        if (!tokens && !(values[i] >= 0 && values[i] < (float)vocabulary)) return 2;
        token = tokens ? tokens[i] : (int32_t)values[i];
        if (token < 0 || token >= vocabulary || (!tokens && (float)token != values[i])) return 2;
        from = w + (size_t)token * size;
        if (token == padding) continue;
        used++;
        for (j = 0; j < size; j++)
            if (mode != 2)
                y[j] += from[j];
            else if (used == 1 || from[j] > y[j])
                y[j] = from[j];
    }
    for (j = 0; mode == 0 && used > 0 && j < size; j++) y[j] /= (float)used;
    return 0;
}

/* y (count, size): row x[i] of w; 2 for a value that is no token of w */
INLINE int embedding_of_values(const float *x, const float *w, float *y, size_t count, int32_t vocabulary,
                               size_t size) {
    size_t i;
    for (i = 0; i < count; i++) {
        if (!(x[i] >= 0 && x[i] < (float)vocabulary) || (float)(int32_t)x[i] != x[i]) return 2;
        memcpy(y + i * size, w + (size_t)x[i] * size, size * sizeof *y);
    }
    return 0;
}

/* Queries (rows, heads * size), keys and values (keys, kv_heads * size), whose rows are strides apart: neighbouring
 * heads of queries share keys and values. Keys from [length] on are padding. */
struct attention {
    const float *q, *k, *v;
    size_t q_stride, kv_stride, rows, keys, length, heads, kv_heads, size;
    int is_causal;
    const float *mask; /* (mask_queries, keys): of the kind that cross_attention describes; NULL: none */
    size_t mask_queries;
    int mask_kind;
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
                    for (j = 0; a.mask && j < visible; j++) {
                        float m = a.mask[(a.mask_queries > 1 ? first + i : 0) * a.keys + k + j];
                        if (a.mask_kind == 2)
                            row[j] += (m < -1e30f ? -1e30f : m) / scale;
                        else if ((m > 0 || m < 0) == (a.mask_kind == 0))
                            row[j] += -1e30f / scale;
                    }
                    max = largest(row, visible);
                    max = max > before ? max : before;
                    maximum[i] = max;
                    factor = math_exp((before - max) * scale);
                    for (j = 0; j < visible; j++) row[j] = math_exp((row[j] - max) * scale);
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

/* y (tokens, heads * size) of qkv (tokens, (heads + 2 * kv_heads) * size), of which the first [length] tokens are real
 */
INLINE void self_attention(const float *qkv, float *y, size_t tokens, size_t length, size_t heads, size_t kv_heads,
                           size_t size, int is_causal, float *work) {
    struct attention a = {0};
    a.q = qkv, a.k = qkv + heads * size, a.v = a.k + kv_heads * size;
    a.q_stride = a.kv_stride = (heads + 2 * kv_heads) * size;
    a.rows = a.keys = tokens, a.length = length;
    a.heads = heads, a.kv_heads = kv_heads, a.size = size, a.is_causal = is_causal;
    attend(a, y, work);
}

/* y (rows, heads * size) of q (rows, heads * size) and kv (keys, 2 * heads * size), of which the first [length] are
 * real; mask (mask_queries, keys), or NULL: 1 hides a key (kind 0), or shows it (1), or it is added to the score (2) */
INLINE void cross_attention(const float *q, const float *kv, float *y, size_t rows, size_t keys, size_t length,
                            size_t heads, size_t size, const float *mask, size_t mask_queries, int mask_kind,
                            float *work) {
    struct attention a = {0};
    a.mask = mask, a.mask_queries = mask_queries, a.mask_kind = mask_kind;
    a.q = q, a.k = kv, a.v = kv + heads * size;
    a.q_stride = heads * size, a.kv_stride = 2 * heads * size;
    a.rows = rows, a.keys = keys, a.length = length;
    a.heads = a.kv_heads = heads, a.size = size;
    attend(a, y, work);
}

/* Whether mask (queries, keys), of a kind of cross_attention, leaves a query without a key */
INLINE int hides_all(const float *mask, size_t queries, size_t keys, int kind) {
    size_t q, k;
    for (q = 0; q < queries; q++) {
        int is_hidden = 1;
        for (k = 0; k < keys; k++) {
            float m = mask[q * keys + k];
            is_hidden = is_hidden && (kind == 2 ? m <= -0.5e30f : (m > 0 || m < 0) == (kind == 0));
        }
        if (is_hidden) return 1;
    }
    return 0;
}

/* The tokens up to the last one that is not [padding], at least 1 */
INLINE size_t length_of_tokens(const int32_t *tokens, size_t count, int32_t padding) {
    while (count > 1 && tokens[count - 1] == padding) count--;
    return count;
}

/* The tokens up to the last one that is not [padding], at least 1 */
INLINE size_t length_of_values(const float *tokens, size_t count, float padding) {
    while (count > 1 && !(tokens[count - 1] < padding) && !(tokens[count - 1] > padding)) count--;
    return count;
}

/* The length that is an input, 1 to [positions]; 0: it is none */
INLINE size_t given_length(float value, size_t positions) {
    if (!(value >= 1 && value <= (float)positions)) return 0;
    return (float)(size_t)value < value ? 0 : (size_t)value;
}

/* y (tokens, features): pairs of x's first heads * size features rotated by the angles (tokens, size / 2, cosine and
 * sine); a pair is (i, i + size / 2) of a head, or with is_interleaved (2i, 2i + 1). Two loops, because gcc 12 turns
 * neighbours that are a difference and a sum of products into an instruction that fuses them. */
INLINE void rotate(const float *x, const float *angles, float *y, size_t tokens, size_t features, size_t heads,
                   size_t size, int is_interleaved) {
    size_t t, h, i, rotated = heads * size, half = size / 2, other = is_interleaved ? 1 : half;
    size_t stride = is_interleaved ? 2 : 1;
    for (t = 0; t < tokens; t++, x += features, y += features, angles += size) {
        for (h = 0; h < rotated; h += size) {
            const float *from = x + h;
            float *to = y + h;
            for (i = 0; i < half; i++)
                to[i * stride] = from[i * stride] * angles[2 * i] - from[i * stride + other] * angles[2 * i + 1];
            for (i = 0; i < half; i++)
                to[i * stride + other] =
                    from[i * stride + other] * angles[2 * i] + from[i * stride] * angles[2 * i + 1];
        }
        memcpy(y + rotated, x + rotated, (features - rotated) * sizeof *y);
    }
}

/* One direction of an LSTM: y (steps, hidden; rows stride apart) from gates (steps, 4 * hidden), x W + b of i, f, g, o.
 * w (hidden, 4 * hidden), c (hidden), which becomes the last cell state; h0 and c0 (hidden) or 0: those before */
INLINE void lstm(float *gates, const float *w, const float *h0, const float *c0, float *c, float *y, size_t stride,
                 size_t steps, size_t hidden, int is_reverse) {
    size_t s, j;
    const float *before = h0;
    for (j = 0; j < hidden; j++) c[j] = c0 ? c0[j] : 0;
    for (s = 0; s < steps; s++) {
        size_t t = is_reverse ? steps - 1 - s : s;
        float *i = gates + t * 4 * hidden, *f = i + hidden, *g = f + hidden, *o = g + hidden, *h = y + t * stride;
        if (before) linear(before, w, i, i, 1, hidden, 4 * hidden);
        for (j = 0; j < 2 * hidden; j++) i[j] = sigmoid_value(i[j]);
        for (j = 0; j < hidden; j++) g[j] = tanh_value(g[j]);
        for (j = 0; j < hidden; j++) o[j] = sigmoid_value(o[j]);
        for (j = 0; j < hidden; j++) c[j] = fmaf(f[j], c[j], i[j] * g[j]);
        for (j = 0; j < hidden; j++) h[j] = o[j] * tanh_value(c[j]);
        before = h;
    }
}

/* One direction of a GRU: y (steps, hidden; rows stride apart) from gates (steps, 3 * hidden), x W + b of r, z, n.
 * w (hidden, 3 * hidden), b (3 * hidden) or 0, states (3 * hidden); h0 (hidden) or 0: the state before */
INLINE void gru(float *gates, const float *w, const float *b, const float *h0, float *states, float *y, size_t stride,
                size_t steps, size_t hidden, int is_reverse) {
    size_t s, j;
    const float *before = h0;
    for (s = 0; s < steps; s++) {
        size_t t = is_reverse ? steps - 1 - s : s;
        float *r = gates + t * 3 * hidden, *z = r + hidden, *n = z + hidden, *h = y + t * stride;
        linear(before, w, b, states, 1, before ? hidden : 0, 3 * hidden);
        for (j = 0; j < 2 * hidden; j++) r[j] += states[j];
        for (j = 0; j < 2 * hidden; j++) r[j] = sigmoid_value(r[j]);
        for (j = 0; j < hidden; j++) n[j] = fmaf(r[j], states[2 * hidden + j], n[j]);
        for (j = 0; j < hidden; j++) n[j] = tanh_value(n[j]);
        if (before)
            for (j = 0; j < hidden; j++) h[j] = fmaf(z[j], before[j] - n[j], n[j]);
        else
            for (j = 0; j < hidden; j++) h[j] = fmaf(z[j], 0 - n[j], n[j]);
        before = h;
    }
}

/* One direction of an RNN: y (steps, hidden; rows stride apart) from gates (steps, hidden), x W + b. w (hidden,
 * hidden), h0 (hidden) or 0: the state before */
INLINE void recurrence(float *gates, const float *w, const float *h0, float *y, size_t stride, size_t steps,
                       size_t hidden, int is_reverse, int is_relu) {
    size_t s, j;
    const float *before = h0;
    for (s = 0; s < steps; s++) {
        size_t t = is_reverse ? steps - 1 - s : s;
        float *gate = gates + t * hidden, *h = y + t * stride;
        if (before) linear(before, w, gate, gate, 1, hidden, hidden);
        for (j = 0; j < hidden; j++) h[j] = is_relu ? relu_value(gate[j]) : tanh_value(gate[j]);
        before = h;
    }
}
