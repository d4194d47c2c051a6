/* y (count) = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2; y may be x */
INLINE void gelu_tanh(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        float v = x[i];
        y[i] = 0.5f * v * (1 + tangent(0.79788456080286535588f * (v + 0.044715f * v * v * v)));
    }
}
