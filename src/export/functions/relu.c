/* y (count) = max(x, 0); y may be x */
INLINE void relu(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] <= 0 ? 0 : x[i];
}
