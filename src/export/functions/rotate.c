/* y (tokens, features): pairs of x's first heads * size features rotated by the angles (tokens, size / 2, cosine and
 * sine); a pair is (i, i + size / 2) of a head, or with is_interleaved (2i, 2i + 1) */
INLINE void rotate(const float *x, const float *angles, float *y, size_t tokens, size_t features, size_t heads,
                   size_t size, int is_interleaved) {
    size_t t, h, i, rotated = heads * size, half = size / 2;
    for (t = 0; t < tokens; t++, x += features, y += features, angles += size) {
        for (h = 0; h < rotated; h += size)
            for (i = 0; i < half; i++) {
                size_t a = h + (is_interleaved ? 2 * i : i), b = is_interleaved ? a + 1 : a + half;
                float cosine = angles[2 * i], sine = angles[2 * i + 1], first = x[a], second = x[b];
                y[a] = first * cosine - second * sine;
                y[b] = second * cosine + first * sine;
            }
        memcpy(y + rotated, x + rotated, (features - rotated) * sizeof *y);
    }
}
