/* y (rows, size) = x / sqrt(mean of x^2 + eps) w of each row */
INLINE void rms_norm(const float *x, const float *w, float eps, float *y, size_t rows, size_t size) {
    size_t r, i;
    for (r = 0; r < rows; r++, x += size, y += size) {
        float squares[16] = {0}, scale;
        for (i = 0; i < size; i++) squares[i % 16] += x[i] * x[i];
        scale = 1 / sqrtf(total(squares) / (float)size + eps);
        for (i = 0; i < size; i++) y[i] = w ? x[i] * scale * w[i] : x[i] * scale;
    }
}
