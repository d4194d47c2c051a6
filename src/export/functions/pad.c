/* The element that element [o] of a padded dimension of [in] elements copies; in: none. The mode is 'c', of constants,
 * or that of reflect, edge or wrap. */
INLINE size_t pad_source(size_t in, size_t before, char mode, size_t o) {
    if (o >= before && o - before < in) return o - before;
    if (mode == 'r') return o < before ? before - o : 2 * (in - 1) - (o - before);
    if (mode == 'e') return o < before ? 0 : in - 1;
    if (mode == 'w') return o < before ? o + in - before : o - before - in;
    return in;
}

/* y (rows, out[0], out[1], inner) from x (rows, in[0], in[1], inner) */
INLINE void pad(const float *x, float *y, size_t rows, const size_t *in, const size_t *before, const size_t *out,
                size_t inner, char mode, float value) {
    size_t r, a, b, i;
    for (r = 0; r < rows; r++, x += in[0] * in[1] * inner)
        for (a = 0; a < out[0]; a++)
            for (b = 0; b < out[1]; b++, y += inner) {
                size_t row = pad_source(in[0], before[0], mode, a), column = pad_source(in[1], before[1], mode, b);
                if (row < in[0] && column < in[1])
                    memcpy(y, x + (row * in[1] + column) * inner, inner * sizeof *y);
                else
                    for (i = 0; i < inner; i++) y[i] = value;
            }
}
