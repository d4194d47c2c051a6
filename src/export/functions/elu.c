/* y (count) = x above 0, exp(x) - 1 below; y may be x */
INLINE void elu(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : exp_minus_one(x[i]);
}
