/* y (count) = x above 0, 1.6733 (exp(x) - 1) below, times 1.0507; y may be x */
INLINE void selu(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++)
        y[i] = x[i] > 0 ? x[i] * 1.0507009873554804934f : exp_minus_one(x[i]) * 1.7580993408473768600f;
}
