/* y (outer, inner) = the mean over x (outer, size, inner) */
INLINE void mean(const float *x, float *y, size_t outer, size_t size, size_t inner) {
    size_t o, i, j;
    for (o = 0; o < outer; o++, x += size * inner, y += inner) {
        memcpy(y, x, inner * sizeof *y);
        for (i = 1; i < size; i++)
            for (j = 0; j < inner; j++) y[j] += x[i * inner + j];
        for (j = 0; j < inner; j++) y[j] /= (float)size;
    }
}
