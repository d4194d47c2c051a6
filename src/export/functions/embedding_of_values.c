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
