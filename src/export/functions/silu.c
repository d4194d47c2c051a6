/* y (count) = x / (1 + exp(-x)); y may be x */
INLINE void silu(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] / (1 + exponential(-x[i]));
}
