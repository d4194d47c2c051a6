/* y (count) = x above 0, slope x below; y may be x */
INLINE void leaky_relu(const float *x, float slope, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : slope * x[i];
}
