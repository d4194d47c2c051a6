/* y (count) = a * b */
INLINE void multiply(const float *a, const float *b, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = a[i] * b[i];
}
