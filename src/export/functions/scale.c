/* x times the factor of its channel */
INLINE void scale(const float *x, const float *factors, float *y, size_t count, size_t channels) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] * factors[i % channels];
}
