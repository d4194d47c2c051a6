/* y (rows, heads * size) of q (rows, heads * size) and kv (keys, 2 * heads * size), of which the first [length] are
 * real
 */
INLINE void cross_attention(const float *q, const float *kv, float *y, size_t rows, size_t keys, size_t length,
                            size_t heads, size_t size, float *work) {
    struct attention a = {0};
    a.q = q, a.k = kv, a.v = kv + heads * size;
    a.q_stride = heads * size, a.kv_stride = 2 * heads * size;
    a.rows = rows, a.keys = keys, a.length = length;
    a.heads = a.kv_heads = heads, a.size = size;
    attend(a, y, work);
}
