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
