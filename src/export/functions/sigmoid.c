/* y (count) = 1 / (1 + exp(-x)); y may be x */
INLINE void sigmoid(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = 1 / (1 + exponential(-x[i]));
}
