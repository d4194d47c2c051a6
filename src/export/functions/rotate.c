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
