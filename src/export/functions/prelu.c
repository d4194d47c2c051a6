/* x above 0, else x times the slope of its channel */
INLINE void prelu(const float *x, const float *slopes, float *y, size_t count, size_t channels) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : slopes[i % channels] * x[i];
}
