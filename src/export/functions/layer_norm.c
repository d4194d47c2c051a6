/* y (rows, size) = (x - mean) / sqrt(variance + eps) w + b of each row */
INLINE void layer_norm(const float *x, const float *w, const float *b, float eps, float *y, size_t rows, size_t size) {
    size_t r, i;
    for (r = 0; r < rows; r++, x += size, y += size) {
        float sums[16] = {0}, squares[16] = {0}, mean, scale;
        for (i = 0; i < size; i++) sums[i % 16] += x[i];
        mean = total(sums) / (float)size;
        for (i = 0; i < size; i++) squares[i % 16] += (x[i] - mean) * (x[i] - mean);
        scale = 1 / sqrtf(total(squares) / (float)size + eps);
        for (i = 0; i < size; i++) {
            float v = (x[i] - mean) * scale;
            y[i] = w && b ? fmaf(v, w[i], b[i]) : w ? v * w[i] : v;
        }
    }
}
