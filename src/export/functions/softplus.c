/* y (count) = log(1 + exp(x)); y may be x */
INLINE void softplus(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = (x[i] > 0 ? x[i] : 0) + log_plus_one(exponential(-fabsf(x[i])));
}
