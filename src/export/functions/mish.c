/* y (count) = x tanh(log(1 + exp(x))); y may be x */
INLINE void mish(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        float e = exponential(x[i] < 20 ? x[i] : 20), w = e * (e + 2);
        y[i] = x[i] * (w / (w + 2));
    }
}
