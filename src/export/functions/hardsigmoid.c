/* y (count) = min(max(x + 3, 0), 6) / 6; y may be x */
INLINE void hardsigmoid(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        float v = x[i] + 3;
        y[i] = (v > 6 ? 6 : v <= 0 ? 0 : v) / 6;
    }
}
