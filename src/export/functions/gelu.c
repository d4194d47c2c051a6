/* y (count) = x (1 + erf(x / sqrt(2))) / 2; y may be x */
INLINE void gelu(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] * 0.5f * (1 + error_function(x[i] * 0.70710678118654752440f));
}
