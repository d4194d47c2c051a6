/* y (count) = min(max(x, 0), 6); y may be x */
INLINE void relu6(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] > 6 ? 6 : x[i] <= 0 ? 0 : x[i];
}
