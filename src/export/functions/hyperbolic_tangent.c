/* y (count) = tanh(x); y may be x */
INLINE void hyperbolic_tangent(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = tangent(x[i]);
}
